"""Attachments: views of sessions."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Deque, Literal, Optional, Tuple, Union, cast

from . import frames
from .connection import Connection, Dialer, Room, retry_after
from .errors import HoldfastError, as_error, closed, late
from .input import InputBuffer
from .message import Message, data, error_of, exit_of_record, flag, going_away, integer, member, text, utf8, wrong
from .position import Position
from .wire import AppearanceSpec, AttachSpec, PtyExitedMessage, Resume, SessionInfo

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Type

    from typing_extensions import Unpack

State = Literal["connected", "reconnecting", "closed"]

#: Bytes of output that may wait for the caller. If there are more, the client reads no more.
OUTPUT_WINDOW = 1 << 20
#: Bytes that each waiting event counts in addition to its data.
EVENT_BYTES = 256
#: Bytes of input that may wait to be accepted. If there are more, write waits.
INPUT_WINDOW = 1 << 20
DETACH_S = 1.0
RETRY_FULL_S = 0.02
MAX_COLS, MAX_ROWS = 2000, 1000
#: Pixels of the widest and of the highest cell.
MAX_CELL = 1024

#: The number of each attachment. A connection carries one attachment, so that a slow caller delays no other attachment.
NUMBER = 1


@dataclass(frozen=True)
class Output:
    """Output of the session. `offset` is the offset of its first byte."""

    offset: int
    data: bytes


@dataclass(frozen=True)
class Resync:
    """A snapshot follows, which replaces the output before it: empty the terminal first.

    `bytes_missed` is the number of bytes of output that the caller does not receive: a gap, if it is not 0. If
    `screen_only` is set, empty only the screen and keep the lines above it. If `view` is set, the snapshot shows the
    viewer's own view. A Resync is the first event of an attachment, unless it has resumed.
    """

    offset: int
    bytes_missed: int
    snapshot_bytes: int
    screen_only: bool
    view: bool


@dataclass(frozen=True)
class Snapshot:
    """A piece of the snapshot for an offset: write it to the terminal like output. `left` bytes of it follow."""

    offset: int
    data: bytes
    left: int


@dataclass(frozen=True)
class View:
    """With `view="own"`: bytes that update the viewer's view to an offset. Write them to the terminal like output."""

    offset: int
    data: bytes


@dataclass(frozen=True)
class Resized:
    """The session has this size from this point of the output on. Not with `view="own"`."""

    cols: int
    rows: int


@dataclass(frozen=True)
class Typed:
    """With `typed=True`: input of any writer at an output offset. If `masked` is set, asterisks replace it."""

    at: str
    offset: int
    data: bytes
    masked: bool


@dataclass(frozen=True)
class InputFull:
    """The program does not read its input. The client keeps the input, and sends it when the program reads again."""


@dataclass(frozen=True)
class Warned:
    """An error that does not end the attachment: `line_too_long` or `permission_denied`."""

    error: HoldfastError


@dataclass(frozen=True)
class StateChanged:
    """The connection was lost (`reconnecting`), or there is one again (`connected`)."""

    state: State


@dataclass(frozen=True)
class Stolen:
    """Another client attached with steal, which has ended this attachment. It is the last event."""

    by: str
    #: The other client has only ended this attachment, and leaves.
    detached: bool = False


@dataclass(frozen=True)
class Exit:
    """The session has ended. It is the last event."""

    exit_code: int
    #: All that the proxy tells about the end.
    info: PtyExitedMessage


Event = Union[Output, Snapshot, View, Resync, Resized, Typed, InputFull, Warned, StateChanged, Stolen, Exit]

_attempts = 0


def attempt() -> int:
    """Return the number of an attach. Numbers grow with the time, so that those of a later program are greater."""
    global _attempts
    _attempts = max(_attempts + 1, time.time_ns() // 1000)
    return _attempts


class Attachment:
    """A view of a session: an asynchronous iterator of its events.

    If its connection is lost, the attachment resumes at its offsets on another connection, so that each byte arrives
    once in both directions. The iterator ends after Exit and Stolen, and after detach. It raises the error that ends
    the attachment for any other reason.

    The caller must iterate: if 1 MiB of output waits for it, the client reads no more. The session continues
    nevertheless, and a snapshot replaces output that it no longer has.
    """

    def __init__(self, dialer: Dialer, session_id: str, spec: AttachSpec, ended: Callable[[Attachment], None]) -> None:
        self._dialer = dialer
        self._id = session_id
        self._spec = cast(AttachSpec, {"writer": secrets.token_hex(8), **spec})
        if self._is_read_only:
            self._spec["answers"] = False
        self._ended = ended

        self._session: Optional[SessionInfo] = None
        self._state: State = "reconnecting"
        self._conn: Optional[Connection] = None  # while attached over it
        self._timer: asyncio.TimerHandle  # ends a connection on which the attach or input is not answered
        self._is_watched = False  # the timer waits until input is accepted
        self._is_late = False  # the next attach has no attempt
        self._is_full = False  # the session's input queue was full, so no input is sent until a timer ends
        self._is_leaving = False  # detach was called, so that output is discarded
        self._why: Optional[HoldfastError] = None  # the reason for the end of the attachment
        self._raised: Optional[HoldfastError] = None  # the part of it that the iterator raises

        self._position = Position()
        self._shown = 0  # the position behind the last event that the caller has received
        self._events: Deque[Tuple[Event, int, int]] = deque()  # with the position behind each, and its cost
        self._room = Room(OUTPUT_WINDOW)
        self._arrived = asyncio.Event()

        self._input = InputBuffer()
        self._accepted = asyncio.Event()
        self._writing = asyncio.Lock()
        self._size: Optional[Tuple[int, int]] = None  # to be sent
        self._unconfirmed: Optional[Tuple[int, int]] = None  # the size that was sent last, until the proxy confirms it
        self._resizes = 0  # the number of sizes that were sent, which identifies the last one
        self._looks: Optional[AppearanceSpec] = None  # to be sent
        self._is_reshaped = False  # the own view had another size when it was last shown

        loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[None] = loop.create_future()
        self._detached = asyncio.Event()
        self._task = loop.create_task(self._run())

    async def _open(self) -> None:
        """Wait until the session is attached. Errors: the reason why it cannot be."""
        try:
            await self._attached
        except BaseException:
            await self._stop(closed())
            raise

    # What the caller may ask.

    @property
    def session(self) -> SessionInfo:
        """The session as it was at the last attach. Its size is the present one."""
        return cast(SessionInfo, self._session)

    @property
    def state(self) -> State:
        return self._state

    @property
    def offset(self) -> int:
        """Another attachment can resume at this offset. While a snapshot is incomplete, it is the one before it."""
        return self._shown

    @property
    def resume(self) -> Resume:
        """The position at which another attachment can resume, with `writer`. After a View, resume with `snapshot`."""
        return {"instance": self._position.instance, "offset": self._shown}

    @property
    def writer(self) -> str:
        """The name under which the input is sent."""
        return self._spec["writer"]

    # Events.

    def __aiter__(self) -> Attachment:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._raised is not None:
                raise self._raised
            if self._why is not None:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        event, self._shown, cost = self._events.popleft()
        self._room.remove(cost)
        return event

    def _say(self, event: Event, n: int = 0) -> None:
        if self._is_leaving:
            return
        self._events.append((event, self._position.stored, n + EVENT_BYTES))
        self._room.add(n + EVENT_BYTES)
        self._arrived.set()

    def _set_state(self, state: State) -> None:
        if self._state != state:
            was_open, self._state = self._attached.done(), state
            if was_open and state != "closed":
                self._say(StateChanged(state))

    # Connections.

    async def _run(self) -> None:
        """Attach on one connection after another until the attachment ends."""
        try:
            await self._serve_all()
        except Exception as err:
            self._fail(as_error(err))

    async def _serve_all(self) -> None:
        times = self._dialer.times
        deadline = time.monotonic() + times.give_up
        wait = times.min
        while True:
            before = self._progress
            try:
                why = await self._serve(await self._dialer.redial(None if self._session else deadline - time.monotonic()))
            except HoldfastError as err:
                why = err
            if self._why is not None:
                return
            again = why.code == "superseded" and not self._is_late and self._progress == before
            self._is_late = again  # an earlier attempt has a greater number because the clock was set back
            if self._session is None:
                if not again and (not why.is_lost or time.monotonic() > deadline):
                    raise why
            elif not again and not why.is_lost and not why.retryable:
                raise why
            self._set_state("reconnecting")
            await self._room.wait()
            await asyncio.sleep(retry_after(why))
            # If a proxy accepts and closes connections again and again, the waits grow.
            if self._progress != before:
                wait = times.min
            elif not again:
                await asyncio.sleep(wait)
                wait = min(2 * wait, times.max)

    @property
    def _progress(self) -> int:
        """The number of bytes that were transferred in both directions."""
        return self._position.had + self._input.base

    async def _serve(self, conn: Connection) -> HoldfastError:
        """Attach on a connection, and return the reason for its end."""
        answer = self._dialer.times.answer
        self._timer = asyncio.get_running_loop().call_later(answer, conn.expire, late(answer, True))
        try:
            spec = self._spec if self._session is None else self._position.resume(self._spec, self._is_reshaped)
            m: Message = {"type": "attach", "attachment": NUMBER, "session_id": self._id, "client": self._dialer.client, **spec}
            if not self._is_late:
                m["attempt"] = attempt()
            conn.send(m)
            while self._why is None:
                await self._room.wait()
                received = await conn.receive()
                if isinstance(received, dict):
                    self._receive(conn, received, spec)
                else:
                    self._receive_data(*received)
            return self._why
        except Exception as err:
            return as_error(err)
        finally:
            self._timer.cancel()
            self._is_watched = False
            self._conn = None
            conn.close()

    def _receive(self, conn: Connection, m: Message, spec: AttachSpec) -> None:
        """Process a message. An error that it raises ends the connection."""
        kind = m["type"]
        if kind == "goaway":
            raise going_away(m)
        if m.get("attachment", NUMBER) not in (NUMBER, None):
            return
        if kind == "error":
            return self._receive_error(error_of(m))
        if kind == "attached":
            return self._begin(conn, m, spec)
        if self._conn is None:
            return
        if kind == "accepted":
            self._input.accepted(integer(m, "offset"))
            self._accepted.set()
            self._send_pending()
        elif kind == "ok":
            if m.get("request_id") == f"size-{self._resizes}":
                self._unconfirmed = None
            self._send_pending()  # a later size may have waited for room
        elif kind == "detached":
            self._detached.set()
        elif kind == "resync":
            self._position.resync(m)
            self._say_resync(m, flag(m, "screen_only"))
            self._is_reshaped = False
        elif kind == "resized":
            size = self.session["size"]
            size["cols"], size["rows"] = integer(m, "cols"), integer(m, "rows")
            self._say(Resized(size["cols"], size["rows"]))
        elif kind == "typed":
            self._say(Typed(text(m, "at"), integer(m, "offset"), data(m, "data_b64"), flag(m, "masked")), len(m["data_b64"]))
        elif kind == "stolen":
            by, detached = text(m, "stolen_by"), flag(m, "detached")
            self._say(Stolen(by, detached))
            how = "has detached this one" if detached else "attached in this one's place"
            self._end(HoldfastError("stolen", f"another client {how}: {by}"))
        elif kind == "pty_exited":
            self._exit(cast(PtyExitedMessage, {"last_lines": [], "session_title": "", "session_description": "", "timed_out": False, **m, "exit_code": integer(m, "exit_code")}))

    def _begin(self, conn: Connection, m: Message, spec: AttachSpec) -> None:
        session = cast(SessionInfo, member(m, "session"))
        instance = text(cast(Message, session), "instance")
        size = member(cast(Message, session), "size")
        if instance == "" or not isinstance(size.get("cols"), int) or not isinstance(size.get("rows"), int):
            raise wrong(m, "session")
        old, self._session, self._conn = self._session, session, conn
        self._timer.cancel()
        own = self._spec.get("view") == "own"
        self._is_reshaped = own and (self._spec.get("cols"), self._spec.get("rows")) != (spec.get("cols"), spec.get("rows"))
        self._position.attached(m, instance, spec.get("resume"))
        self._input.resume(integer(m, "input_offset"), old is None)
        self._accepted.set()
        self._size = self._size or self._unconfirmed  # an attach that resumes does not change the size of the session
        self._is_late = False
        if old is None:
            self._shown = self._position.stored
            self._spec["steal"] = False  # a client that steals the session during an interruption keeps it
        self._set_state("connected")
        if not self._attached.done():
            self._attached.set_result(None)
        if old is not None and not own and old["size"] != session["size"]:
            self._say(Resized(session["size"]["cols"], session["size"]["rows"]))
        if m.get("replay") == "snapshot":
            self._say_resync(m, old is not None and spec.get("screen_only", False))
        self._send_pending()
        if self._is_leaving:  # the connection that was to carry the detach is lost
            self._send_detach(conn)

    def _say_resync(self, m: Message, screen_only: bool) -> None:
        self._say(Resync(integer(m, "offset"), integer(m, "bytes_missed"), integer(m, "snapshot_bytes"), screen_only, flag(m, "view")))

    def _receive_data(self, kind: int, attachment: int, offset: int, piece: bytes) -> None:
        if attachment != NUMBER or self._conn is None or self._is_leaving:
            return
        if kind == frames.OUTPUT:
            self._position.output(offset, len(piece))
            self._say(Output(offset, piece), len(piece))
        elif kind == frames.SNAPSHOT:
            left = self._position.snapshot(len(piece))
            self._say(Snapshot(offset, piece, left), len(piece))
        else:
            self._position.viewed(offset)
            self._say(View(offset, piece), len(piece))

    def _receive_error(self, err: HoldfastError) -> None:
        """Send input again from the accepted offset, or raise an error that ends the connection."""
        if self._conn is not None and err.code in ("input_gap", "input_full"):
            if err.offset is None:
                return
            self._input.resume(err.offset, False)
            self._accepted.set()
            if err.code == "input_gap":
                return self._send_pending()
            self._say(InputFull())
            if not self._is_full:  # otherwise an answer to an earlier part of the input has set the timer
                self._is_full = True
                asyncio.get_running_loop().call_later(RETRY_FULL_S, self._retry)
            return
        if self._conn is not None and err.code in ("line_too_long", "permission_denied"):
            return self._say(Warned(err))
        raise err

    # The end.

    def _exit(self, info: PtyExitedMessage) -> None:
        self._say(Exit(info["exit_code"], info))
        self._end(HoldfastError("session_exited", f"the session has ended with {info['exit_code']}"))

    def _fail(self, err: HoldfastError) -> None:
        if self._why is not None:
            return
        if not self._attached.done():
            self._attached.set_exception(err)
        elif err.code == "session_exited" and err.exit is not None:
            # The last output is gone, so the exit record is all that is left of the end.
            return self._exit(exit_of_record(err.exit, self._id, self._position.instance))
        else:
            self._raised = err
        self._end(err)

    def _end(self, why: HoldfastError) -> None:
        if self._why is not None:
            return
        self._why = why
        self._set_state("closed")
        if not self._attached.done():
            self._attached.set_exception(why)
            self._attached.exception()  # the caller may have given up
        self._room.open()
        for event in (self._arrived, self._accepted, self._detached):
            event.set()
        self._ended(self)

    async def _stop(self, why: HoldfastError) -> None:
        self._end(why)
        self._task.cancel()
        await asyncio.wait([self._task])

    # Input.

    @property
    def _is_read_only(self) -> bool:
        return self._spec.get("mode") == "read_only"

    async def write(self, data: Union[str, bytes]) -> None:
        """Send input. Return when the client has stored it; it arrives once, also if the proxy is replaced.

        While 1 MiB of earlier input waits to be accepted, write waits. If it is cancelled, a part of the data may have
        been sent. Errors: `permission_denied` if the attachment is read-only, `invalid_argument` if a text is not UTF-8, and
        the reason if it has ended.
        """
        if self._is_read_only:
            raise HoldfastError("permission_denied", "a read-only attachment cannot send input")
        rest = memoryview(utf8(data) if isinstance(data, str) else data)
        async with self._writing:
            while rest:
                await self._wait_for_input(INPUT_WINDOW - 1)
                self._check_open()
                part = rest[: INPUT_WINDOW - len(self._input)]
                self._input.add(bytes(part))
                rest = rest[len(part) :]
                self._send_pending()

    async def flush(self) -> None:
        """Wait until all written input was accepted. Errors: the reason if the attachment ends first."""
        await self._wait_for_input(0)

    async def _wait_for_input(self, most: int) -> None:
        """Wait until at most so many bytes of input wait to be accepted. Errors: the reason if the attachment ends first.

        The input may have ended the session, so an end after its acceptance is no error.
        """
        while len(self._input) > most:
            self._check_open()
            self._accepted.clear()
            await self._accepted.wait()

    def _check_open(self) -> None:
        """Raise the reason if the attachment takes no more input."""
        if self._why is not None or self._is_leaving:
            raise self._why or closed()

    def _retry(self) -> None:
        """Send input again that the session did not accept, because its queue was full."""
        self._is_full = False
        self._send_pending()

    def _send_pending(self) -> None:
        """Send the size and the input that were not sent on this connection yet. Input waits if the session's queue was full just now."""
        conn = self._conn
        if conn is None or self._why is not None:
            return
        if self._size is not None and not conn.is_full:
            self._resizes += 1
            conn.send({"type": "resize", "request_id": f"size-{self._resizes}", "attachment": NUMBER, "cols": self._size[0], "rows": self._size[1]})
            self._size, self._unconfirmed = None, self._size
        if self._looks is not None and not conn.is_full:
            conn.send({"type": "appearance", "attachment": NUMBER, **self._looks})
            self._looks = None
        while not conn.is_full and not self._is_full:
            part = self._input.next()
            if part is None:
                break
            conn.send_input(NUMBER, *part)
        self._watch()

    def _watch(self) -> None:
        """End the connection if nothing arrives on it although input waits to be accepted."""
        if not self._is_watched and len(self._input) > 0:
            self._is_watched = True
            self._timer = asyncio.get_running_loop().call_later(self._dialer.times.answer, self._check_input, Connection.received)

    def _check_input(self, since: int) -> None:
        self._is_watched = False
        if len(self._input) > 0 and not self._expire_if_silent(since):
            self._watch()

    def _expire_if_silent(self, since: int) -> bool:
        """End the connection if it has received nothing, unless it is not read because the caller is slow."""
        return self._conn is not None and not self._room.is_full and self._conn.expire_if_silent(since)

    def resize(self, cols: int, rows: int) -> None:
        """Send this viewer's size, or store it until there is a connection again. 0 columns are 80, 0 rows are 24.

        Errors: `invalid_argument` if a number is negative or not whole. The proxy would refuse a number that is not whole as
        well, but that would end the attachment.
        """
        if not all(isinstance(n, int) and n >= 0 for n in (cols, rows)):
            raise HoldfastError("invalid_argument", f"columns and rows must be whole numbers from 0, but they are {cols!r} and {rows!r}")
        cols, rows = min(cols or 80, MAX_COLS), min(rows or 24, MAX_ROWS)
        if self._spec.get("view") == "own" and (cols, rows) != (self._spec.get("cols"), self._spec.get("rows")):
            self._is_reshaped = True
        self._spec["cols"], self._spec["rows"] = cols, rows  # for the next connection
        self._size = (cols, rows)
        self._send_pending()

    def set_appearance(self, **looks: Unpack[AppearanceSpec]) -> None:
        """Send the properties of this viewer's terminal, which replace all earlier ones.

        Errors: `invalid_argument` if a colour is not `#rrggbb`, or a size of a cell no number of pixels. The proxy would
        refuse it as well, but that would end the attachment.
        """
        for colour in (looks.get("foreground"), looks.get("background"), looks.get("cursor")):
            if colour and not re.fullmatch("#[0-9A-Fa-f]{6}", colour):
                raise HoldfastError("invalid_argument", f"a colour must be #rrggbb, but it is {colour!r}")
        for pixels in (looks.get("cell_width", 0), looks.get("cell_height", 0)):
            if not isinstance(pixels, int) or not 0 <= pixels <= MAX_CELL:
                raise HoldfastError("invalid_argument", f"cell_width and cell_height must be whole numbers up to {MAX_CELL}")
        self._spec["appearance"] = looks
        self._looks = looks
        self._send_pending()

    def interrupt(self) -> None:
        """Send SIGINT to the foreground process group, after the input before it. It needs a connection."""
        if self._conn is not None and not self._conn.is_full:
            self._conn.send({"type": "interrupt", "attachment": NUMBER})

    async def detach(self) -> None:
        """End the attachment; the session continues. If there is a connection, the written input is sent first."""
        if self._is_leaving:  # the other call ends the attachment when its input was sent
            await asyncio.wait([self._task])
            return
        try:
            if self._why is None:
                await self._leave()
        finally:
            await self._stop(closed())

    async def _leave(self) -> None:
        self._is_full = False
        self._send_pending()
        self._is_leaving = True
        self._events.clear()
        self._room.open()  # the reply is behind output that is discarded
        if self._conn is None:
            return
        self._send_detach(self._conn)
        # The reply confirms that the input before it was passed on. If the connection were closed at once, that input
        # could be lost.
        try:
            await asyncio.wait_for(self._detached.wait(), DETACH_S)
        except asyncio.TimeoutError:
            pass

    def _send_detach(self, conn: Connection) -> None:
        conn.send({"type": "detach", "attachment": NUMBER})

    async def __aenter__(self) -> Attachment:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], err: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.detach()
