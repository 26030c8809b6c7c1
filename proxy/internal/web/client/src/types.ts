// The public types. Requests and replies are those of wire.ts, which is made from the protocol's
// schema, without the fields that the client sets and reads itself. Names are those on the wire;
// protocol/SPEC.md describes the messages.

import type {
  AttachMessage, AwaitMessage, AwaitedMessage, AwayContentMessage, ChangesContentMessage, ChangesMessage, CommandsContentMessage, EventMessage, HistoryContentMessage, HistoryMessage, MarkedMessage, Notification,
  PastContentMessage, PastMessage,
  PtyExitedMessage, ReopenMessage, ScreenContentMessage, ScreenMessage, SearchContentMessage, SearchMessage, SearchPastContentMessage, SearchPastMessage, SessionInfo, SharedMessage, SizePolicyMessage,
  SpawnMessage, SpawnedMessage, StatusReportMessage, TicketIssuedMessage, WelcomeMessage,
  PastSize, PastTime,
} from './wire.js';

export type {
  Appearance, Cage, CagesStatus, ChangedCommand, ChangedLines, ChangedRows, CommandInfo, CommandOutput, Cursor, ExitRecord, Foreground, HistoryLine, KeeperStatus, Left, Limits, LinePlace, LineRange, Look, Match, Mode, Moment, Notification, Pictures,
  Outcome, PastCommand, PastGap, PastMatch, PastSize, PastTime, ProcessStatus, ProgramStatus, Resume, ScreenCell, ScreenLine, SessionInfo, Size, Span, State, Usage, VersionRange, ViewerInfo, Word,
} from './wire.js';

/** The fields of a message besides those that the client sets and reads itself. */
type Body<M, More extends keyof M = never> = Omit<M, 'type' | 'request_id' | More>;

export type EventKind = EventMessage['event'];
export type Labels = Record<string, string>;
export type SizePolicy = SizePolicyMessage['policy'];
export type View = 'raw' | 'own';

export interface SpawnSpec extends Body<SpawnMessage> {}

export interface ReopenSpec extends Body<ReopenMessage, 'session_id'> {}
export interface Spawned extends Body<SpawnedMessage> {}

export interface ScreenSpec extends Body<ScreenMessage> {}
export interface ScreenContent extends Body<ScreenContentMessage> {}
export interface HistorySpec extends Body<HistoryMessage> {}
export interface HistoryContent extends Body<HistoryContentMessage> {}
export interface ChangesSpec extends Body<ChangesMessage> {}
export interface Changes extends Body<ChangesContentMessage> {}
export interface Commands extends Body<CommandsContentMessage> {}
export interface SearchSpec extends Body<SearchMessage> {}
export interface SearchContent extends Body<SearchContentMessage> {}
export interface PastSpec extends Body<PastMessage> {}
export interface PastSearchSpec extends Body<SearchPastMessage> {}
export interface PastSearchContent extends Body<SearchPastContentMessage> {}
export interface PastContent extends Body<PastContentMessage> {}

/** Output of a session: `offset` is the offset of the first byte of `data`, and `end` the number of bytes of output so far. */
export interface ScrollbackData { instance: string; offset: number; end: number; data: Uint8Array }

/** Output of a session's past, with the times at which it was printed, and the sizes of the terminal. */
export interface PastOutput extends ScrollbackData { times: PastTime[]; sizes: PastSize[] }

/** A position of a session: `mark` is for `since` of `await`. */
export interface Marked extends Body<MarkedMessage> {}

/** An await must have exactly one of `text` (RE2), `prompt` and `idle_ms`. */
export interface AwaitSpec extends Body<AwaitMessage> {}

/** The result of an await. `exit` is set if the session ended first. */
export interface Awaited extends Body<AwaitedMessage> {}

export interface Away extends Body<AwayContentMessage> {}
export interface Shared extends Body<SharedMessage> {}
export interface Status extends Body<StatusReportMessage> {}
export interface Ticket extends Body<TicketIssuedMessage> {}
export interface Welcome extends Body<WelcomeMessage> {}

/** The end of a session, as the message `pty_exited` reports it. Older proxies set fewer fields. */
export interface ExitInfo extends Body<PtyExitedMessage, 'attachment' | 'seq'> {}

/** An event of a session. The event `exited` has `exit`, and no `session`. */
export interface HoldfastEvent {
  seq: number;
  event: EventKind;
  at?: string;
  session?: SessionInfo;
  exit?: ExitInfo;
  /** For the event `missed`: the number of events that this subscriber has lost. `list` returns the present sessions. */
  missed?: number;
  notification?: Notification;
}

/** Input of a writer of the session. If `masked` is set, the terminal did not echo it, and each character is replaced by an asterisk. */
export interface Typed { at: string; offset: number; data: Uint8Array; masked: boolean }

/** The options of an attachment. If all are absent, the mode is shared and the session's size does not change. */
export interface AttachSpec extends Body<AttachMessage, 'attachment' | 'session_id' | 'attempt' | 'move' | 'client' | 'text' | 'view'> {
  /** own: the screen, reflowed to cols and rows, although the session has another size. */
  view?: View;
}
