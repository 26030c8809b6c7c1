// What the api's messages carry, by protocol/SPEC.md; names are those on the wire.
//
// Offsets and other numbers of 64 bits are plain numbers: the protocol keeps them
// below 2^53. Words may be added by a newer proxy, so they are told apart from
// strings in name alone.

/** A word of the protocol, or a newer one. */
export type Word<T extends string> = T | (string & Record<never, never>);

export type State = Word<'starting' | 'running' | 'draining' | 'exited' | 'forgotten'>;
export type Mode = Word<'shared' | 'exclusive' | 'read_only'>;
export type View = 'raw' | 'own';
export type SizePolicy = Word<'latest' | 'owner' | 'smallest' | 'largest' | 'fixed'>;
export type EventKind = Word<
  | 'created' | 'exited' | 'forgotten' | 'resized' | 'attached' | 'detached' | 'missed' | 'title' | 'labels' | 'cwd' | 'bell'
  | 'notification' | 'degraded' | 'output_idle' | 'command_started' | 'command_finished' | 'frozen' | 'thawed'
>;
export type Labels = Record<string, string>;

export interface Size { cols: number; rows: number }

/** The process that a session's terminal serves, as the system tells. */
export interface Foreground {
  pid: number;
  name?: string;
  cwd?: string;
  /** The session's own program has children; false where that is not known. */
  children?: boolean;
  /** The session's own program is stopped. */
  stopped?: boolean;
}

/** Who looks at a session. */
export interface ViewerInfo { client?: string; mode: Mode; since: string; window?: Size }

/** When the last viewer went that could type. */
export interface Left { at: string; offset: number; line: number }

/** What a shell says of the commands that it runs (OSC 133). */
export interface CommandInfo {
  prompt: boolean;
  line?: string;
  started_at?: string;
  finished_at?: string;
  exit_code?: number | null;
  count: number;
}

export interface Usage {
  user_ms: number;
  system_ms: number;
  max_rss_bytes: number;
  minor_faults: number;
  major_faults: number;
}

/** What all processes of a session may use together; an absent limit is as it was, 0 is none. */
export interface Limits {
  /** Bytes. */
  memory_max?: number;
  /** Bytes. */
  memory_high?: number;
  pids_max?: number;
  /** Thousandths of one processor. */
  cpu_max?: number;
  /** 1 to 10000. */
  cpu_weight?: number;
}

/** What the kernel counts for a session's control group. */
export interface Cage {
  limits?: Limits;
  memory_bytes?: number;
  memory_peak_bytes?: number;
  pids?: number;
  pids_peak?: number;
  user_ms: number;
  system_ms: number;
  ooms?: number;
  oom_kills?: number;
  oom_killed?: string[];
  pids_denied?: number;
}

export interface ExitRecord {
  /** 0 to 255; 128+n after signal n; -1 unknown. */
  exit_code: number;
  signal?: string;
  outcome: Word<'natural' | 'soft' | 'hard'>;
  reason: string;
  timed_out: boolean;
  last_lines: string[];
  tail: string[];
  started_at: string;
  exited_at: string;
  survivors?: number[];
  ended_by?: string;
  ended_by_user?: string;
  cwd?: string;
  oom?: string;
  core_dumped?: boolean;
  usage?: Usage;
  cage?: Cage | null;
}

export interface SessionInfo {
  id: string;
  instance: string;
  pid: number;
  state: State;
  size: Size;
  argv: string[];
  cwd: string;
  current_cwd?: string;
  title?: string;
  labels?: Labels;
  originator?: string;
  created_at: string;
  last_io_at: string;
  output_offset: number;
  ring_start: number;
  scrollback_lines: number;
  size_policy?: SizePolicy;
  attachments: number;
  viewers?: ViewerInfo[];
  left?: Left | null;
  command?: CommandInfo | null;
  frozen?: boolean;
  /** In answers to list and info alone. */
  cage?: Cage | null;
  foreground?: Foreground | null;
  degraded?: boolean;
  exit_code?: number | null;
  exit?: ExitRecord | null;
}

export interface SpawnSpec {
  /** Absent makes one. */
  session_id?: string;
  /** Absent is the login shell; an empty one is refused. */
  argv?: string[];
  cwd?: string;
  env?: string[];
  clear_inherited_env?: boolean;
  cols?: number;
  rows?: number;
  originator?: string;
  labels?: Labels;
  scrollback_lines?: number;
  size_policy?: SizePolicy;
  /** `unsupported` if it can have no control group of its own. */
  limits?: Limits;
  /** How long to watch for an early end, ms; absent is 200, 0 does not watch. */
  early_exit_ms?: number;
  /** Absent makes one, so that a lost connection starts no second session. */
  token?: string;
  shell_integration?: boolean;
}

/** What is not given is as it was. */
export interface ReopenSpec {
  argv?: string[];
  cwd?: string;
  env?: string[];
  cols?: number;
  rows?: number;
  labels?: Labels;
  limits?: Limits;
  early_exit_ms?: number;
  token?: string;
}

export interface Spawned { session_id: string; pid: number; created_at: string; session: SessionInfo }

export interface ScreenSpec {
  session_id: string;
  format?: Word<'text' | 'cells' | 'ansi'>;
  lines?: number;
  scrollback?: number;
  skip?: number;
  non_empty?: boolean;
  cols?: number;
  rows?: number;
}

export interface Cursor { x: number; y: number; hidden?: boolean }
export interface ScreenCell { t: string; w?: number; l?: number }
export interface ScreenLine { wrapped?: boolean; cells: ScreenCell[] }

/** A colour is absent for the default, a number of the palette as a string, or `#rrggbb`. */
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
  /** What OSC 8 gave, as it came: look at its scheme before you let anybody click. */
  link?: string;
}

export interface ScreenContent {
  instance: string;
  offset: number;
  cols: number;
  rows: number;
  cursor: Cursor;
  title: string;
  alternate?: boolean;
  above?: number;
  lines?: string[];
  cells?: ScreenLine[];
  looks?: Look[];
  ansi?: string;
  truncated?: boolean;
}

export interface HistorySpec { session_id: string; before?: number; lines?: number }
export interface Span { t: string; l?: number }
export interface HistoryLine { line: number; spans: Span[]; cut?: boolean; open?: boolean }
export interface HistoryContent {
  instance: string;
  offset: number;
  first: number;
  screen: number;
  next: number;
  lines: HistoryLine[];
  looks: Look[];
  more?: boolean;
}

export interface SearchSpec { session_id: string; pattern: string; ignore_case?: boolean; before?: number; limit?: number }
export interface Match { line: number; text: string; ranges: { start: number; end: number }[]; cut?: boolean }
export interface SearchContent {
  instance: string;
  offset: number;
  first: number;
  screen: number;
  next: number;
  matches: Match[];
  before: number;
  more?: boolean;
}

/** Bytes that a session printed; end is how many there were so far. */
export interface ScrollbackData { instance: string; offset: number; end: number; data: Uint8Array }

/** Where a session is: `mark` is for `since` of await. */
export interface Marked { instance: string; offset: number; mark: string }

/** One of text (RE2), prompt and idle_ms. */
export interface AwaitSpec {
  session_id: string;
  text?: string;
  prompt?: boolean;
  idle_ms?: number;
  since?: string;
  timeout_ms?: number;
}

/** How an await ended: `exit` says that the session did so first. */
export interface Awaited {
  instance: string;
  offset: number;
  line?: string;
  groups?: string[];
  command?: CommandInfo | null;
  exit?: ExitRecord | null;
}

export interface Notification { title?: string; body: string }

export interface Away {
  instance: string;
  left?: Left | null;
  back_at?: string;
  printed: number;
  bells?: number;
  notifications?: Notification[];
  commands?: CommandInfo[];
  ended?: number;
}

export interface Shared { url: string; expires_at: string }

export interface ProcessStatus {
  pid: number;
  version: string;
  protocol: VersionRange;
  instance: string;
  uptime: number;
  sessions: number;
  clients: number;
  upgrades?: number;
  keeper?: { pid: number; sessions: number; starts: number; last?: string; lost?: number } | null;
  cages?: { dir?: string; controllers?: string[]; off?: string; left?: string[] } | null;
}

export interface VersionRange { min: number; max: number }

/** supervisor is absent where it cannot be reached. */
export interface Status { proxy: ProcessStatus; supervisor?: ProcessStatus | null; web?: string }

export interface Ticket { ticket: string; expires_at: string }

export interface Welcome {
  protocol: VersionRange;
  agreed: number;
  capabilities?: string[];
  pid: number;
  version: string;
  instance: string;
}

/** How a session ended, as `pty_exited` tells it; an older proxy tells less. */
export interface ExitInfo {
  session_id: string;
  pane_id: string;
  exit_code: number;
  last_lines: string[];
  session_title: string;
  session_description: string;
  parent_agent?: string | null;
  timed_out: boolean;
  reason?: string;
  signal?: string;
  outcome?: string;
  instance?: string;
}

/** Something that happened. The end of a session has `exit` and no `session`. */
export interface HoldfastEvent {
  seq: number;
  event: EventKind;
  at?: string;
  session?: SessionInfo;
  exit?: ExitInfo;
  /** Of `missed`: so many events are lost to this subscriber; `list` tells what there is. */
  missed?: number;
  notification?: Notification;
}

/** What programs may ask a terminal about itself. */
export interface Appearance {
  foreground?: string;
  background?: string;
  cursor?: string;
  cell_width?: number;
  cell_height?: number;
  version?: string;
  no_graphemes?: boolean;
}

/** Where to go on: in the life `instance`, with the byte at `offset`. */
export interface Resume { instance: string; offset: number }

/** What was typed, by whomever. */
export interface Typed { at: string; offset: number; data: Uint8Array; masked: boolean }

/** How to view a session. The empty one shares it and leaves its size as it is. */
export interface AttachSpec {
  cols?: number;
  rows?: number;
  mode?: Mode;
  steal?: boolean;
  resume?: Resume;
  /** With resume: a snapshot even where output could go on. */
  snapshot?: boolean;
  screen_only?: boolean;
  /** Lines above the screen in a snapshot; absent is 1000. */
  history?: number;
  /** What shows the output answers what programs ask a terminal, as xterm.js does. */
  answers?: boolean;
  /** Keep it with resume, so that input goes on as well. */
  writer?: string;
  term?: string;
  env?: string[];
  typed?: boolean;
  is_tty?: boolean;
  /** own: the screen reflowed to cols and rows, while the session's size is another. */
  view?: View;
  pace?: boolean;
  appearance?: Appearance;
}
