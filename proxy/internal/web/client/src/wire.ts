// Code generated from protocol/api/schema.json; DO NOT EDIT. To update it, run:
//
//	go test ./protocol/api -update
//
// Each interface whose name ends with Message has the fields of one message of the wire. Numbers of
// 64 bits are plain numbers, because the protocol keeps them below 2^53.

/** A Word has one of the values T, or a value that a newer peer has added. */
export type Word<T extends string> = T | (string & Record<never, never>);

/**
 * Accepted reports the input offset up to which a writer's input was accepted. It is sent to an attachment from time to
 * time, and is the reply to Input.
 */
export interface AcceptedMessage {
  type: 'accepted';
  request_id?: string;
  attachment?: number | null;
  offset: number;
}

/** Appearance reports that the properties of a viewer's terminal have changed. */
export interface AppearanceMessage {
  type: 'appearance';
  request_id?: string;
  attachment: number;
  /** #rrggbb */
  foreground?: string;
  background?: string;
  cursor?: string;
  /** width of a character cell in pixels */
  cell_width?: number;
  cell_height?: number;
  /** name and version of the terminal, as XTVERSION reports them */
  version?: string;
  /** NoGraphemes tells that the terminal does not support mode 2027, grapheme clusters. */
  no_graphemes?: boolean;
  pictures?: Pictures;
}

/**
 * Attach requests an attachment to a session. The client chooses the attachment's number, which must be unused on the
 * connection. The reply is Attached.
 */
export interface AttachMessage {
  type: 'attach';
  request_id?: string;
  attachment: number;
  session_id: string;
  /** 0 for both: leave the session's size unchanged */
  cols?: number;
  rows?: number;
  /** "": shared */
  mode?: Mode;
  steal?: boolean;
  /** with Steal: the client only ends the others, and leaves; stolen tells them so */
  detach?: boolean;
  resume?: Resume;
  /** with Resume: send a snapshot even if the ring has the output */
  snapshot?: boolean;
  /** ScreenOnly, with Snapshot, leaves out the lines above the screen, because the viewer's terminal still has them. */
  screen_only?: boolean;
  /** lines above the screen in a snapshot; absent: DefaultHistory */
  history?: number;
  /** the viewer answers terminal queries of programs */
  answers?: boolean;
  /** writer of the attachment's input; "": a new writer */
  writer?: string;
  /**
   * Attempt must grow with each attach of a writer, so that a late attach that the client has given up does not replace
   * its successor. Microseconds since 1970 are suitable. An attach with 0 is never considered late.
   */
  attempt?: number;
  /**
   * Move counts how often one proxy has handed this attempt to another. Only proxies set it, so that a client may count
   * its attempts as it likes.
   */
  move?: number;
  /** name of the client for people; other viewers see it in stolen */
  client?: string;
  /** TERM of the viewer */
  term?: string;
  /**
   * Env contains those variables of the viewer's environment, as K=V, that programs of the session may want to use,
   * such as the addresses of the ssh agent and of the display.
   */
  env?: string[];
  /** the viewer receives the input of all writers; not allowed with mode read_only */
  typed?: boolean;
  /** the viewer is a terminal */
  is_tty?: boolean;
  /** asterisks replace secrets, for viewers that store or pass on the output; not allowed with view own */
  mask?: boolean;
  /** "": raw; own requires Cols or Rows */
  view?: Word<'raw' | 'own'>;
  /** the child waits for this viewer; requires mode exclusive */
  pace?: boolean;
  /** properties of the viewer's terminal */
  appearance?: Appearance;
  /** send output as terminal.data instead of binary frames */
  text?: boolean;
}

/** Attached is the reply to Attach. The frames of the snapshot follow, if there is one, and then output. */
export interface AttachedMessage {
  type: 'attached';
  request_id?: string;
  attachment: number;
  session: SessionInfo;
  replay: Replay;
  /** offset of the first byte of output that follows */
  offset: number;
  /** bytes of output that were not sent and are no longer kept */
  bytes_missed: number;
  /** size of the snapshot that is sent first */
  snapshot_bytes: number;
  /** the snapshot shows a view of the viewer's own; further views follow */
  view?: boolean;
  /** writer of this attachment's input */
  writer: string;
  /** input offset up to which the writer's input was accepted */
  input_offset: number;
}

/** Await waits for an event on a session's screen. The reply is Awaited, or the error timeout. */
export interface AwaitMessage {
  type: 'await';
  request_id?: string;
  session_id: string;
  /**
   * Text is a regular expression (RE2) of at most MaxPattern bytes. It must match a line on the screen, or a line that
   * has left the screen since the await began. A line is matched as a whole, however it was wrapped, and without the
   * blanks at its end.
   */
  text?: string;
  /** wait until the shell waits for a command */
  prompt?: boolean;
  /** wait until the session has printed nothing for so many milliseconds */
  idle_ms?: number;
  /**
   * Since is a mark, or absent. If it is given, only changes after the mark count: a line must have changed, a prompt
   * must have appeared, and the silence must begin after it.
   */
  since?: string;
  /** absent: no time limit */
  timeout_ms?: number;
}

/** Awaited is the reply to Await. */
export interface AwaitedMessage {
  type: 'awaited';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  /** for text: the line that matches */
  line?: string;
  /** for text: the match, and each group of the expression */
  groups?: string[];
  /** for prompt: the last command */
  command?: CommandInfo | null;
  /** set if the session ended first */
  exit?: ExitRecord | null;
}

/** Away requests the events in a session since its last viewer left. The reply is AwayContent. */
export interface AwayMessage {
  type: 'away';
  request_id?: string;
  session_id: string;
}

/** AwayContent contains these events. */
export interface AwayContentMessage {
  type: 'away_content';
  request_id?: string;
  instance: string;
  /** absent if the session never had a viewer */
  left?: Left | null;
  /** when a viewer attached again; absent while there is none */
  back_at?: string;
  /** bytes of output in that time */
  printed: number;
  bells?: number;
  /** the last MaxAway notifications */
  notifications?: Notification[];
  /** the last MaxAway commands that have ended */
  commands?: CommandInfo[];
  /** number of commands that have ended */
  ended?: number;
}

/** Changes requests the least text that brings a reader of a session up to date. The reply is ChangesContent. */
export interface ChangesMessage {
  type: 'changes';
  request_id?: string;
  session_id: string;
  /** mark of the reader's last reply; absent: the whole screen */
  since?: string;
  /** largest size of lines, rows and commands in the reply; 0: DefaultChangesBytes; at most MaxScreenBytes */
  max_bytes?: number;
}

/** ChangesContent contains the changes since a mark. */
export interface ChangesContentMessage {
  type: 'changes_content';
  request_id?: string;
  /** for Whole; otherwise it is that of the mark */
  instance?: string;
  /** output offset at that moment */
  offset: number;
  /** value for Since of the next request; opaque to clients; base64, at most MaxMark bytes */
  mark: string;
  /** number of the oldest line that is kept */
  first: number;
  /** number of the first line that begins on the screen */
  screen: number;
  /** number after that of the last line */
  next: number;
  /** the session does not know what the reader has from From on */
  whole?: boolean;
  /** for Whole: number of the first line of the reply */
  from?: number;
  /** lines that are new or have changed, the oldest first */
  lines?: ChangedLines[];
  /** the terminal shows the alternate screen */
  alternate?: boolean;
  /** rows of the alternate screen that have changed, from the top */
  rows?: ChangedRows[];
  cursor: Cursor;
  /** set if the title has changed */
  title?: string | null;
  /** set if the size has changed */
  size?: Size | null;
  /** commands that have ended since the mark, the oldest first */
  commands?: ChangedCommand[];
  /** LeftOut tells which lines have changed but had no room. A reader can read them by History. */
  left_out?: LineRange | null;
  /** number of changed rows that had no room */
  left_out_rows?: number;
}

/** Clear deletes the lines above a session's screen, for all viewers. The reply is OK. */
export interface ClearMessage {
  type: 'clear';
  request_id?: string;
  session_id: string;
  /** delete the screen's rows as well, except the row with the cursor, which moves to the top */
  screen?: boolean;
}

/** Commands requests the commands of a session that have ended. The reply is CommandsContent. */
export interface CommandsMessage {
  type: 'commands';
  request_id?: string;
  session_id: string;
}

/** CommandsContent contains the commands that have ended, the oldest first. */
export interface CommandsContentMessage {
  type: 'commands_content';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  /** number of commands that have ended */
  count: number;
  /** the last MaxCommands of them, or fewer if their texts are long */
  commands: CommandInfo[];
}

/** Detach ends an attachment. The session continues. The reply is Detached, also if there is no such attachment. */
export interface DetachMessage {
  type: 'detach';
  request_id?: string;
  attachment: number;
}

/** Detached is the reply to Detach. No further message has the attachment's number. */
export interface DetachedMessage {
  type: 'detached';
  request_id?: string;
  attachment: number;
}

/** Environment requests the environment of the viewer that last sent one. The reply is EnvironmentContent. */
export interface EnvironmentMessage {
  type: 'environment';
  request_id?: string;
  session_id: string;
}

/** EnvironmentContent contains a viewer's environment. */
export interface EnvironmentContentMessage {
  type: 'environment_content';
  request_id?: string;
  /** K=V */
  env: string[];
}

/**
 * Error is the reply to a request that failed. If it has the number of an attachment, it ends the attachment, unless
 * its code is input_full, input_gap, line_too_long or permission_denied. If it has neither an id nor a number, the
 * failed request had no id, or the error is the last message before the proxy closes the connection.
 */
export interface ErrorMessage {
  type: 'error';
  request_id?: string;
  attachment?: number | null;
  code: Code;
  message: string;
  /** for spawn_failed: the reason; for limit_exceeded: invalid_argument if the request itself is too large */
  cause?: Code;
  /** the same request may succeed later */
  retryable?: boolean;
  /** the request should not be repeated before so many milliseconds */
  retry_after_ms?: number;
  /** for exited_early and session_exited */
  exit?: ExitRecord | null;
  /** for input_full, input_gap and line_too_long: the accepted input offset */
  offset?: number | null;
  /** for protocol_mismatch: versions of the side that reports the error */
  local?: VersionRange | null;
  /** for protocol_mismatch: versions of its peer */
  remote?: VersionRange | null;
}

/** Event reports one event. The end of a session is reported by PTYExited instead. */
export interface EventMessage {
  type: 'event';
  seq: number;
  event: Word<'created' | 'exited' | 'forgotten' | 'resized' | 'attached' | 'detached' | 'missed' | 'title' | 'labels' | 'cwd' | 'bell' | 'notification' | 'frozen' | 'thawed' | 'degraded' | 'recording_failed' | 'recording_resumed' | 'output_idle' | 'command_started' | 'command_finished' | 'program_status'>;
  at: string;
  session?: SessionInfo | null;
  /** for event "missed": number of dropped events */
  missed?: number;
  /** for event "notification" */
  notification?: Notification | null;
}

/**
 * Events requests events. If Instance and After are set and Instance is the supervisor's, the events begin after the
 * event with number After. The reply is Subscribed. Event and PTYExited follow until the connection ends.
 */
export interface EventsMessage {
  type: 'events';
  request_id?: string;
  instance?: string;
  after?: number;
}

/** Forget deletes an exited session. The reply is OK. */
export interface ForgetMessage {
  type: 'forget';
  request_id?: string;
  session_id: string;
  /** if set, the session must have this instance */
  instance?: string;
  /** the session has failed after Reopen: restore the instance that Reopen has just replaced */
  restore?: boolean;
}

/**
 * Freeze stops all processes of a session, or continues them. The reply is OK, also if the session is in that state
 * already, or unsupported if the session has no cage.
 */
export interface FreezeMessage {
  type: 'freeze';
  request_id?: string;
  session_id: string;
  /** false: continue the processes */
  frozen: boolean;
}

/**
 * Goaway announces that the proxy is about to close the connection. The client should connect again after RetryAfterMS,
 * and its attachments resume by offset.
 */
export interface GoawayMessage {
  type: 'goaway';
  retry_after_ms: number;
  reason: string;
}

/** Hello is the first message of a connection. The client sends it. */
export interface HelloMessage {
  type: 'hello';
  protocol: VersionRange;
  capabilities?: string[];
  /** name of the client for people and logs, 1 to 256 bytes */
  client: string;
  /** process id of the client */
  pid?: number;
  /** required over TCP */
  token?: string;
  /** required if the proxy has a secret */
  secret?: string;
}

/** History requests lines of a session, the newest first. The reply is HistoryContent. */
export interface HistoryMessage {
  type: 'history';
  request_id?: string;
  session_id: string;
  /** only lines with smaller numbers; absent: the lines above the screen */
  before?: number;
  /** largest number of lines; 0: DefaultHistoryLines */
  lines?: number;
  /**
   * Command selects the output of an ended command instead of the lines above the screen: -1 is the last command, -2
   * the one before it. A positive number is the count of a CommandInfo, which names the same command also after another
   * one has ended.
   */
  command?: number;
}

/** HistoryContent contains lines of a session, the newest first. */
export interface HistoryContentMessage {
  type: 'history_content';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  /** number of the oldest line that is kept */
  first: number;
  /** number of the first line that begins on the screen */
  screen: number;
  /** number after that of the last line */
  next: number;
  lines: HistoryLine[];
  /** styles of the spans; the first is the default */
  looks: Look[];
  /** there are lines that are older than the last of these */
  more?: boolean;
  /**
   * Command is the command whose output was requested. The first and the last line of the output have only the parts
   * that the command has printed.
   */
  command?: CommandInfo | null;
  /** a part of the command's output is missing, because it has left the history or was erased */
  truncated?: boolean;
}

/** Info requests the description of one session. The reply is Session. */
export interface InfoMessage {
  type: 'info';
  request_id?: string;
  session_id: string;
}

/**
 * Input sends input to a session without an attachment. The reply is Accepted, or input_full with the accepted input
 * offset.
 */
export interface InputMessage {
  type: 'input';
  request_id?: string;
  session_id: string;
  data_b64: string;
  /** writer of the input; with Offset, the input is accepted exactly once */
  writer?: string;
  offset?: number;
  /**
   * Paste declares that Data is pasted text. Line ends are then sent as Enter, and the text is enclosed in paste marks
   * if the program has set mode 2004.
   */
  paste?: boolean;
  /**
   * Keys contains names of keys, instead of Data. They are sent as the modes of the terminal require. A name is Enter,
   * Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End, Insert, Delete, PageUp, PageDown, F1 to F12, or
   * one character. The prefixes C-, M- and S- may precede it. Each key counts as one byte of input.
   */
  keys?: string[];
  /**
   * HoldMS requires Writer. Until the writer's next input without it, or for that many milliseconds, the inputs of
   * other writers fail with input_full, so that none of them comes between a text and the keys after it.
   */
  hold_ms?: number;
}

/**
 * Interrupt sends SIGINT to the foreground process group of a terminal. If it has no number of an attachment, it names
 * the session, and the reply is OK.
 */
export interface InterruptMessage {
  type: 'interrupt';
  request_id?: string;
  attachment?: number;
  session_id?: string;
}

/**
 * Limit changes those limits of a running session that it contains. The reply is Session, or unsupported if the session
 * has no cage.
 */
export interface LimitMessage {
  type: 'limit';
  request_id?: string;
  session_id: string;
  limits: Limits;
}

/** List requests all sessions, or those of one originator. The reply is Sessions. */
export interface ListMessage {
  type: 'list';
  request_id?: string;
  originator?: string;
  /** only sessions that have all of these labels */
  labels?: Record<string, string>;
}

/** Mark requests a mark of the session's present position. The reply is Marked. */
export interface MarkMessage {
  type: 'mark';
  request_id?: string;
  session_id: string;
}

/** Marked is the reply to Mark. */
export interface MarkedMessage {
  type: 'marked';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  /** value for AwaitSpec.Since; opaque to clients; base64, at most MaxMark bytes */
  mark: string;
  /**
   * Inclusive is a mark of the same moment that includes the lines on the screen: they match. An await with it is the
   * same as one that began at that moment without a mark, and can be repeated. Empty if the supervisor does not support
   * it.
   */
  inclusive?: string;
}

/** OK is the reply to a request that succeeded and has no result. */
export interface OkMessage {
  type: 'ok';
  request_id?: string;
}

/**
 * Past requests a description of a session's past: the stored range, times, gaps and commands. The reply is
 * PastContent.
 */
export interface PastMessage {
  type: 'past';
  request_id?: string;
  session_id: string;
  /** only times, gaps and commands from this offset on */
  from?: number;
  /** and up to this one; 0: up to the end */
  to?: number;
}

/** PastContent describes the past of a session. */
export interface PastContentMessage {
  type: 'past_content';
  request_id?: string;
  instance: string;
  /** how much of the session is stored on disk */
  mode: Word<'off' | 'screen' | 'full'>;
  start: number;
  end: number;
  /** when the output at Start was printed; absent if that is not known */
  start_at?: string;
  /** when the last output before End was printed */
  end_at?: string;
  /** samples, in ascending order; at most MaxPastTimes */
  times: PastTime[];
  /** the largest ones, in ascending order; at most MaxPastGaps */
  gaps?: PastGap[];
  more_gaps?: boolean;
  /** the last ones, in ascending order; at most MaxPastCommands */
  commands?: PastCommand[];
  more_commands?: boolean;
}

/** Ping lets a client learn whether the other end of a silent connection still answers. The reply is OK. */
export interface PingMessage {
  type: 'ping';
  request_id?: string;
}

/**
 * PTYExited reports the end of a session. A subscriber receives it as an event, with Seq. An attachment receives it as
 * its last message, with its number.
 */
export interface PtyExitedMessage {
  type: 'pty_exited';
  session_id: string;
  /** the label pane_id, or the session's id if there is no such label */
  pane_id: string;
  exit_code: number;
  /** the last 5 lines that are not empty */
  last_lines: string[];
  session_title: string;
  session_description: string;
  parent_agent?: string | null;
  timed_out: boolean;
  reason?: Word<'exited' | 'user_requested' | 'idle_timeout' | 'shutdown' | 'wait_error' | 'lost'>;
  signal?: string;
  outcome?: Outcome;
  instance?: string;
  attachment?: number | null;
  seq?: number;
  exited_at?: string;
}

/**
 * Rename sets the title of a session, its label title, for all clients. An empty title removes the label. The reply is
 * Session.
 */
export interface RenameMessage {
  type: 'rename';
  request_id?: string;
  session_id: string;
  /** at most MaxTitle bytes */
  title: string;
}

/**
 * Reopen starts an exited session again under its id, as a new instance. Absent fields keep their values. The reply is
 * that of Spawn.
 */
export interface ReopenMessage {
  type: 'reopen';
  request_id?: string;
  session_id: string;
  argv?: string[];
  cwd?: string;
  env?: string[];
  cols?: number;
  rows?: number;
  /** {} removes all labels */
  labels?: Record<string, string>;
  limits?: Limits;
  /** KeepScreen shows the lines of the old screen and its history above the new output, with a line between. */
  keep_screen?: boolean;
  early_exit_ms?: number;
  token?: string;
}

/**
 * Resize changes the size of a viewer, if it has the number of an attachment. Otherwise it changes the size of the
 * session SessionID, and the reply is OK.
 */
export interface ResizeMessage {
  type: 'resize';
  request_id?: string;
  attachment?: number;
  session_id?: string;
  cols: number;
  rows: number;
}

/** Resized reports the new size of the session to a viewer. */
export interface ResizedMessage {
  type: 'resized';
  attachment: number;
  cols: number;
  rows: number;
}

/**
 * Resync tells a viewer that it was too slow and that output was skipped. A snapshot follows, and then output from
 * Offset on.
 */
export interface ResyncMessage {
  type: 'resync';
  attachment: number;
  offset: number;
  bytes_missed: number;
  snapshot_bytes: number;
  /** the snapshot shows a view of the viewer's own */
  view?: boolean;
  /** the snapshot has no lines above the screen, and the viewer must keep its own */
  screen_only?: boolean;
}

/**
 * Screen requests a session's screen, also after the session has ended, or the screen at an earlier moment. The reply
 * is ScreenContent.
 */
export interface ScreenMessage {
  type: 'screen';
  request_id?: string;
  session_id: string;
  /** "" is text */
  format?: Word<'text' | 'cells' | 'ansi' | 'state'>;
  /** only the last so many lines; without Scrollback they may begin above the screen */
  lines?: number;
  /** so many lines above the screen in addition; -1: all */
  scrollback?: number;
  /** leave out the last so many of these lines */
  skip?: number;
  /** leave out blank lines */
  non_empty?: boolean;
  /** lay the lines out for a terminal of this width; 0: the session's width */
  cols?: number;
  /** and of this height; 0: the session's height */
  rows?: number;
  /** the screen at an earlier moment; absent: the present one */
  at?: Moment;
  /** with format cells: send the pictures, too */
  pictures?: boolean;
}

/** ScreenContent contains a session's screen, or its last lines. */
export interface ScreenContentMessage {
  type: 'screen_content';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  cols: number;
  rows: number;
  cursor: Cursor;
  title: string;
  /** the terminal shows the alternate screen */
  alternate?: boolean;
  /** what the terminal does with input; absent for an earlier moment, after the end, and if it is not known */
  input?: Word<'line' | 'hidden' | 'keys'>;
  /** for format cells: number of rows that are above the screen */
  above?: number;
  /** for format text */
  lines?: string[];
  /** for format cells */
  cells?: ScreenLine[];
  /** for format cells: styles of the cells; the first is the default */
  looks?: Look[];
  /** for format ansi: lines that end with SGR 0 and a newline */
  ansi?: string;
  /** for format state: base64 */
  state?: string;
  /** Pictures has the pictures that the cells show, if the request asks for them. Text may lie over them. */
  pictures?: ScreenPicture[];
  /** the oldest lines are missing, because one message cannot contain all */
  truncated?: boolean;
  /** if the request has at: when the last output before Offset was printed, if that is known */
  printed_at?: string;
  /** if the request has at: output before Offset is not kept, so the screen may have been another one */
  inexact?: boolean;
}

/** Scrollback requests output of a session from an offset on, as far as it is kept. The reply is ScrollbackData. */
export interface ScrollbackMessage {
  type: 'scrollback';
  request_id?: string;
  session_id: string;
  offset?: number;
  /** largest size of the reply's data; default and maximum 512 KiB */
  max_bytes?: number;
  /** also output that only the store has; the reply then has times and sizes */
  past?: boolean;
}

/** ScrollbackData contains output of a session. */
export interface ScrollbackDataMessage {
  type: 'scrollback_data';
  request_id?: string;
  instance: string;
  /** offset of the first byte; later than requested if the ring no longer has the bytes before */
  offset: number;
  /** number of bytes of output so far */
  end: number;
  /** base64 */
  data_b64: string;
  /** if the request has past: when the data was printed */
  times?: PastTime[];
  /** if the request has past: the size of the terminal at Offset, and its changes up to the end of the data */
  sizes?: PastSize[];
}

/** Search requests the lines that match a pattern. The reply is SearchContent. */
export interface SearchMessage {
  type: 'search';
  request_id?: string;
  session_id: string;
  /** a regular expression in the syntax of RE2 */
  pattern: string;
  ignore_case?: boolean;
  /** only lines with smaller numbers; absent: all lines, including those on the screen */
  before?: number;
  /** largest number of matching lines; 0: DefaultMatches */
  limit?: number;
}

/** SearchContent contains the lines that match, the newest first. */
export interface SearchContentMessage {
  type: 'search_content';
  request_id?: string;
  instance: string;
  /** output offset at that moment */
  offset: number;
  /** number of the oldest line that is kept */
  first: number;
  /** number of the first line that begins on the screen */
  screen: number;
  /** number after that of the last line */
  next: number;
  matches: Match[];
  /** lines with smaller numbers were not searched */
  before: number;
  /** there are such lines; to search them, send this before in another request */
  more?: boolean;
}

/** SearchPast requests the lines of a session's past that match a pattern. The reply is SearchPastContent. */
export interface SearchPastMessage {
  type: 'search_past';
  request_id?: string;
  session_id: string;
  /** a regular expression in the syntax of RE2 */
  pattern: string;
  ignore_case?: boolean;
  /** only lines that begin before this offset; absent: all lines */
  before?: number;
  /** largest number of matching lines; 0: DefaultMatches */
  limit?: number;
}

/** SearchPastContent contains the lines that match, the newest first. */
export interface SearchPastContentMessage {
  type: 'search_past_content';
  request_id?: string;
  instance: string;
  /** offset of the oldest output that is kept */
  start: number;
  /** number of bytes of output so far */
  end: number;
  matches: PastMatch[];
  /** lines that begin before this offset were not searched */
  before: number;
  /** there may be such lines; to search them, send this before in another request */
  more?: boolean;
}

/** Session describes one session. */
export interface SessionMessage {
  type: 'session';
  request_id?: string;
  session: SessionInfo;
}

/** Sessions is the reply to List. If More is set, another Sessions with more sessions follows. */
export interface SessionsMessage {
  type: 'sessions';
  request_id?: string;
  sessions: SessionInfo[];
  more?: boolean;
}

/** Share requests a URL with which a browser can view one session and do nothing else. The reply is Shared. */
export interface ShareMessage {
  type: 'share';
  request_id?: string;
  session_id: string;
  /** validity of the URL; 0: one hour; at most 30 days */
  ttl_ms?: number;
}

/** Shared is the reply to Share. */
export interface SharedMessage {
  type: 'shared';
  request_id?: string;
  url: string;
  expires_at: string;
}

/** Signal sends a signal to the process groups of a session. It has no other effect. The reply is OK. */
export interface SignalMessage {
  type: 'signal';
  request_id?: string;
  session_id: string;
  /** "SIGUSR1", "USR1" or a number */
  signal: string;
}

/** SizePolicy changes the size policy of a session. The reply is OK. */
export interface SizePolicyMessage {
  type: 'size_policy';
  request_id?: string;
  session_id: string;
  policy: Word<'latest' | 'owner' | 'smallest' | 'largest' | 'fixed'>;
  /** for policy fixed; 0: leave the size unchanged */
  cols?: number;
  rows?: number;
}

/**
 * Spawn starts a session and checks that its child does not end at once. The reply is Spawned, or exited_early with the
 * exit record.
 */
export interface SpawnMessage {
  type: 'spawn';
  request_id?: string;
  /** "": Holdfast chooses one */
  session_id?: string;
  /** absent: the login shell, in a spawn of the api; must not be [] */
  argv?: string[];
  /** must be absolute; "": the home directory */
  cwd?: string;
  /** K=V, added to the inherited environment */
  env?: string[];
  clear_inherited_env?: boolean;
  /** 0: 80 */
  cols?: number;
  /** 0: 24 */
  rows?: number;
  originator?: string;
  labels?: Record<string, string>;
  /** 0: the supervisor's default */
  scrollback_lines?: number;
  /** "": latest */
  size_policy?: Word<'latest' | 'owner' | 'smallest' | 'largest' | 'fixed'>;
  /** the error is unsupported if the session cannot have a cage */
  limits?: Limits;
  /** "": the supervisor's setting */
  durable?: Word<'off' | 'screen' | 'full'>;
  /**
   * SecretEnv are names of variables, which may contain *. Their values are masked in what is stored of the session,
   * and in replies that are not the live screen of a viewer.
   */
  secret_env?: string[];
  /**
   * Unattended tells that no viewer will attach at once. Then the first queries of the child do not wait for a viewer
   * to answer them, and a child that prints much does not wait for a viewer to receive it.
   */
  unattended?: boolean;
  /**
   * CellWidth and CellHeight are the size of a character cell of the viewer that will attach, in pixels. If the session
   * received the size with that viewer only, the child would receive SIGWINCH just after its start.
   */
  cell_width?: number;
  cell_height?: number;
  /** duration of the check; in milliseconds; absent: 200; 0: no check */
  early_exit_ms?: number;
  /**
   * Token makes Spawn repeatable after a lost connection, if it is set: if the session exists and was created with the
   * same token, the reply describes it.
   */
  token?: string;
  /**
   * ShellIntegration makes a shell (bash, zsh, fish) report its prompts and commands by OSC 133. It changes no file of
   * the user. It has no effect on other programs.
   */
  shell_integration?: boolean;
}

/** Spawned is the reply to Spawn and Reopen. */
export interface SpawnedMessage {
  type: 'spawned';
  request_id?: string;
  session_id: string;
  pid: number;
  created_at: string;
  session: SessionInfo;
}

/** Status requests the status of the proxy and of the supervisor. The reply is StatusReport. */
export interface StatusMessage {
  type: 'status';
  request_id?: string;
}

/** StatusReport contains the status of the proxy and of the supervisor. */
export interface StatusReportMessage {
  type: 'status_report';
  request_id?: string;
  proxy: ProcessStatus;
  /** absent if the supervisor is unreachable */
  supervisor?: ProcessStatus | null;
  /** TCP address on which the proxy serves WebSockets, if it does */
  web?: string;
}

/** Stolen ends an attachment because another client has attached with steal. */
export interface StolenMessage {
  type: 'stolen';
  attachment: number;
  stolen_by: string;
  /** the other client has only ended this attachment, and leaves */
  detached?: boolean;
}

/** Subscribed is the reply to Events. */
export interface SubscribedMessage {
  type: 'subscribed';
  request_id?: string;
  /** instance of the supervisor */
  instance: string;
  /** number of the last event; the following events have greater numbers */
  seq: number;
}

/** TerminalClose ends a session. */
export interface TerminalCloseMessage {
  type: 'terminal.close';
  session_id: string;
  reason?: Word<'exited' | 'user_requested' | 'idle_timeout' | 'shutdown' | 'wait_error' | 'lost'>;
}

/** TerminalData contains output for a text client, or input from it. */
export interface TerminalDataMessage {
  type: 'terminal.data';
  session_id: string;
  data_b64: string;
}

/** TerminalError is the reply to a terminal message that failed. */
export interface TerminalErrorMessage {
  type: 'terminal.error';
  request_id?: string;
  session_id?: string;
  code: Code;
  message: string;
  cause?: Code;
}

/** TerminalExit reports the end of a session, instead of PTYExited, to a client that has announced CapTerminalExit. */
export interface TerminalExitMessage {
  type: 'terminal.exit';
  session_id: string;
  exit_code: number;
  reason?: Word<'exited' | 'user_requested' | 'idle_timeout' | 'shutdown' | 'wait_error' | 'lost'>;
  attachment?: number | null;
  seq?: number;
  exited_at?: string;
}

/**
 * TerminalOpen starts a session for a task and attaches to it with output as text. The reply is TerminalOpened or
 * TerminalError.
 */
export interface TerminalOpenMessage {
  type: 'terminal.open';
  request_id?: string;
  task_id: string;
  workspace_id: string;
  user_id?: string;
  cols?: number;
  rows?: number;
}

/** TerminalOpened is the reply to TerminalOpen. */
export interface TerminalOpenedMessage {
  type: 'terminal.opened';
  request_id?: string;
  session_id: string;
  work_dir: string;
  shell: string;
}

/** TerminalResize contains the new size of a text client's view. */
export interface TerminalResizeMessage {
  type: 'terminal.resize';
  session_id: string;
  cols: number;
  rows: number;
}

/**
 * Terminate ends a session: the soft signal, the grace, and then SIGKILL. The reply is OK when the end has been
 * scheduled.
 */
export interface TerminateMessage {
  type: 'terminate';
  request_id?: string;
  session_id: string;
  /** if set, the session must have this instance */
  instance?: string;
  /** absent: 250 */
  grace_ms?: number;
  /** "": SIGHUP */
  soft_signal?: string;
  /** "": user_requested */
  reason?: Word<'exited' | 'user_requested' | 'idle_timeout' | 'shutdown' | 'wait_error' | 'lost'>;
  /**
   * All ends every process of the session's cage, also processes without the terminal, and also after the session has
   * exited. Without a cage the error is unsupported.
   */
  all?: boolean;
}

/** Ticket requests a ticket for one WebSocket over TCP. The reply is TicketIssued. */
export interface TicketMessage {
  type: 'ticket';
  request_id?: string;
  /** if set, the ticket is valid only for the raw WebSocket of this session */
  session_id?: string;
}

/** TicketIssued contains a ticket, which is valid for one connection. */
export interface TicketIssuedMessage {
  type: 'ticket_issued';
  request_id?: string;
  ticket: string;
  expires_at: string;
}

/** Typed sends the input of all writers to an attachment that has requested it. */
export interface TypedMessage {
  type: 'typed';
  attachment: number;
  at: string;
  /** output offset when the input arrived */
  offset: number;
  data_b64: string;
  /** the terminal does not echo the input, so each character is replaced by an asterisk */
  masked?: boolean;
}

/**
 * Vouch precedes Hello. The agent of a host sends it for a client of a gate that has a policy: the gate has established
 * who the client is. It has no reply. A proxy of an older release refuses the connection.
 */
export interface VouchMessage {
  type: 'vouch';
  /** of the proxy, which proves that the agent runs as its user */
  token: string;
  principal: Principal;
}

/** Wait waits for the end of a session. The reply is Waited, or the error timeout. */
export interface WaitMessage {
  type: 'wait';
  request_id?: string;
  session_id: string;
  /** if set, the session must have this instance */
  instance?: string;
  /** absent: no time limit */
  timeout_ms?: number;
}

/** Waited is the reply to Wait. */
export interface WaitedMessage {
  type: 'waited';
  request_id?: string;
  session_id: string;
  instance: string;
  exit: ExitRecord;
}

/** Welcome is the reply to Hello. */
export interface WelcomeMessage {
  type: 'welcome';
  protocol: VersionRange;
  agreed: number;
  capabilities?: string[];
  pid: number;
  version: string;
  instance: string;
}

/**
 * Appearance contains properties of a terminal that programs may query. An empty field means that the value is unknown.
 */
export interface Appearance {
  /** #rrggbb */
  foreground?: string;
  background?: string;
  cursor?: string;
  /** width of a character cell in pixels */
  cell_width?: number;
  cell_height?: number;
  /** name and version of the terminal, as XTVERSION reports them */
  version?: string;
  /** NoGraphemes tells that the terminal does not support mode 2027, grapheme clusters. */
  no_graphemes?: boolean;
  pictures?: Pictures;
}

/**
 * A Cage contains the kernel's counters of a session's control group. A counter is absent if the kernel does not
 * provide it.
 */
export interface Cage {
  limits?: Limits;
  /** memory in use now, including cached files */
  memory_bytes?: number;
  /** largest MemoryBytes so far */
  memory_peak_bytes?: number;
  /** processes and threads now */
  pids?: number;
  pids_peak?: number;
  /** processor time of all processes that ever ran in the group */
  user_ms: number;
  /** processor time of the kernel for these processes */
  system_ms: number;
  /** how often the session ran out of memory at its own limit */
  ooms?: number;
  /** processes that the kernel killed because of memory, at a limit of the session or of the machine */
  oom_kills?: number;
  /** the last killed processes, as "hog (pid 12)", if the kernel's log is readable; at most MaxOOMKilled */
  oom_killed?: string[];
  /** forks that failed at pids_max */
  pids_denied?: number;
}

/** A CagesStatus tells whether new sessions get cages, and which cages of ended sessions still contain processes. */
export interface CagesStatus {
  /** the control group above the cages; "" if sessions get none */
  dir?: string;
  /** controllers by which sessions can be limited: memory, pids and cpu */
  controllers?: string[];
  /** why sessions get no cages or no limits, and how to change that */
  off?: string;
  /** cages of ended sessions in which processes still run; at most MaxCagesLeft */
  left?: string[];
}

/** ChangedCommand is a command that has ended. */
export interface ChangedCommand {
  /** number of the command, for HistorySpec.Command */
  count: number;
  /** at most 256 bytes */
  line?: string;
  /** if the shell has reported it */
  exit_code?: number | null;
  duration_ms: number;
}

/** ChangedLines are the texts of consecutive lines, each without the blanks at its end. */
export interface ChangedLines {
  /** number of the first line */
  n: number;
  t: string[];
  /** there is one text, and the line is longer */
  cut?: boolean;
}

/** ChangedRows are the texts of consecutive rows of the alternate screen, each without the blanks at its end. */
export interface ChangedRows {
  /** the first row, from 0 */
  y: number;
  t: string[];
}

/**
 * CommandInfo describes the commands of a session's shell, as the shell reports them by OSC 133 (FinalTerm's marks).
 * The shell integration prints these marks.
 */
export interface CommandInfo {
  /** the shell waits for a command */
  prompt: boolean;
  /** the running or last command, if the shell has reported it; at most MaxTitle bytes */
  line?: string;
  /** start of the running or last command */
  started_at?: string;
  /** end of the last command; zero while it runs */
  finished_at?: string;
  /** exit code of the last command that has ended, if the shell has reported it */
  exit_code?: number | null;
  /** number of commands that have ended */
  count: number;
  /** directory in which the running or last command was started, if the shell has reported it */
  cwd?: string;
  /** place of its output; absent if its start is unknown */
  output?: CommandOutput | null;
}

/** CommandOutput is the place of a command's output: in the output of the session, and in its lines. */
export interface CommandOutput {
  /** output offset behind the mark of the command's start */
  start: number;
  /** output offset of the mark of the command's end; 0 while the command runs */
  end?: number;
  /** place of the first character */
  from: LinePlace;
  /** place behind the last character; zero while the command runs */
  to?: LinePlace;
  /**
   * Erased tells that a program has erased the screen, and with it a part of the output. From and To then enclose the
   * lines that were not erased.
   */
  erased?: boolean;
}

/** Cursor is the position of the next character, counted from 0. */
export interface Cursor {
  x: number;
  y: number;
  hidden?: boolean;
}

/** An ExitRecord tells how a session's child ended. */
export interface ExitRecord {
  /** 0 to 255; 128+n after signal n; -1: unknown */
  exit_code: number;
  /** such as "SIGTERM", if a signal ended the child */
  signal?: string;
  outcome: Outcome;
  reason: Word<'exited' | 'user_requested' | 'idle_timeout' | 'shutdown' | 'wait_error' | 'lost'>;
  timed_out: boolean;
  /** the last lines that are not empty, at most LastLines */
  last_lines: string[];
  /** the last lines, at most TailLines */
  tail: string[];
  started_at: string;
  exited_at: string;
  /** pids of processes that no signal has ended */
  survivors?: number[];
  /** name of the client that requested the end or sent the signal */
  ended_by?: string;
  /** user of that client, if a policy tells it */
  ended_by_user?: string;
  /** working directory of the child when it was last read */
  cwd?: string;
  /** set if the child was killed because of a lack of memory */
  oom?: Word<'kernel_log' | 'cgroup'>;
  core_dumped?: boolean;
  usage?: Usage;
  /** resources that all processes of the session used, and the limits that they reached */
  cage?: Cage | null;
}

/**
 * Foreground describes the process that has a session's terminal at the time of the request. The proxy adds it; the
 * link never carries it.
 */
export interface Foreground {
  /** leader of the terminal's foreground process group */
  pid: number;
  /** name of the process, which the process itself can choose */
  name?: string;
  /** working directory of the process */
  cwd?: string;
  /** the session's child has children of its own; false if that is not known */
  children?: boolean;
  /** the session's child is stopped; SIGCONT continues it */
  stopped?: boolean;
  /** in a reply to info: a process of the group waits in a read of the terminal; false if that is not known */
  reads?: boolean;
}

/** HistoryLine is one line without the blanks of default style at its end. */
export interface HistoryLine {
  line: number;
  spans: Span[];
  /** the line is longer than its text here */
  cut?: boolean;
  /** the end of the line is on the screen, so the line may grow */
  open?: boolean;
}

/** KeeperStatus describes the keeper of a supervisor. */
export interface KeeperStatus {
  pid: number;
  /** number of sessions in its vault, including exited ones */
  sessions: number;
  /** number of supervisors that it has started, including this one */
  starts: number;
  /** how the previous supervisor ended, for people */
  last?: string;
  /** number of keepers that have died while this supervisor ran */
  lost?: number;
}

/**
 * Left tells when a session's last viewer left, and the position of the session at that time. A viewer that may not
 * write does not count.
 */
export interface Left {
  at: string;
  /** output offset at that time */
  offset: number;
  /** number of the first line that was incomplete at that time, as history numbers lines */
  line: number;
}

/**
 * Limits are the limits of the resources of all processes of a session together. If a field is absent, the limit stays
 * as it is; at the start of a session the settings' default applies. A zero removes the limit. A session can have
 * limits only if it has a cage, which is a control group of its own.
 */
export interface Limits {
  /** bytes; if the session needs more, the kernel kills one of its processes */
  memory_max?: number;
  /** bytes; if the session needs more, the kernel slows it down and reclaims memory */
  memory_high?: number;
  /** processes and threads; a fork beyond the limit fails */
  pids_max?: number;
  /** thousandths of a processor: 1500 is one and a half */
  cpu_max?: number;
  /** share against other sessions if processors are scarce, 1 to 10000; the kernel's default is 100 */
  cpu_weight?: number;
}

/** LinePlace is a place in the text of a line. */
export interface LinePlace {
  line: number;
  /** number of bytes of the text before the place; the blanks at the end of a text may be missing */
  byte?: number;
}

/** LineRange is a range of lines. It begins at First and ends before End. */
export interface LineRange {
  first: number;
  end: number;
}

/** Look is the style of a cell. A colour is "" for the default, a number from 0 to 255 of the palette, or #rrggbb. */
export interface Look {
  fg?: string;
  bg?: string;
  bold?: boolean;
  dim?: boolean;
  italic?: boolean;
  blink?: boolean;
  inverse?: boolean;
  invisible?: boolean;
  strike?: boolean;
  overline?: boolean;
  underline?: Word<'single' | 'double' | 'curly' | 'dotted' | 'dashed'>;
  underline_color?: string;
  /** the URI of OSC 8, unchanged */
  link?: string;
}

/** Lost describes the remains of a session after its machine has lost power. */
export interface Lost {
  /** the screen is the one at this output offset */
  offset: number;
  /** when the session was stored last */
  seen_at: string;
  /** directory in which the child was then */
  cwd: string;
}

/** Match is a line that matches. */
export interface Match {
  line: number;
  text: string;
  /** the first matches in the text */
  ranges: Range[];
  /** the line is longer than its text here, and the remainder was not searched */
  cut?: boolean;
}

/** A Moment names a place in the output of a session. Exactly one field must be set. */
export interface Moment {
  /** after so many bytes of output */
  offset?: number;
  /** after the output that was printed up to this time */
  time?: string;
  /** so many milliseconds before the request; 0: the end of the output */
  ago_ms?: number;
  /**
   * Command is negative and counts the commands of the shell that have ended: -1 is the end of the last one, -2 that of
   * the one before.
   */
  command?: number;
}

/** Notification is a message of a program to its user. */
export interface Notification {
  title?: string;
  body: string;
}

/** PastCommand is a command of the session's shell that has ended. */
export interface PastCommand {
  /** if the shell has reported it; at most MaxTitle bytes */
  line?: string;
  /** the directory that the shell has reported last */
  cwd?: string;
  /** offset at which the command began */
  start: number;
  /** offset at which it ended */
  end: number;
  started_at: string;
  finished_at: string;
  /** if the shell has reported it */
  exit_code?: number | null;
}

/** PastGap is a range of output that is not kept. */
export interface PastGap {
  from: number;
  to: number;
}

/** PastMatch is a line of output that matches. */
export interface PastMatch {
  /** output offset of the line's first character */
  offset: number;
  /** when that was printed, to a tenth of a second; absent if that is not known */
  at?: string;
  /** the line without escape sequences, at most MaxLineBytes */
  text: string;
  /** the first matches in the text */
  ranges: Range[];
}

/** PastSize is the size that the terminal had from an offset on. */
export interface PastSize {
  offset: number;
  cols: number;
  rows: number;
}

/** PastTime tells when output was printed. */
export interface PastTime {
  offset: number;
  /** the output from Offset on was printed at this time, or later */
  at: string;
}

/**
 * Pictures tells in which forms a viewer's terminal shows pictures. A viewer that has sent an appearance receives the
 * bytes of no other pictures. The size of a cell is the exact one, in which a browser has fractions of a pixel. If it
 * is missing, it is that of the appearance.
 */
export interface Pictures {
  /** DCS q */
  sixel?: boolean;
  /** OSC 1337 File= */
  iterm2?: boolean;
  /** APC G, kitty's graphics */
  kitty?: boolean;
  cell_width?: number;
  cell_height?: number;
}

/** A Principal is the identity of a client, as a policy has established it. */
export interface Principal {
  user: string;
  /**
   * Workspace selects the visible sessions: those whose label workspace_id is equal. "" selects the sessions without
   * that label.
   */
  workspace?: string;
  /** which the policy has given the user, for its further decisions */
  roles?: string[];
  /** the principal sees the sessions of every workspace */
  all?: boolean;
}

/** ProcessStatus is the part of a status that describes the supervisor or a proxy. */
export interface ProcessStatus {
  pid: number;
  version: string;
  protocol: VersionRange;
  instance: string;
  /** seconds */
  uptime: number;
  /** number of sessions that have not ended */
  sessions: number;
  /** number of proxies of a supervisor, or of clients of a proxy */
  clients: number;
  /** for a supervisor: how often it has executed another program */
  upgrades?: number;
  /** for a supervisor with a keeper */
  keeper?: KeeperStatus | null;
  /** for a supervisor on Linux */
  cages?: CagesStatus | null;
  /** for a supervisor: sessions that it cannot store or read; nil if there is none */
  recording?: RecordingStatus | null;
}

/**
 * ProgramStatus is a report of a program about itself: OSC 7501, the program status protocol, revision 0.2
 * (superlogical.com/rex/docs/build/program-status). The program may be any that writes to the terminal, so the texts
 * are not to be trusted.
 */
export interface ProgramStatus {
  state: Word<'blocked' | 'error' | 'working' | 'done' | 'idle'>;
  /** of blocked: permission, question or auth */
  kind?: string;
  /** of the part of the program; "" is the whole */
  id?: string;
  /** name of the program */
  app?: string;
  /** of the work */
  title?: string;
  /** one line, of at most MaxTitle bytes */
  message?: string;
  /** percent */
  progress?: number | null;
  /** when it was reported */
  at: string;
}

/** Range is a part of a text, in bytes of UTF-8. It begins at Start and ends before End. */
export interface Range {
  start: number;
  end: number;
}

/** RecordingStatus describes the sessions that the supervisor cannot store on disk, or cannot read. */
export interface RecordingStatus {
  /** number of sessions that cannot be stored */
  failing: number;
  /** why the last of them was not stored, for people; empty if all are stored */
  error: string;
  /** number of lost sessions that are sealed and whose key is not available */
  sealed?: number;
}

/** Resume is the position at which an attachment continues: the instance and the output offset. */
export interface Resume {
  instance: string;
  offset: number;
}

/** ScreenCell is one character with its combining characters, or an empty cell. */
export interface ScreenCell {
  t: string;
  /** columns; absent: 1 */
  w?: number;
  /** index into looks */
  l?: number;
}

/** ScreenLine is one row without the empty cells of default style at its end. */
export interface ScreenLine {
  /** the row continues the row above */
  wrapped?: boolean;
  cells: ScreenCell[];
}

/** ScreenPicture is a picture, or a part of one, that covers a rectangle of cells. */
export interface ScreenPicture {
  /** index in cells of the first row */
  row: number;
  /** first column */
  col: number;
  rows: number;
  cols: number;
  /** base64; the last row and column may be incomplete */
  png: string;
}

/** SessionInfo describes a session at one moment. */
export interface SessionInfo {
  id: string;
  instance: string;
  pid: number;
  state: State;
  size: Size;
  argv: string[];
  /** directory in which the session was started */
  cwd: string;
  /** present directory, if the program has reported it */
  current_cwd?: string;
  /** title of the window, if the program has set it */
  title?: string;
  labels?: Record<string, string>;
  originator?: string;
  created_at: string;
  /** time of the last read, write or resize */
  last_io_at: string;
  /** number of bytes of output so far */
  output_offset: number;
  /** oldest output offset that is still kept */
  ring_start: number;
  scrollback_lines: number;
  /** policy that determines the size */
  size_policy?: Word<'latest' | 'owner' | 'smallest' | 'largest' | 'fixed'>;
  attachments: number;
  /** the first MaxViewersInfo viewers */
  viewers?: ViewerInfo[];
  /** absent while there is a viewer, and if there never was one */
  left?: Left | null;
  /** absent if the shell does not report its commands */
  command?: CommandInfo | null;
  /** secret variables with values that are not masked: shorter than 4 bytes, not set, or too many */
  unmasked?: string[];
  /** all processes are stopped until the session is thawed */
  frozen?: boolean;
  /** resources in use, in replies to list and info; absent without a cage */
  cage?: Cage | null;
  /** the screen is lost, and only the last output is kept */
  degraded?: boolean;
  /** absent until the state is exited */
  exit_code?: number | null;
  /** absent until the state is exited */
  exit?: ExitRecord | null;
  /** absent unless the state is lost */
  lost?: Lost | null;
  /** of the reports that hold, the one that needs a person most; absent if there is none */
  program?: ProgramStatus | null;
  /** absent if the system does not tell, and after the session has ended */
  foreground?: Foreground | null;
}

/** Size is a terminal's size in character cells. */
export interface Size {
  cols: number;
  rows: number;
}

/** Span is text of one style. */
export interface Span {
  t: string;
  /** index into looks */
  l?: number;
}

/** Usage contains the resources used by a child and by those descendants that it waited for. */
export interface Usage {
  /** processor time */
  user_ms: number;
  /** processor time of the kernel for these processes */
  system_ms: number;
  /** largest memory of one of these processes; 0 if it is not known */
  max_rss_bytes: number;
  minor_faults: number;
  /** page faults that required a read */
  major_faults: number;
}

/** A VersionRange contains the protocol versions that one side supports, both ends included. */
export interface VersionRange {
  min: number;
  max: number;
}

/** ViewerInfo describes a viewer of a session. */
export interface ViewerInfo {
  /** name that the client has given itself */
  client?: string;
  mode: Mode;
  since: string;
  /** size of the viewer's terminal, if the viewer has sent it */
  window?: Size;
}

export type Code = Word<'already_attached' | 'bad_frame' | 'busy' | 'closed' | 'exited_early' | 'frame_too_large' | 'hello_required' | 'input_full' | 'input_gap' | 'instance_mismatch' | 'internal' | 'invalid_argument' | 'limit_exceeded' | 'line_too_long' | 'not_attached' | 'not_found' | 'not_stored' | 'permission_denied' | 'policy_unavailable' | 'protocol_mismatch' | 'pty_exhausted' | 'session_exists' | 'session_exited' | 'session_not_found' | 'session_running' | 'spawn_failed' | 'superseded' | 'supervisor_unreachable' | 'task_not_found' | 'timeout' | 'unauthorized' | 'unsupported' | 'unsupported_os' | 'upgrade_refused' | 'upgrading' | 'workspace_mismatch'>;

export type Mode = Word<'shared' | 'exclusive' | 'read_only'>;

export type Outcome = Word<'natural' | 'soft' | 'hard'>;

export type Replay = Word<'exact' | 'snapshot'>;

export type State = Word<'starting' | 'running' | 'draining' | 'exited' | 'lost' | 'forgotten'>;

/**
 * REPEATABLE tells for each request whether it may be made again if its reply was lost. "never": it must not be.
 * "read", "set": it may be, because it changes nothing, or sets a state that a second one sets again. Any other value
 * names a field of the request: if that is set, the second request has no second effect.
 */
export const REPEATABLE: Readonly<Record<string, string>> = {
  appearance: 'never',
  attach: 'never',
  await: 'read',
  away: 'read',
  changes: 'read',
  clear: 'set',
  commands: 'read',
  detach: 'never',
  environment: 'read',
  events: 'never',
  forget: 'never',
  freeze: 'set',
  history: 'read',
  info: 'read',
  input: 'writer',
  interrupt: 'never',
  limit: 'set',
  list: 'read',
  mark: 'read',
  past: 'read',
  ping: 'read',
  rename: 'set',
  reopen: 'token',
  resize: 'set',
  screen: 'read',
  scrollback: 'read',
  search: 'read',
  search_past: 'read',
  share: 'read',
  signal: 'never',
  size_policy: 'set',
  spawn: 'token',
  status: 'read',
  'terminal.close': 'never',
  'terminal.data': 'never',
  'terminal.open': 'never',
  'terminal.resize': 'never',
  terminate: 'never',
  ticket: 'set',
  wait: 'read',
};
