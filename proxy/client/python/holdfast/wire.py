# Code generated from protocol/api/schema.json; DO NOT EDIT. To update it, run:
#
#	go test ./protocol/api -update
"""The messages and other types of the wire, as the types of dictionaries.

Each class whose name ends with Message has the fields of one message. A class whose name ends with Spec has
those fields of a request that a caller may set. A type with listed values is open, because a newer peer may
add others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, Mapping, TypedDict, Union

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired


class AcceptedMessage(TypedDict):
    """Accepted reports the input offset up to which a writer's input was accepted. It is sent to an attachment from
    time to time, and is the reply to Input.
    """

    type: Literal["accepted"]
    request_id: NotRequired[str]
    attachment: NotRequired[int | None]
    offset: int


class AppearanceSpec(TypedDict):
    """The fields of AppearanceMessage that a caller may set."""

    # #rrggbb
    foreground: NotRequired[str]
    background: NotRequired[str]
    cursor: NotRequired[str]
    # width of a character cell in pixels
    cell_width: NotRequired[int]
    cell_height: NotRequired[int]
    # name and version of the terminal, as XTVERSION reports them
    version: NotRequired[str]
    # NoGraphemes tells that the terminal does not support mode 2027, grapheme clusters.
    no_graphemes: NotRequired[bool]
    pictures: NotRequired[Pictures]


class AppearanceMessage(AppearanceSpec):
    """Appearance reports that the properties of a viewer's terminal have changed."""

    type: Literal["appearance"]
    request_id: NotRequired[str]
    attachment: int


class AttachSpec(TypedDict):
    """The fields of AttachMessage that a caller may set."""

    # 0 for both: leave the session's size unchanged
    cols: NotRequired[int]
    rows: NotRequired[int]
    # "": shared
    mode: NotRequired[Mode]
    steal: NotRequired[bool]
    # with Steal: the client only ends the others, and leaves; stolen tells them so
    detach: NotRequired[bool]
    resume: NotRequired[Resume]
    # with Resume: send a snapshot even if the ring has the output
    snapshot: NotRequired[bool]
    # ScreenOnly, with Snapshot, leaves out the lines above the screen, because the viewer's terminal still has them.
    screen_only: NotRequired[bool]
    # lines above the screen in a snapshot; absent: DefaultHistory
    history: NotRequired[int]
    # the viewer answers terminal queries of programs
    answers: NotRequired[bool]
    # writer of the attachment's input; "": a new writer
    writer: NotRequired[str]
    # Attempt must grow with each attach of a writer, so that a late attach that the client has given up does not
    # replace its successor. Microseconds since 1970 are suitable. An attach with 0 is never considered late.
    attempt: NotRequired[int]
    # Move counts how often one proxy has handed this attempt to another. Only proxies set it, so that a client may
    # count its attempts as it likes.
    move: NotRequired[int]
    # name of the client for people; other viewers see it in stolen
    client: NotRequired[str]
    # TERM of the viewer
    term: NotRequired[str]
    # Env contains those variables of the viewer's environment, as K=V, that programs of the session may want to use,
    # such as the addresses of the ssh agent and of the display.
    env: NotRequired[list[str]]
    # the viewer receives the input of all writers; not allowed with mode read_only
    typed: NotRequired[bool]
    # the viewer is a terminal
    is_tty: NotRequired[bool]
    # asterisks replace secrets, for viewers that store or pass on the output; not allowed with view own
    mask: NotRequired[bool]
    # "": raw; own requires Cols or Rows
    view: NotRequired[Union[Literal["raw", "own"], str]]
    # the child waits for this viewer; requires mode exclusive
    pace: NotRequired[bool]
    # properties of the viewer's terminal
    appearance: NotRequired[Appearance]
    # send output as terminal.data instead of binary frames
    text: NotRequired[bool]


class AttachMessage(AttachSpec):
    """Attach requests an attachment to a session. The client chooses the attachment's number, which must be unused
    on the connection. The reply is Attached.
    """

    type: Literal["attach"]
    request_id: NotRequired[str]
    attachment: int
    session_id: str


class AttachedMessage(TypedDict):
    """Attached is the reply to Attach. The frames of the snapshot follow, if there is one, and then output."""

    type: Literal["attached"]
    request_id: NotRequired[str]
    attachment: int
    session: SessionInfo
    replay: Replay
    # offset of the first byte of output that follows
    offset: int
    # bytes of output that were not sent and are no longer kept
    bytes_missed: int
    # size of the snapshot that is sent first
    snapshot_bytes: int
    # the snapshot shows a view of the viewer's own; further views follow
    view: NotRequired[bool]
    # writer of this attachment's input
    writer: str
    # input offset up to which the writer's input was accepted
    input_offset: int


class AwaitSpec(TypedDict):
    """The fields of AwaitMessage that a caller may set."""

    # Text is a regular expression (RE2) of at most MaxPattern bytes. It must match a line on the screen, or a line that
    # has left the screen since the await began. A line is matched as a whole, however it was wrapped, and without the
    # blanks at its end.
    text: NotRequired[str]
    # wait until the shell waits for a command
    prompt: NotRequired[bool]
    # wait until the session has printed nothing for so many milliseconds
    idle_ms: NotRequired[int]
    # Since is a mark, or absent. If it is given, only changes after the mark count: a line must have changed, a prompt
    # must have appeared, and the silence must begin after it.
    since: NotRequired[str]
    # absent: no time limit
    timeout_ms: NotRequired[int]


class AwaitMessage(AwaitSpec):
    """Await waits for an event on a session's screen. The reply is Awaited, or the error timeout."""

    type: Literal["await"]
    request_id: NotRequired[str]
    session_id: str


class AwaitedMessage(TypedDict):
    """Awaited is the reply to Await."""

    type: Literal["awaited"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    # for text: the line that matches
    line: NotRequired[str]
    # for text: the match, and each group of the expression
    groups: NotRequired[list[str]]
    # for prompt: the last command
    command: NotRequired[CommandInfo | None]
    # set if the session ended first
    exit: NotRequired[ExitRecord | None]


class AwayMessage(TypedDict):
    """Away requests the events in a session since its last viewer left. The reply is AwayContent."""

    type: Literal["away"]
    request_id: NotRequired[str]
    session_id: str


class AwayContentMessage(TypedDict):
    """AwayContent contains these events."""

    type: Literal["away_content"]
    request_id: NotRequired[str]
    instance: str
    # absent if the session never had a viewer
    left: NotRequired[Left | None]
    # when a viewer attached again; absent while there is none
    back_at: NotRequired[str]
    # bytes of output in that time
    printed: int
    bells: NotRequired[int]
    # the last MaxAway notifications
    notifications: NotRequired[list[Notification]]
    # the last MaxAway commands that have ended
    commands: NotRequired[list[CommandInfo]]
    # number of commands that have ended
    ended: NotRequired[int]


class ChangesSpec(TypedDict):
    """The fields of ChangesMessage that a caller may set."""

    # mark of the reader's last reply; absent: the whole screen
    since: NotRequired[str]
    # largest size of lines, rows and commands in the reply; 0: DefaultChangesBytes; at most MaxScreenBytes
    max_bytes: NotRequired[int]


class ChangesMessage(ChangesSpec):
    """Changes requests the least text that brings a reader of a session up to date. The reply is ChangesContent."""

    type: Literal["changes"]
    request_id: NotRequired[str]
    session_id: str


# ChangesContent contains the changes since a mark.
ChangesContentMessage = TypedDict(
    "ChangesContentMessage",
    {
        "type": 'Literal["changes_content"]',
        "request_id": 'NotRequired[str]',
        # for Whole; otherwise it is that of the mark
        "instance": 'NotRequired[str]',
        # output offset at that moment
        "offset": 'int',
        # value for Since of the next request; opaque to clients; base64, at most MaxMark bytes
        "mark": 'str',
        # number of the oldest line that is kept
        "first": 'int',
        # number of the first line that begins on the screen
        "screen": 'int',
        # number after that of the last line
        "next": 'int',
        # the session does not know what the reader has from From on
        "whole": 'NotRequired[bool]',
        # for Whole: number of the first line of the reply
        "from": 'NotRequired[int]',
        # lines that are new or have changed, the oldest first
        "lines": 'NotRequired[list[ChangedLines]]',
        # the terminal shows the alternate screen
        "alternate": 'NotRequired[bool]',
        # rows of the alternate screen that have changed, from the top
        "rows": 'NotRequired[list[ChangedRows]]',
        "cursor": 'Cursor',
        # set if the title has changed
        "title": 'NotRequired[str | None]',
        # set if the size has changed
        "size": 'NotRequired[Size | None]',
        # commands that have ended since the mark, the oldest first
        "commands": 'NotRequired[list[ChangedCommand]]',
        # LeftOut tells which lines have changed but had no room. A reader can read them by History.
        "left_out": 'NotRequired[LineRange | None]',
        # number of changed rows that had no room
        "left_out_rows": 'NotRequired[int]',
    },
)


class ClearSpec(TypedDict):
    """The fields of ClearMessage that a caller may set."""

    # delete the screen's rows as well, except the row with the cursor, which moves to the top
    screen: NotRequired[bool]


class ClearMessage(ClearSpec):
    """Clear deletes the lines above a session's screen, for all viewers. The reply is OK."""

    type: Literal["clear"]
    request_id: NotRequired[str]
    session_id: str


class CommandsMessage(TypedDict):
    """Commands requests the commands of a session that have ended. The reply is CommandsContent."""

    type: Literal["commands"]
    request_id: NotRequired[str]
    session_id: str


class CommandsContentMessage(TypedDict):
    """CommandsContent contains the commands that have ended, the oldest first."""

    type: Literal["commands_content"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    # number of commands that have ended
    count: int
    # the last MaxCommands of them, or fewer if their texts are long
    commands: list[CommandInfo]


class DetachMessage(TypedDict):
    """Detach ends an attachment. The session continues. The reply is Detached, also if there is no such attachment."""

    type: Literal["detach"]
    request_id: NotRequired[str]
    attachment: int


class DetachedMessage(TypedDict):
    """Detached is the reply to Detach. No further message has the attachment's number."""

    type: Literal["detached"]
    request_id: NotRequired[str]
    attachment: int


class EnvironmentMessage(TypedDict):
    """Environment requests the environment of the viewer that last sent one. The reply is EnvironmentContent."""

    type: Literal["environment"]
    request_id: NotRequired[str]
    session_id: str


class EnvironmentContentMessage(TypedDict):
    """EnvironmentContent contains a viewer's environment."""

    type: Literal["environment_content"]
    request_id: NotRequired[str]
    # K=V
    env: list[str]


class ErrorMessage(TypedDict):
    """Error is the reply to a request that failed. If it has the number of an attachment, it ends the attachment,
    unless its code is input_full, input_gap, line_too_long or permission_denied. If it has neither an id nor a
    number, the failed request had no id, or the error is the last message before the proxy closes the connection.
    """

    type: Literal["error"]
    request_id: NotRequired[str]
    attachment: NotRequired[int | None]
    code: Code
    message: str
    # for spawn_failed: the reason; for limit_exceeded: invalid_argument if the request itself is too large
    cause: NotRequired[Code]
    # the same request may succeed later
    retryable: NotRequired[bool]
    # the request should not be repeated before so many milliseconds
    retry_after_ms: NotRequired[int]
    # for exited_early and session_exited
    exit: NotRequired[ExitRecord | None]
    # for input_full, input_gap and line_too_long: the accepted input offset
    offset: NotRequired[int | None]
    # for protocol_mismatch: versions of the side that reports the error
    local: NotRequired[VersionRange | None]
    # for protocol_mismatch: versions of its peer
    remote: NotRequired[VersionRange | None]


class EventMessage(TypedDict):
    """Event reports one event. The end of a session is reported by PTYExited instead."""

    type: Literal["event"]
    seq: int
    event: Union[Literal["created", "exited", "forgotten", "resized", "attached", "detached", "missed", "title", "labels", "cwd", "bell", "notification", "frozen", "thawed", "degraded", "recording_failed", "recording_resumed", "output_idle", "command_started", "command_finished", "program_status"], str]
    at: str
    session: NotRequired[SessionInfo | None]
    # for event "missed": number of dropped events
    missed: NotRequired[int]
    # for event "notification"
    notification: NotRequired[Notification | None]


class EventsSpec(TypedDict):
    """The fields of EventsMessage that a caller may set."""

    instance: NotRequired[str]
    after: NotRequired[int]


class EventsMessage(EventsSpec):
    """Events requests events. If Instance and After are set and Instance is the supervisor's, the events begin after
    the event with number After. The reply is Subscribed. Event and PTYExited follow until the connection ends.
    """

    type: Literal["events"]
    request_id: NotRequired[str]


class ForgetSpec(TypedDict):
    """The fields of ForgetMessage that a caller may set."""

    # if set, the session must have this instance
    instance: NotRequired[str]
    # the session has failed after Reopen: restore the instance that Reopen has just replaced
    restore: NotRequired[bool]


class ForgetMessage(ForgetSpec):
    """Forget deletes an exited session. The reply is OK."""

    type: Literal["forget"]
    request_id: NotRequired[str]
    session_id: str


class FreezeSpec(TypedDict):
    """The fields of FreezeMessage that a caller may set."""

    # false: continue the processes
    frozen: bool


class FreezeMessage(FreezeSpec):
    """Freeze stops all processes of a session, or continues them. The reply is OK, also if the session is in that
    state already, or unsupported if the session has no cage.
    """

    type: Literal["freeze"]
    request_id: NotRequired[str]
    session_id: str


class GoawayMessage(TypedDict):
    """Goaway announces that the proxy is about to close the connection. The client should connect again after
    RetryAfterMS, and its attachments resume by offset.
    """

    type: Literal["goaway"]
    retry_after_ms: int
    reason: str


class HelloMessage(TypedDict):
    """Hello is the first message of a connection. The client sends it."""

    type: Literal["hello"]
    protocol: VersionRange
    capabilities: NotRequired[list[str]]
    # name of the client for people and logs, 1 to 256 bytes
    client: str
    # process id of the client
    pid: NotRequired[int]
    # required over TCP
    token: NotRequired[str]
    # required if the proxy has a secret
    secret: NotRequired[str]


class HistorySpec(TypedDict):
    """The fields of HistoryMessage that a caller may set."""

    # only lines with smaller numbers; absent: the lines above the screen
    before: NotRequired[int]
    # largest number of lines; 0: DefaultHistoryLines
    lines: NotRequired[int]
    # Command selects the output of an ended command instead of the lines above the screen: -1 is the last command, -2
    # the one before it. A positive number is the count of a CommandInfo, which names the same command also after
    # another one has ended.
    command: NotRequired[int]


class HistoryMessage(HistorySpec):
    """History requests lines of a session, the newest first. The reply is HistoryContent."""

    type: Literal["history"]
    request_id: NotRequired[str]
    session_id: str


class HistoryContentMessage(TypedDict):
    """HistoryContent contains lines of a session, the newest first."""

    type: Literal["history_content"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    # number of the oldest line that is kept
    first: int
    # number of the first line that begins on the screen
    screen: int
    # number after that of the last line
    next: int
    lines: list[HistoryLine]
    # styles of the spans; the first is the default
    looks: list[Look]
    # there are lines that are older than the last of these
    more: NotRequired[bool]
    # Command is the command whose output was requested. The first and the last line of the output have only the parts
    # that the command has printed.
    command: NotRequired[CommandInfo | None]
    # a part of the command's output is missing, because it has left the history or was erased
    truncated: NotRequired[bool]


class InfoMessage(TypedDict):
    """Info requests the description of one session. The reply is Session."""

    type: Literal["info"]
    request_id: NotRequired[str]
    session_id: str


class InputSpec(TypedDict):
    """The fields of InputMessage that a caller may set."""

    data_b64: str
    # writer of the input; with Offset, the input is accepted exactly once
    writer: NotRequired[str]
    offset: NotRequired[int]
    # Paste declares that Data is pasted text. Line ends are then sent as Enter, and the text is enclosed in paste marks
    # if the program has set mode 2004.
    paste: NotRequired[bool]
    # Keys contains names of keys, instead of Data. They are sent as the modes of the terminal require. A name is Enter,
    # Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End, Insert, Delete, PageUp, PageDown, F1 to F12, or
    # one character. The prefixes C-, M- and S- may precede it. Each key counts as one byte of input.
    keys: NotRequired[list[str]]
    # HoldMS requires Writer. Until the writer's next input without it, or for that many milliseconds, the inputs of
    # other writers fail with input_full, so that none of them comes between a text and the keys after it.
    hold_ms: NotRequired[int]


class InputMessage(InputSpec):
    """Input sends input to a session without an attachment. The reply is Accepted, or input_full with the accepted
    input offset.
    """

    type: Literal["input"]
    request_id: NotRequired[str]
    session_id: str


class InterruptSpec(TypedDict):
    """The fields of InterruptMessage that a caller may set."""

    session_id: NotRequired[str]


class InterruptMessage(InterruptSpec):
    """Interrupt sends SIGINT to the foreground process group of a terminal. If it has no number of an attachment, it
    names the session, and the reply is OK.
    """

    type: Literal["interrupt"]
    request_id: NotRequired[str]
    attachment: NotRequired[int]


class LimitSpec(TypedDict):
    """The fields of LimitMessage that a caller may set."""

    limits: Limits


class LimitMessage(LimitSpec):
    """Limit changes those limits of a running session that it contains. The reply is Session, or unsupported if the
    session has no cage.
    """

    type: Literal["limit"]
    request_id: NotRequired[str]
    session_id: str


class ListSpec(TypedDict):
    """The fields of ListMessage that a caller may set."""

    originator: NotRequired[str]
    # only sessions that have all of these labels
    labels: NotRequired[dict[str, str]]


class ListMessage(ListSpec):
    """List requests all sessions, or those of one originator. The reply is Sessions."""

    type: Literal["list"]
    request_id: NotRequired[str]


class MarkMessage(TypedDict):
    """Mark requests a mark of the session's present position. The reply is Marked."""

    type: Literal["mark"]
    request_id: NotRequired[str]
    session_id: str


class MarkedMessage(TypedDict):
    """Marked is the reply to Mark."""

    type: Literal["marked"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    # value for AwaitSpec.Since; opaque to clients; base64, at most MaxMark bytes
    mark: str
    # Inclusive is a mark of the same moment that includes the lines on the screen: they match. An await with it is the
    # same as one that began at that moment without a mark, and can be repeated. Empty if the supervisor does not
    # support it.
    inclusive: NotRequired[str]


class OkMessage(TypedDict):
    """OK is the reply to a request that succeeded and has no result."""

    type: Literal["ok"]
    request_id: NotRequired[str]


# The fields of PastMessage that a caller may set.
PastSpec = TypedDict(
    "PastSpec",
    {
        # only times, gaps and commands from this offset on
        "from": 'NotRequired[int]',
        # and up to this one; 0: up to the end
        "to": 'NotRequired[int]',
    },
)


class PastMessage(PastSpec):
    """Past requests a description of a session's past: the stored range, times, gaps and commands. The reply is
    PastContent.
    """

    type: Literal["past"]
    request_id: NotRequired[str]
    session_id: str


class PastContentMessage(TypedDict):
    """PastContent describes the past of a session."""

    type: Literal["past_content"]
    request_id: NotRequired[str]
    instance: str
    # how much of the session is stored on disk
    mode: Union[Literal["off", "screen", "full"], str]
    start: int
    end: int
    # when the output at Start was printed; absent if that is not known
    start_at: NotRequired[str]
    # when the last output before End was printed
    end_at: NotRequired[str]
    # samples, in ascending order; at most MaxPastTimes
    times: list[PastTime]
    # the largest ones, in ascending order; at most MaxPastGaps
    gaps: NotRequired[list[PastGap]]
    more_gaps: NotRequired[bool]
    # the last ones, in ascending order; at most MaxPastCommands
    commands: NotRequired[list[PastCommand]]
    more_commands: NotRequired[bool]


class PingMessage(TypedDict):
    """Ping lets a client learn whether the other end of a silent connection still answers. The reply is OK."""

    type: Literal["ping"]
    request_id: NotRequired[str]


class PtyExitedMessage(TypedDict):
    """PTYExited reports the end of a session. A subscriber receives it as an event, with Seq. An attachment receives
    it as its last message, with its number.
    """

    type: Literal["pty_exited"]
    session_id: str
    # the label pane_id, or the session's id if there is no such label
    pane_id: str
    exit_code: int
    # the last 5 lines that are not empty
    last_lines: list[str]
    session_title: str
    session_description: str
    parent_agent: NotRequired[str | None]
    timed_out: bool
    reason: NotRequired[Union[Literal["exited", "user_requested", "idle_timeout", "shutdown", "wait_error", "lost"], str]]
    signal: NotRequired[str]
    outcome: NotRequired[Outcome]
    instance: NotRequired[str]
    attachment: NotRequired[int | None]
    seq: NotRequired[int]
    exited_at: NotRequired[str]


class RenameSpec(TypedDict):
    """The fields of RenameMessage that a caller may set."""

    # at most MaxTitle bytes
    title: str


class RenameMessage(RenameSpec):
    """Rename sets the title of a session, its label title, for all clients. An empty title removes the label. The
    reply is Session.
    """

    type: Literal["rename"]
    request_id: NotRequired[str]
    session_id: str


class ReopenSpec(TypedDict):
    """The fields of ReopenMessage that a caller may set."""

    argv: NotRequired[list[str]]
    cwd: NotRequired[str]
    env: NotRequired[list[str]]
    cols: NotRequired[int]
    rows: NotRequired[int]
    # {} removes all labels
    labels: NotRequired[dict[str, str]]
    limits: NotRequired[Limits]
    # KeepScreen shows the lines of the old screen and its history above the new output, with a line between.
    keep_screen: NotRequired[bool]
    early_exit_ms: NotRequired[int]
    token: NotRequired[str]


class ReopenMessage(ReopenSpec):
    """Reopen starts an exited session again under its id, as a new instance. Absent fields keep their values. The
    reply is that of Spawn.
    """

    type: Literal["reopen"]
    request_id: NotRequired[str]
    session_id: str


class ResizeSpec(TypedDict):
    """The fields of ResizeMessage that a caller may set."""

    session_id: NotRequired[str]
    cols: int
    rows: int


class ResizeMessage(ResizeSpec):
    """Resize changes the size of a viewer, if it has the number of an attachment. Otherwise it changes the size of
    the session SessionID, and the reply is OK.
    """

    type: Literal["resize"]
    request_id: NotRequired[str]
    attachment: NotRequired[int]


class ResizedMessage(TypedDict):
    """Resized reports the new size of the session to a viewer."""

    type: Literal["resized"]
    attachment: int
    cols: int
    rows: int


class ResyncMessage(TypedDict):
    """Resync tells a viewer that it was too slow and that output was skipped. A snapshot follows, and then output
    from Offset on.
    """

    type: Literal["resync"]
    attachment: int
    offset: int
    bytes_missed: int
    snapshot_bytes: int
    # the snapshot shows a view of the viewer's own
    view: NotRequired[bool]
    # the snapshot has no lines above the screen, and the viewer must keep its own
    screen_only: NotRequired[bool]


class ScreenSpec(TypedDict):
    """The fields of ScreenMessage that a caller may set."""

    # "" is text
    format: NotRequired[Union[Literal["text", "cells", "ansi", "state"], str]]
    # only the last so many lines; without Scrollback they may begin above the screen
    lines: NotRequired[int]
    # so many lines above the screen in addition; -1: all
    scrollback: NotRequired[int]
    # leave out the last so many of these lines
    skip: NotRequired[int]
    # leave out blank lines
    non_empty: NotRequired[bool]
    # lay the lines out for a terminal of this width; 0: the session's width
    cols: NotRequired[int]
    # and of this height; 0: the session's height
    rows: NotRequired[int]
    # the screen at an earlier moment; absent: the present one
    at: NotRequired[Moment]
    # with format cells: send the pictures, too
    pictures: NotRequired[bool]


class ScreenMessage(ScreenSpec):
    """Screen requests a session's screen, also after the session has ended, or the screen at an earlier moment. The
    reply is ScreenContent.
    """

    type: Literal["screen"]
    request_id: NotRequired[str]
    session_id: str


class ScreenContentMessage(TypedDict):
    """ScreenContent contains a session's screen, or its last lines."""

    type: Literal["screen_content"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    cols: int
    rows: int
    cursor: Cursor
    title: str
    # the terminal shows the alternate screen
    alternate: NotRequired[bool]
    # what the terminal does with input; absent for an earlier moment, after the end, and if it is not known
    input: NotRequired[Union[Literal["line", "hidden", "keys"], str]]
    # for format cells: number of rows that are above the screen
    above: NotRequired[int]
    # for format text
    lines: NotRequired[list[str]]
    # for format cells
    cells: NotRequired[list[ScreenLine]]
    # for format cells: styles of the cells; the first is the default
    looks: NotRequired[list[Look]]
    # for format ansi: lines that end with SGR 0 and a newline
    ansi: NotRequired[str]
    # for format state: base64
    state: NotRequired[str]
    # Pictures has the pictures that the cells show, if the request asks for them. Text may lie over them.
    pictures: NotRequired[list[ScreenPicture]]
    # the oldest lines are missing, because one message cannot contain all
    truncated: NotRequired[bool]
    # if the request has at: when the last output before Offset was printed, if that is known
    printed_at: NotRequired[str]
    # if the request has at: output before Offset is not kept, so the screen may have been another one
    inexact: NotRequired[bool]


class ScrollbackSpec(TypedDict):
    """The fields of ScrollbackMessage that a caller may set."""

    offset: NotRequired[int]
    # largest size of the reply's data; default and maximum 512 KiB
    max_bytes: NotRequired[int]
    # also output that only the store has; the reply then has times and sizes
    past: NotRequired[bool]


class ScrollbackMessage(ScrollbackSpec):
    """Scrollback requests output of a session from an offset on, as far as it is kept. The reply is ScrollbackData."""

    type: Literal["scrollback"]
    request_id: NotRequired[str]
    session_id: str


class ScrollbackDataMessage(TypedDict):
    """ScrollbackData contains output of a session."""

    type: Literal["scrollback_data"]
    request_id: NotRequired[str]
    instance: str
    # offset of the first byte; later than requested if the ring no longer has the bytes before
    offset: int
    # number of bytes of output so far
    end: int
    # base64
    data_b64: str
    # if the request has past: when the data was printed
    times: NotRequired[list[PastTime]]
    # if the request has past: the size of the terminal at Offset, and its changes up to the end of the data
    sizes: NotRequired[list[PastSize]]


class SearchSpec(TypedDict):
    """The fields of SearchMessage that a caller may set."""

    # a regular expression in the syntax of RE2
    pattern: str
    ignore_case: NotRequired[bool]
    # only lines with smaller numbers; absent: all lines, including those on the screen
    before: NotRequired[int]
    # largest number of matching lines; 0: DefaultMatches
    limit: NotRequired[int]


class SearchMessage(SearchSpec):
    """Search requests the lines that match a pattern. The reply is SearchContent."""

    type: Literal["search"]
    request_id: NotRequired[str]
    session_id: str


class SearchContentMessage(TypedDict):
    """SearchContent contains the lines that match, the newest first."""

    type: Literal["search_content"]
    request_id: NotRequired[str]
    instance: str
    # output offset at that moment
    offset: int
    # number of the oldest line that is kept
    first: int
    # number of the first line that begins on the screen
    screen: int
    # number after that of the last line
    next: int
    matches: list[Match]
    # lines with smaller numbers were not searched
    before: int
    # there are such lines; to search them, send this before in another request
    more: NotRequired[bool]


class SearchPastSpec(TypedDict):
    """The fields of SearchPastMessage that a caller may set."""

    # a regular expression in the syntax of RE2
    pattern: str
    ignore_case: NotRequired[bool]
    # only lines that begin before this offset; absent: all lines
    before: NotRequired[int]
    # largest number of matching lines; 0: DefaultMatches
    limit: NotRequired[int]


class SearchPastMessage(SearchPastSpec):
    """SearchPast requests the lines of a session's past that match a pattern. The reply is SearchPastContent."""

    type: Literal["search_past"]
    request_id: NotRequired[str]
    session_id: str


class SearchPastContentMessage(TypedDict):
    """SearchPastContent contains the lines that match, the newest first."""

    type: Literal["search_past_content"]
    request_id: NotRequired[str]
    instance: str
    # offset of the oldest output that is kept
    start: int
    # number of bytes of output so far
    end: int
    matches: list[PastMatch]
    # lines that begin before this offset were not searched
    before: int
    # there may be such lines; to search them, send this before in another request
    more: NotRequired[bool]


class SessionMessage(TypedDict):
    """Session describes one session."""

    type: Literal["session"]
    request_id: NotRequired[str]
    session: SessionInfo


class SessionsMessage(TypedDict):
    """Sessions is the reply to List. If More is set, another Sessions with more sessions follows."""

    type: Literal["sessions"]
    request_id: NotRequired[str]
    sessions: list[SessionInfo]
    more: NotRequired[bool]


class ShareSpec(TypedDict):
    """The fields of ShareMessage that a caller may set."""

    # validity of the URL; 0: one hour; at most 30 days
    ttl_ms: NotRequired[int]


class ShareMessage(ShareSpec):
    """Share requests a URL with which a browser can view one session and do nothing else. The reply is Shared."""

    type: Literal["share"]
    request_id: NotRequired[str]
    session_id: str


class SharedMessage(TypedDict):
    """Shared is the reply to Share."""

    type: Literal["shared"]
    request_id: NotRequired[str]
    url: str
    expires_at: str


class SignalSpec(TypedDict):
    """The fields of SignalMessage that a caller may set."""

    # "SIGUSR1", "USR1" or a number
    signal: str


class SignalMessage(SignalSpec):
    """Signal sends a signal to the process groups of a session. It has no other effect. The reply is OK."""

    type: Literal["signal"]
    request_id: NotRequired[str]
    session_id: str


class SizePolicySpec(TypedDict):
    """The fields of SizePolicyMessage that a caller may set."""

    policy: Union[Literal["latest", "owner", "smallest", "largest", "fixed"], str]
    # for policy fixed; 0: leave the size unchanged
    cols: NotRequired[int]
    rows: NotRequired[int]


class SizePolicyMessage(SizePolicySpec):
    """SizePolicy changes the size policy of a session. The reply is OK."""

    type: Literal["size_policy"]
    request_id: NotRequired[str]
    session_id: str


class SpawnSpec(TypedDict):
    """The fields of SpawnMessage that a caller may set."""

    # "": Holdfast chooses one
    session_id: NotRequired[str]
    # absent: the login shell, in a spawn of the api; must not be []
    argv: NotRequired[list[str]]
    # must be absolute; "": the home directory
    cwd: NotRequired[str]
    # K=V, added to the inherited environment
    env: NotRequired[list[str]]
    clear_inherited_env: NotRequired[bool]
    # 0: 80
    cols: NotRequired[int]
    # 0: 24
    rows: NotRequired[int]
    originator: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    # 0: the supervisor's default
    scrollback_lines: NotRequired[int]
    # "": latest
    size_policy: NotRequired[Union[Literal["latest", "owner", "smallest", "largest", "fixed"], str]]
    # the error is unsupported if the session cannot have a cage
    limits: NotRequired[Limits]
    # "": the supervisor's setting
    durable: NotRequired[Union[Literal["off", "screen", "full"], str]]
    # SecretEnv are names of variables, which may contain *. Their values are masked in what is stored of the session,
    # and in replies that are not the live screen of a viewer.
    secret_env: NotRequired[list[str]]
    # Unattended tells that no viewer will attach at once. Then the first queries of the child do not wait for a viewer
    # to answer them, and a child that prints much does not wait for a viewer to receive it.
    unattended: NotRequired[bool]
    # CellWidth and CellHeight are the size of a character cell of the viewer that will attach, in pixels. If the
    # session received the size with that viewer only, the child would receive SIGWINCH just after its start.
    cell_width: NotRequired[int]
    cell_height: NotRequired[int]
    # duration of the check; in milliseconds; absent: 200; 0: no check
    early_exit_ms: NotRequired[int]
    # Token makes Spawn repeatable after a lost connection, if it is set: if the session exists and was created with the
    # same token, the reply describes it.
    token: NotRequired[str]
    # ShellIntegration makes a shell (bash, zsh, fish) report its prompts and commands by OSC 133. It changes no file of
    # the user. It has no effect on other programs.
    shell_integration: NotRequired[bool]


class SpawnMessage(SpawnSpec):
    """Spawn starts a session and checks that its child does not end at once. The reply is Spawned, or exited_early
    with the exit record.
    """

    type: Literal["spawn"]
    request_id: NotRequired[str]


class SpawnedMessage(TypedDict):
    """Spawned is the reply to Spawn and Reopen."""

    type: Literal["spawned"]
    request_id: NotRequired[str]
    session_id: str
    pid: int
    created_at: str
    session: SessionInfo


class StatusMessage(TypedDict):
    """Status requests the status of the proxy and of the supervisor. The reply is StatusReport."""

    type: Literal["status"]
    request_id: NotRequired[str]


class StatusReportMessage(TypedDict):
    """StatusReport contains the status of the proxy and of the supervisor."""

    type: Literal["status_report"]
    request_id: NotRequired[str]
    proxy: ProcessStatus
    # absent if the supervisor is unreachable
    supervisor: NotRequired[ProcessStatus | None]
    # TCP address on which the proxy serves WebSockets, if it does
    web: NotRequired[str]


class StolenMessage(TypedDict):
    """Stolen ends an attachment because another client has attached with steal."""

    type: Literal["stolen"]
    attachment: int
    stolen_by: str
    # the other client has only ended this attachment, and leaves
    detached: NotRequired[bool]


class SubscribedMessage(TypedDict):
    """Subscribed is the reply to Events."""

    type: Literal["subscribed"]
    request_id: NotRequired[str]
    # instance of the supervisor
    instance: str
    # number of the last event; the following events have greater numbers
    seq: int


class TerminalCloseSpec(TypedDict):
    """The fields of TerminalCloseMessage that a caller may set."""

    reason: NotRequired[Union[Literal["exited", "user_requested", "idle_timeout", "shutdown", "wait_error", "lost"], str]]


class TerminalCloseMessage(TerminalCloseSpec):
    """TerminalClose ends a session."""

    type: Literal["terminal.close"]
    session_id: str


class TerminalDataSpec(TypedDict):
    """The fields of TerminalDataMessage that a caller may set."""

    data_b64: str


class TerminalDataMessage(TerminalDataSpec):
    """TerminalData contains output for a text client, or input from it."""

    type: Literal["terminal.data"]
    session_id: str


class TerminalErrorMessage(TypedDict):
    """TerminalError is the reply to a terminal message that failed."""

    type: Literal["terminal.error"]
    request_id: NotRequired[str]
    session_id: NotRequired[str]
    code: Code
    message: str
    cause: NotRequired[Code]


class TerminalExitMessage(TypedDict):
    """TerminalExit reports the end of a session, instead of PTYExited, to a client that has announced
    CapTerminalExit.
    """

    type: Literal["terminal.exit"]
    session_id: str
    exit_code: int
    reason: NotRequired[Union[Literal["exited", "user_requested", "idle_timeout", "shutdown", "wait_error", "lost"], str]]
    attachment: NotRequired[int | None]
    seq: NotRequired[int]
    exited_at: NotRequired[str]


class TerminalOpenSpec(TypedDict):
    """The fields of TerminalOpenMessage that a caller may set."""

    task_id: str
    workspace_id: str
    user_id: NotRequired[str]
    cols: NotRequired[int]
    rows: NotRequired[int]


class TerminalOpenMessage(TerminalOpenSpec):
    """TerminalOpen starts a session for a task and attaches to it with output as text. The reply is TerminalOpened
    or TerminalError.
    """

    type: Literal["terminal.open"]
    request_id: NotRequired[str]


class TerminalOpenedMessage(TypedDict):
    """TerminalOpened is the reply to TerminalOpen."""

    type: Literal["terminal.opened"]
    request_id: NotRequired[str]
    session_id: str
    work_dir: str
    shell: str


class TerminalResizeSpec(TypedDict):
    """The fields of TerminalResizeMessage that a caller may set."""

    cols: int
    rows: int


class TerminalResizeMessage(TerminalResizeSpec):
    """TerminalResize contains the new size of a text client's view."""

    type: Literal["terminal.resize"]
    session_id: str


class TerminateSpec(TypedDict):
    """The fields of TerminateMessage that a caller may set."""

    # if set, the session must have this instance
    instance: NotRequired[str]
    # absent: 250
    grace_ms: NotRequired[int]
    # "": SIGHUP
    soft_signal: NotRequired[str]
    # "": user_requested
    reason: NotRequired[Union[Literal["exited", "user_requested", "idle_timeout", "shutdown", "wait_error", "lost"], str]]
    # All ends every process of the session's cage, also processes without the terminal, and also after the session has
    # exited. Without a cage the error is unsupported.
    all: NotRequired[bool]


class TerminateMessage(TerminateSpec):
    """Terminate ends a session: the soft signal, the grace, and then SIGKILL. The reply is OK when the end has been
    scheduled.
    """

    type: Literal["terminate"]
    request_id: NotRequired[str]
    session_id: str


class TicketSpec(TypedDict):
    """The fields of TicketMessage that a caller may set."""

    # if set, the ticket is valid only for the raw WebSocket of this session
    session_id: NotRequired[str]


class TicketMessage(TicketSpec):
    """Ticket requests a ticket for one WebSocket over TCP. The reply is TicketIssued."""

    type: Literal["ticket"]
    request_id: NotRequired[str]


class TicketIssuedMessage(TypedDict):
    """TicketIssued contains a ticket, which is valid for one connection."""

    type: Literal["ticket_issued"]
    request_id: NotRequired[str]
    ticket: str
    expires_at: str


class TypedMessage(TypedDict):
    """Typed sends the input of all writers to an attachment that has requested it."""

    type: Literal["typed"]
    attachment: int
    at: str
    # output offset when the input arrived
    offset: int
    data_b64: str
    # the terminal does not echo the input, so each character is replaced by an asterisk
    masked: NotRequired[bool]


class VouchMessage(TypedDict):
    """Vouch precedes Hello. The agent of a host sends it for a client of a gate that has a policy: the gate has
    established who the client is. It has no reply. A proxy of an older release refuses the connection.
    """

    type: Literal["vouch"]
    # of the proxy, which proves that the agent runs as its user
    token: str
    principal: Principal


class WaitSpec(TypedDict):
    """The fields of WaitMessage that a caller may set."""

    # if set, the session must have this instance
    instance: NotRequired[str]
    # absent: no time limit
    timeout_ms: NotRequired[int]


class WaitMessage(WaitSpec):
    """Wait waits for the end of a session. The reply is Waited, or the error timeout."""

    type: Literal["wait"]
    request_id: NotRequired[str]
    session_id: str


class WaitedMessage(TypedDict):
    """Waited is the reply to Wait."""

    type: Literal["waited"]
    request_id: NotRequired[str]
    session_id: str
    instance: str
    exit: ExitRecord


class WelcomeMessage(TypedDict):
    """Welcome is the reply to Hello."""

    type: Literal["welcome"]
    protocol: VersionRange
    agreed: int
    capabilities: NotRequired[list[str]]
    pid: int
    version: str
    instance: str


class Appearance(TypedDict):
    """Appearance contains properties of a terminal that programs may query. An empty field means that the value is
    unknown.
    """

    # #rrggbb
    foreground: NotRequired[str]
    background: NotRequired[str]
    cursor: NotRequired[str]
    # width of a character cell in pixels
    cell_width: NotRequired[int]
    cell_height: NotRequired[int]
    # name and version of the terminal, as XTVERSION reports them
    version: NotRequired[str]
    # NoGraphemes tells that the terminal does not support mode 2027, grapheme clusters.
    no_graphemes: NotRequired[bool]
    pictures: NotRequired[Pictures]


class Cage(TypedDict):
    """A Cage contains the kernel's counters of a session's control group. A counter is absent if the kernel does not
    provide it.
    """

    limits: NotRequired[Limits]
    # memory in use now, including cached files
    memory_bytes: NotRequired[int]
    # largest MemoryBytes so far
    memory_peak_bytes: NotRequired[int]
    # processes and threads now
    pids: NotRequired[int]
    pids_peak: NotRequired[int]
    # processor time of all processes that ever ran in the group
    user_ms: int
    # processor time of the kernel for these processes
    system_ms: int
    # how often the session ran out of memory at its own limit
    ooms: NotRequired[int]
    # processes that the kernel killed because of memory, at a limit of the session or of the machine
    oom_kills: NotRequired[int]
    # the last killed processes, as "hog (pid 12)", if the kernel's log is readable; at most MaxOOMKilled
    oom_killed: NotRequired[list[str]]
    # forks that failed at pids_max
    pids_denied: NotRequired[int]


class CagesStatus(TypedDict):
    """A CagesStatus tells whether new sessions get cages, and which cages of ended sessions still contain processes."""

    # the control group above the cages; "" if sessions get none
    dir: NotRequired[str]
    # controllers by which sessions can be limited: memory, pids and cpu
    controllers: NotRequired[list[str]]
    # why sessions get no cages or no limits, and how to change that
    off: NotRequired[str]
    # cages of ended sessions in which processes still run; at most MaxCagesLeft
    left: NotRequired[list[str]]


class ChangedCommand(TypedDict):
    """ChangedCommand is a command that has ended."""

    # number of the command, for HistorySpec.Command
    count: int
    # at most 256 bytes
    line: NotRequired[str]
    # if the shell has reported it
    exit_code: NotRequired[int | None]
    duration_ms: int


class ChangedLines(TypedDict):
    """ChangedLines are the texts of consecutive lines, each without the blanks at its end."""

    # number of the first line
    n: int
    t: list[str]
    # there is one text, and the line is longer
    cut: NotRequired[bool]


class ChangedRows(TypedDict):
    """ChangedRows are the texts of consecutive rows of the alternate screen, each without the blanks at its end."""

    # the first row, from 0
    y: int
    t: list[str]


class CommandInfo(TypedDict):
    """CommandInfo describes the commands of a session's shell, as the shell reports them by OSC 133 (FinalTerm's
    marks). The shell integration prints these marks.
    """

    # the shell waits for a command
    prompt: bool
    # the running or last command, if the shell has reported it; at most MaxTitle bytes
    line: NotRequired[str]
    # start of the running or last command
    started_at: NotRequired[str]
    # end of the last command; zero while it runs
    finished_at: NotRequired[str]
    # exit code of the last command that has ended, if the shell has reported it
    exit_code: NotRequired[int | None]
    # number of commands that have ended
    count: int
    # directory in which the running or last command was started, if the shell has reported it
    cwd: NotRequired[str]
    # place of its output; absent if its start is unknown
    output: NotRequired[CommandOutput | None]


# CommandOutput is the place of a command's output: in the output of the session, and in its lines.
CommandOutput = TypedDict(
    "CommandOutput",
    {
        # output offset behind the mark of the command's start
        "start": 'int',
        # output offset of the mark of the command's end; 0 while the command runs
        "end": 'NotRequired[int]',
        # place of the first character
        "from": 'LinePlace',
        # place behind the last character; zero while the command runs
        "to": 'NotRequired[LinePlace]',
        # Erased tells that a program has erased the screen, and with it a part of the output. From and To then enclose
        # the lines that were not erased.
        "erased": 'NotRequired[bool]',
    },
)


class Cursor(TypedDict):
    """Cursor is the position of the next character, counted from 0."""

    x: int
    y: int
    hidden: NotRequired[bool]


class ExitRecord(TypedDict):
    """An ExitRecord tells how a session's child ended."""

    # 0 to 255; 128+n after signal n; -1: unknown
    exit_code: int
    # such as "SIGTERM", if a signal ended the child
    signal: NotRequired[str]
    outcome: Outcome
    reason: Union[Literal["exited", "user_requested", "idle_timeout", "shutdown", "wait_error", "lost"], str]
    timed_out: bool
    # the last lines that are not empty, at most LastLines
    last_lines: list[str]
    # the last lines, at most TailLines
    tail: list[str]
    started_at: str
    exited_at: str
    # pids of processes that no signal has ended
    survivors: NotRequired[list[int]]
    # name of the client that requested the end or sent the signal
    ended_by: NotRequired[str]
    # user of that client, if a policy tells it
    ended_by_user: NotRequired[str]
    # working directory of the child when it was last read
    cwd: NotRequired[str]
    # set if the child was killed because of a lack of memory
    oom: NotRequired[Union[Literal["kernel_log", "cgroup"], str]]
    core_dumped: NotRequired[bool]
    usage: NotRequired[Usage]
    # resources that all processes of the session used, and the limits that they reached
    cage: NotRequired[Cage | None]


class Foreground(TypedDict):
    """Foreground describes the process that has a session's terminal at the time of the request. The proxy adds it;
    the link never carries it.
    """

    # leader of the terminal's foreground process group
    pid: int
    # name of the process, which the process itself can choose
    name: NotRequired[str]
    # working directory of the process
    cwd: NotRequired[str]
    # the session's child has children of its own; false if that is not known
    children: NotRequired[bool]
    # the session's child is stopped; SIGCONT continues it
    stopped: NotRequired[bool]
    # in a reply to info: a process of the group waits in a read of the terminal; false if that is not known
    reads: NotRequired[bool]


class HistoryLine(TypedDict):
    """HistoryLine is one line without the blanks of default style at its end."""

    line: int
    spans: list[Span]
    # the line is longer than its text here
    cut: NotRequired[bool]
    # the end of the line is on the screen, so the line may grow
    open: NotRequired[bool]


class KeeperStatus(TypedDict):
    """KeeperStatus describes the keeper of a supervisor."""

    pid: int
    # number of sessions in its vault, including exited ones
    sessions: int
    # number of supervisors that it has started, including this one
    starts: int
    # how the previous supervisor ended, for people
    last: NotRequired[str]
    # number of keepers that have died while this supervisor ran
    lost: NotRequired[int]


class Left(TypedDict):
    """Left tells when a session's last viewer left, and the position of the session at that time. A viewer that may
    not write does not count.
    """

    at: str
    # output offset at that time
    offset: int
    # number of the first line that was incomplete at that time, as history numbers lines
    line: int


class Limits(TypedDict):
    """Limits are the limits of the resources of all processes of a session together. If a field is absent, the limit
    stays as it is; at the start of a session the settings' default applies. A zero removes the limit. A session
    can have limits only if it has a cage, which is a control group of its own.
    """

    # bytes; if the session needs more, the kernel kills one of its processes
    memory_max: NotRequired[int]
    # bytes; if the session needs more, the kernel slows it down and reclaims memory
    memory_high: NotRequired[int]
    # processes and threads; a fork beyond the limit fails
    pids_max: NotRequired[int]
    # thousandths of a processor: 1500 is one and a half
    cpu_max: NotRequired[int]
    # share against other sessions if processors are scarce, 1 to 10000; the kernel's default is 100
    cpu_weight: NotRequired[int]


class LinePlace(TypedDict):
    """LinePlace is a place in the text of a line."""

    line: int
    # number of bytes of the text before the place; the blanks at the end of a text may be missing
    byte: NotRequired[int]


class LineRange(TypedDict):
    """LineRange is a range of lines. It begins at First and ends before End."""

    first: int
    end: int


class Look(TypedDict):
    """Look is the style of a cell. A colour is "" for the default, a number from 0 to 255 of the palette, or
    #rrggbb.
    """

    fg: NotRequired[str]
    bg: NotRequired[str]
    bold: NotRequired[bool]
    dim: NotRequired[bool]
    italic: NotRequired[bool]
    blink: NotRequired[bool]
    inverse: NotRequired[bool]
    invisible: NotRequired[bool]
    strike: NotRequired[bool]
    overline: NotRequired[bool]
    underline: NotRequired[Union[Literal["single", "double", "curly", "dotted", "dashed"], str]]
    underline_color: NotRequired[str]
    # the URI of OSC 8, unchanged
    link: NotRequired[str]


class Lost(TypedDict):
    """Lost describes the remains of a session after its machine has lost power."""

    # the screen is the one at this output offset
    offset: int
    # when the session was stored last
    seen_at: str
    # directory in which the child was then
    cwd: str


class Match(TypedDict):
    """Match is a line that matches."""

    line: int
    text: str
    # the first matches in the text
    ranges: list[Range]
    # the line is longer than its text here, and the remainder was not searched
    cut: NotRequired[bool]


class Moment(TypedDict):
    """A Moment names a place in the output of a session. Exactly one field must be set."""

    # after so many bytes of output
    offset: NotRequired[int]
    # after the output that was printed up to this time
    time: NotRequired[str]
    # so many milliseconds before the request; 0: the end of the output
    ago_ms: NotRequired[int]
    # Command is negative and counts the commands of the shell that have ended: -1 is the end of the last one, -2 that
    # of the one before.
    command: NotRequired[int]


class Notification(TypedDict):
    """Notification is a message of a program to its user."""

    title: NotRequired[str]
    body: str


class PastCommand(TypedDict):
    """PastCommand is a command of the session's shell that has ended."""

    # if the shell has reported it; at most MaxTitle bytes
    line: NotRequired[str]
    # the directory that the shell has reported last
    cwd: NotRequired[str]
    # offset at which the command began
    start: int
    # offset at which it ended
    end: int
    started_at: str
    finished_at: str
    # if the shell has reported it
    exit_code: NotRequired[int | None]


# PastGap is a range of output that is not kept.
PastGap = TypedDict(
    "PastGap",
    {
        "from": 'int',
        "to": 'int',
    },
)


class PastMatch(TypedDict):
    """PastMatch is a line of output that matches."""

    # output offset of the line's first character
    offset: int
    # when that was printed, to a tenth of a second; absent if that is not known
    at: NotRequired[str]
    # the line without escape sequences, at most MaxLineBytes
    text: str
    # the first matches in the text
    ranges: list[Range]


class PastSize(TypedDict):
    """PastSize is the size that the terminal had from an offset on."""

    offset: int
    cols: int
    rows: int


class PastTime(TypedDict):
    """PastTime tells when output was printed."""

    offset: int
    # the output from Offset on was printed at this time, or later
    at: str


class Pictures(TypedDict):
    """Pictures tells in which forms a viewer's terminal shows pictures. A viewer that has sent an appearance
    receives the bytes of no other pictures. The size of a cell is the exact one, in which a browser has fractions
    of a pixel. If it is missing, it is that of the appearance.
    """

    # DCS q
    sixel: NotRequired[bool]
    # OSC 1337 File=
    iterm2: NotRequired[bool]
    # APC G, kitty's graphics
    kitty: NotRequired[bool]
    cell_width: NotRequired[float]
    cell_height: NotRequired[float]


class Principal(TypedDict):
    """A Principal is the identity of a client, as a policy has established it."""

    user: str
    # Workspace selects the visible sessions: those whose label workspace_id is equal. "" selects the sessions without
    # that label.
    workspace: NotRequired[str]
    # which the policy has given the user, for its further decisions
    roles: NotRequired[list[str]]
    # the principal sees the sessions of every workspace
    all: NotRequired[bool]


class ProcessStatus(TypedDict):
    """ProcessStatus is the part of a status that describes the supervisor or a proxy."""

    pid: int
    version: str
    protocol: VersionRange
    instance: str
    # seconds
    uptime: float
    # number of sessions that have not ended
    sessions: int
    # number of proxies of a supervisor, or of clients of a proxy
    clients: int
    # for a supervisor: how often it has executed another program
    upgrades: NotRequired[int]
    # for a supervisor with a keeper
    keeper: NotRequired[KeeperStatus | None]
    # for a supervisor on Linux
    cages: NotRequired[CagesStatus | None]
    # for a supervisor: sessions that it cannot store or read; nil if there is none
    recording: NotRequired[RecordingStatus | None]


class ProgramStatus(TypedDict):
    """ProgramStatus is a report of a program about itself: OSC 7501, the program status protocol, revision 0.2
    (superlogical.com/rex/docs/build/program-status). The program may be any that writes to the terminal, so the
    texts are not to be trusted.
    """

    state: Union[Literal["blocked", "error", "working", "done", "idle"], str]
    # of blocked: permission, question or auth
    kind: NotRequired[str]
    # of the part of the program; "" is the whole
    id: NotRequired[str]
    # name of the program
    app: NotRequired[str]
    # of the work
    title: NotRequired[str]
    # one line, of at most MaxTitle bytes
    message: NotRequired[str]
    # percent
    progress: NotRequired[int | None]
    # when it was reported
    at: str


class Range(TypedDict):
    """Range is a part of a text, in bytes of UTF-8. It begins at Start and ends before End."""

    start: int
    end: int


class RecordingStatus(TypedDict):
    """RecordingStatus describes the sessions that the supervisor cannot store on disk, or cannot read."""

    # number of sessions that cannot be stored
    failing: int
    # why the last of them was not stored, for people; empty if all are stored
    error: str
    # number of lost sessions that are sealed and whose key is not available
    sealed: NotRequired[int]


class Resume(TypedDict):
    """Resume is the position at which an attachment continues: the instance and the output offset."""

    instance: str
    offset: int


class ScreenCell(TypedDict):
    """ScreenCell is one character with its combining characters, or an empty cell."""

    t: str
    # columns; absent: 1
    w: NotRequired[int]
    # index into looks
    l: NotRequired[int]


class ScreenLine(TypedDict):
    """ScreenLine is one row without the empty cells of default style at its end."""

    # the row continues the row above
    wrapped: NotRequired[bool]
    cells: list[ScreenCell]


class ScreenPicture(TypedDict):
    """ScreenPicture is a picture, or a part of one, that covers a rectangle of cells."""

    # index in cells of the first row
    row: int
    # first column
    col: int
    rows: int
    cols: int
    # base64; the last row and column may be incomplete
    png: str


class SessionInfo(TypedDict):
    """SessionInfo describes a session at one moment."""

    id: str
    instance: str
    pid: int
    state: State
    size: Size
    argv: list[str]
    # directory in which the session was started
    cwd: str
    # present directory, if the program has reported it
    current_cwd: NotRequired[str]
    # title of the window, if the program has set it
    title: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    originator: NotRequired[str]
    created_at: str
    # time of the last read, write or resize
    last_io_at: str
    # number of bytes of output so far
    output_offset: int
    # oldest output offset that is still kept
    ring_start: int
    scrollback_lines: int
    # policy that determines the size
    size_policy: NotRequired[Union[Literal["latest", "owner", "smallest", "largest", "fixed"], str]]
    attachments: int
    # the first MaxViewersInfo viewers
    viewers: NotRequired[list[ViewerInfo]]
    # absent while there is a viewer, and if there never was one
    left: NotRequired[Left | None]
    # absent if the shell does not report its commands
    command: NotRequired[CommandInfo | None]
    # secret variables with values that are not masked: shorter than 4 bytes, not set, or too many
    unmasked: NotRequired[list[str]]
    # all processes are stopped until the session is thawed
    frozen: NotRequired[bool]
    # resources in use, in replies to list and info; absent without a cage
    cage: NotRequired[Cage | None]
    # the screen is lost, and only the last output is kept
    degraded: NotRequired[bool]
    # absent until the state is exited
    exit_code: NotRequired[int | None]
    # absent until the state is exited
    exit: NotRequired[ExitRecord | None]
    # absent unless the state is lost
    lost: NotRequired[Lost | None]
    # of the reports that hold, the one that needs a person most; absent if there is none
    program: NotRequired[ProgramStatus | None]
    # absent if the system does not tell, and after the session has ended
    foreground: NotRequired[Foreground | None]


class Size(TypedDict):
    """Size is a terminal's size in character cells."""

    cols: int
    rows: int


class Span(TypedDict):
    """Span is text of one style."""

    t: str
    # index into looks
    l: NotRequired[int]


class Usage(TypedDict):
    """Usage contains the resources used by a child and by those descendants that it waited for."""

    # processor time
    user_ms: int
    # processor time of the kernel for these processes
    system_ms: int
    # largest memory of one of these processes; 0 if it is not known
    max_rss_bytes: int
    minor_faults: int
    # page faults that required a read
    major_faults: int


class VersionRange(TypedDict):
    """A VersionRange contains the protocol versions that one side supports, both ends included."""

    min: int
    max: int


class ViewerInfo(TypedDict):
    """ViewerInfo describes a viewer of a session."""

    # name that the client has given itself
    client: NotRequired[str]
    mode: Mode
    since: str
    # size of the viewer's terminal, if the viewer has sent it
    window: NotRequired[Size]

Code = Union[Literal["already_attached", "bad_frame", "busy", "closed", "exited_early", "frame_too_large", "hello_required", "input_full", "input_gap", "instance_mismatch", "internal", "invalid_argument", "limit_exceeded", "line_too_long", "not_attached", "not_found", "not_stored", "permission_denied", "policy_unavailable", "protocol_mismatch", "pty_exhausted", "session_exists", "session_exited", "session_not_found", "session_running", "spawn_failed", "superseded", "supervisor_unreachable", "task_not_found", "timeout", "unauthorized", "unsupported", "unsupported_os", "upgrade_refused", "upgrading", "workspace_mismatch"], str]

Mode = Union[Literal["shared", "exclusive", "read_only"], str]

Outcome = Union[Literal["natural", "soft", "hard"], str]

Replay = Union[Literal["exact", "snapshot"], str]

State = Union[Literal["starting", "running", "draining", "exited", "lost", "forgotten"], str]


# REPEATABLE tells for each request whether it may be made again if its reply was lost. "never": it must not be. "read",
# "set": it may be, because it changes nothing, or sets a state that a second one sets again. Any other value names a
# field of the request: if that is set, the second request has no second effect.
REPEATABLE: Mapping[str, str] = {
    "appearance": "never",
    "attach": "never",
    "await": "read",
    "away": "read",
    "changes": "read",
    "clear": "set",
    "commands": "read",
    "detach": "never",
    "environment": "read",
    "events": "never",
    "forget": "never",
    "freeze": "set",
    "history": "read",
    "info": "read",
    "input": "writer",
    "interrupt": "never",
    "limit": "set",
    "list": "read",
    "mark": "read",
    "past": "read",
    "ping": "read",
    "rename": "set",
    "reopen": "token",
    "resize": "set",
    "screen": "read",
    "scrollback": "read",
    "search": "read",
    "search_past": "read",
    "share": "read",
    "signal": "never",
    "size_policy": "set",
    "spawn": "token",
    "status": "read",
    "terminal.close": "never",
    "terminal.data": "never",
    "terminal.open": "never",
    "terminal.resize": "never",
    "terminate": "never",
    "ticket": "set",
    "wait": "read",
}
