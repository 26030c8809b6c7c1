import { Attachment } from './attachment.js';
import { fromBase64, toBase64, token } from './base64.js';
import { closed, Connection, Dialer, goingAway, MAX_TIMER_MS, retryAfter } from './dialer.js';
import type { ConnectOptions } from './dialer.js';
import { asError, HoldfastError, late, lost } from './errors.js';
import { Emitter } from './events.js';
import { errorOf, int, object, str, wrong } from './message.js';
import type { Message } from './message.js';
import { pause } from './pause.js';
import { EventStream } from './subscription.js';
import type { Subscription } from './subscription.js';
import type {
  AttachSpec, Away, Awaited, AwaitSpec, Changes, ChangesSpec, Commands, ExitRecord, HistoryContent, HistorySpec, HoldfastEvent, Labels, Limits, Marked, PastContent, PastOutput, PastSearchContent, PastSearchSpec, PastSpec, ReopenSpec, ScreenContent, ScreenSpec,
  ScrollbackData, SearchContent, SearchSpec, SessionInfo, Shared, SizePolicy, Spawned, SpawnSpec, Status, Ticket, Welcome,
} from './types.js';
import { REPEATABLE } from './wire.js';

export type { Subscription } from './subscription.js';

/** `reconnecting`: the connection was lost, and the client is making another. */
export type ClientState = 'connected' | 'reconnecting' | 'closed';

export type ClientEvents = {
  state: (state: ClientState) => void;
  /** An event of any session. The client subscribes when the first listener is added. */
  event: (event: HoldfastEvent) => void;
  /** The proxy is about to end. The client reconnects by itself. */
  goaway: (what: { retryAfterMs: number; reason: string }) => void;
  /** A connection could not be made, or the proxy refuses to send events. The client tries again while `state` is not `closed`. */
  error: (err: HoldfastError) => void;
};

export interface KillOptions {
  /** The session must have this instance; otherwise it continues, and the error is `instance_mismatch`. */
  instance?: string;
  /** Milliseconds between the soft signal and SIGKILL; absent: 250. */
  graceMs?: number;
  /** Absent: SIGHUP. */
  softSignal?: string;
  reason?: string;
  /** End also processes that have left the terminal. Without a control group the error is `unsupported`. */
  all?: boolean;
}

export interface ListOptions {
  /** Only sessions of this originator. */
  originator?: string;
  /** Only sessions that have all of these labels with these values. */
  labels?: Labels;
}

export interface WaitOptions {
  /** Absent: no time limit. */
  timeoutMs?: number;
}

/** Bytes of input, and keys, in one request. */
const INPUT_BYTES = 256 << 10;
const MAX_KEYS = 256;
/** Messages in the reply to one request. */
const MAX_PARTS = 256;
/** Requests that may wait for a reply. */
const MAX_REQUESTS = 4096;
const RETRY_MS = 20;
/**
 * The longest time that an answer may take after the time limit of a wait, which the supervisor measures. It suffices for
 * the replacement of both processes.
 */
const ANSWER_MS = 4000;

// mayRepeat reports whether a request may be made again if its reply was lost.
function mayRepeat(m: Message): boolean {
  const repeatable = REPEATABLE[m.type];
  return repeatable === 'read' || repeatable === 'set' || (repeatable !== undefined && Boolean(m[repeatable]));
}

// replyTo returns the first message of a reply, which must have the given type.
function replyTo(m: Message, type: string, parts: Message[]): Message {
  const got = parts[0] as Message;
  if (got.type !== type) throw new HoldfastError('decode', `${m.type} answered by ${got.type}`);
  return got;
}

// utf8 returns the bytes of a text. TextEncoder would replace half of a surrogate pair by another character.
function utf8(text: string): Uint8Array {
  if (/\p{Surrogate}/u.test(text)) throw new HoldfastError('invalid_argument', 'a text with half of a surrogate pair cannot be passed');
  return new TextEncoder().encode(text);
}

// acceptedTo returns the offset up to which the proxy has accepted input. It must have accepted some of the input, because
// otherwise the client would send it without an end, and not more than there is.
function acceptedTo(offset: number, from: number, to: number): number {
  if (offset <= from || offset > to) throw new HoldfastError('decode', `input from ${from} to ${to} answered by accepted ${offset}`);
  return offset;
}

interface Waiting {
  conn: Connection; // that carries the request
  parts: Message[];
  done(parts: Message[]): void;
  failed(err: HoldfastError): void;
}

/**
 * A HoldfastClient is connected to a proxy and later to its successors. All requests share one connection; each
 * attachment and subscription has one of its own. If the connection is lost during a request, the client repeats the
 * request, unless it must not be repeated.
 */
export class HoldfastClient {
  private now: ClientState = 'connected';
  private readonly events = new Emitter<ClientEvents>();
  private readonly stop = new AbortController();
  private readonly dialer: Dialer;
  private conn: Connection | undefined;
  private last: HoldfastError | undefined; // the reason why there is no connection
  private fault: HoldfastError | undefined; // the error with which the proxy is about to close the connection
  private welcomed: Welcome | undefined;
  private servedAt = 0; // when conn began to serve
  private answered = false; // conn has answered a request
  private pauseMs = 0; // before the next connection
  private readonly waiting = new Map<string, Waiting>();
  private readonly dialing = new Set<() => void>(); // callbacks of requests that wait for a connection
  private readonly attachments = new Set<Attachment>();
  private readonly streams = new Set<EventStream>();
  private listening: EventStream | undefined; // the subscription for listeners of `event`
  private requests = 0;

  private constructor(private readonly options: ConnectOptions) {
    this.dialer = new Dialer(options);
    this.dialer.failed = (err) => void this.events.emit('error', err);
  }

  /**
   * connect connects to a proxy. Errors: `connect` if no proxy can be reached, the error with which the proxy refuses
   * the hello (`unauthorized`, `protocol_mismatch`), and `lost`.
   */
  static async connect(options: ConnectOptions): Promise<HoldfastClient> {
    const c = new HoldfastClient(options);
    const deadline = Date.now() + c.dialer.giveUp;
    for (let wait = c.dialer.min; ; wait = Math.min(2 * wait, c.dialer.max)) {
      try {
        c.serve(await c.dialer.dial(c.stop.signal));
        return c;
      } catch (err) {
        const why = asError(err);
        // If no proxy can be reached, waiting may never help. A proxy that announces its end has a successor.
        if (why.code === 'connect' || !why.retryable || Date.now() > deadline) throw why;
        await pause(Math.max(wait, retryAfter(why)), c.stop.signal);
      }
    }
  }

  get state(): ClientState {
    return this.now;
  }

  /** The proxy's welcome on the last connection. */
  get welcome(): Welcome {
    return this.welcomed as Welcome;
  }

  on<K extends keyof ClientEvents>(event: K, fn: ClientEvents[K]): () => void {
    const off = this.events.on(event, fn);
    if (event === 'event') void this.listen();
    return () => {
      off();
      if (event === 'event' && this.events.count('event') === 0) {
        this.listening?.close();
        this.listening = undefined;
      }
    };
  }

  // listen emits `event` while there are listeners. If the proxy refuses the subscription, listen subscribes again after a
  // wait, because a policy may permit it later.
  private async listen(): Promise<void> {
    if (this.listening !== undefined) return;
    while (this.now !== 'closed') {
      const stream = (this.listening = this.subscribe() as EventStream);
      try {
        for await (const event of stream) this.events.emit('event', event);
        return; // the last listener was removed, or the client was closed
      } catch (err) {
        const why = asError(err);
        this.events.emit('error', why);
        await pause(Math.max(this.dialer.max, retryAfter(why)), this.stop.signal);
      }
      if (this.listening !== stream) return; // the last listener was removed meanwhile
    }
  }

  private setState(state: ClientState): void {
    if (this.now === state) return;
    this.now = state;
    this.events.emit('state', state);
  }

  // serve uses a connection until it is lost.
  private serve(conn: Connection): void {
    if (this.now === 'closed') return conn.close();
    this.conn = conn;
    this.fault = undefined;
    this.welcomed = conn.welcome;
    this.servedAt = Date.now();
    this.answered = false;
    conn.begin({
      message: (m) => this.message(conn, m),
      closed: (err) => this.lose(conn, err),
    });
    if (this.conn !== conn) return; // lost meanwhile
    this.setState('connected');
    for (const go of [...this.dialing]) go();
  }

  private lose(conn: Connection, err: HoldfastError): void {
    // If the proxy has closed the connection because of a malformed request, that request must not be repeated. Nor must
    // a request be if its reply is malformed, because the next reply would be, too.
    const why = this.fault ?? (err.code === 'decode' || err.code === 'client_closed' ? err : new HoldfastError('lost', err.message, err.retryAfterMs === undefined ? {} : { retryAfterMs: err.retryAfterMs }));
    for (const w of [...this.waiting.values()]) if (w.conn === conn) w.failed(why);
    if (this.conn !== conn) return; // moveOn has replaced it
    this.conn = undefined;
    this.last = err;
    if (this.now === 'closed') return;
    this.setState('reconnecting');
    // If a proxy accepts and closes connections again and again, the waits grow.
    const { min, max } = this.dialer;
    this.pauseMs = this.answered || Date.now() - this.servedAt > max ? 0 : Math.min(Math.max(2 * this.pauseMs, min), max);
    void this.redial(err.retryAfterMs ?? 0);
  }

  private async redial(after: number): Promise<void> {
    try {
      await pause(Math.max(this.pauseMs, Math.min(after, this.dialer.giveUp)), this.stop.signal);
      this.serve(await this.dialer.redial(this.stop.signal));
    } catch (err) {
      this.last = asError(err);
      if (this.now === 'closed') return;
      this.events.emit('error', this.last);
      await this.close(); // another attempt would fail in the same way
    }
  }

  private message(conn: Connection, m: Message): void {
    if (m.type === 'goaway') {
      const err = goingAway(m);
      this.events.emit('goaway', { retryAfterMs: err.retryAfterMs ?? 0, reason: str(m, 'reason') });
      if (this.dialer.isBehindGate && err.retryAfterMs === 0) return void this.moveOn(conn);
      return conn.close(err);
    }
    const w = this.waiting.get(str(m, 'request_id'));
    if (w === undefined) {
      if (m.type === 'error' && (m.request_id === undefined || m.request_id === null) && m.retryable !== true) this.fault = errorOf(m);
      return;
    }
    if (conn === this.conn) this.answered = true;
    if (m.type === 'error') return w.failed(errorOf(m));
    if (w.parts.push(m) > MAX_PARTS) throw new HoldfastError('decode', 'more parts than any answer has');
    if (m.more !== true || m.type !== 'sessions') w.done(w.parts);
  }

  // moveOn replaces a connection that a gate wants to close. The old one ends after the last answer on it.
  private async moveOn(old: Connection): Promise<void> {
    const next = await this.dialer.redial(this.stop.signal).catch(() => undefined); // lose meets the error again
    if (next === undefined || this.conn !== old) {
      next?.close();
      return old.close();
    }
    this.serve(next);
    this.closeUnused(old);
  }

  // closeUnused closes a connection that was replaced, if no request waits for an answer on it.
  private closeUnused(conn: Connection): void {
    if (this.conn === conn) return;
    for (const w of this.waiting.values()) if (w.conn === conn) return;
    conn.close();
  }

  // connection returns the present connection, or waits for the next one, for at most a number of milliseconds.
  private connection(limit = Infinity): Promise<Connection> {
    if (this.dialing.size >= MAX_REQUESTS) return Promise.reject(new HoldfastError('limit_exceeded', `${MAX_REQUESTS} requests wait for a connection`));
    return new Promise((done, failed) => {
      const go = (): void => {
        if (this.conn === undefined && this.now !== 'closed') return;
        clearTimeout(timer);
        this.dialing.delete(go);
        if (this.conn !== undefined) done(this.conn);
        else failed(this.last?.retryable === false ? this.last : closed());
      };
      const timer = setTimeout(() => {
        this.dialing.delete(go);
        failed(new HoldfastError('connect', this.last?.message ?? 'there is no connection'));
      }, Math.min(limit, this.dialer.giveUp));
      this.dialing.add(go);
      go();
    });
  }

  // once makes a request once. Its answer may take a number of milliseconds; otherwise the error is `timeout`. If the
  // connection is silent, too, once closes it, because it may be lost without notice, and with it the silent connections of
  // attachments and subscriptions, on which no answer is due.
  private once(conn: Connection, m: Message, limit: number): Promise<Message[]> {
    return new Promise((done, failed) => {
      if (this.waiting.size >= MAX_REQUESTS) throw new HoldfastError('limit_exceeded', `${MAX_REQUESTS} requests wait for an answer`);
      const id = String(++this.requests);
      const since = Connection.received;
      const timer = limit > MAX_TIMER_MS ? undefined : setTimeout(() => {
        this.waiting.get(id)?.failed(late(limit, mayRepeat(m)));
        if (!conn.closeIfSilent(since)) return;
        for (const other of [...this.attachments, ...this.streams]) other.closeIfSilent(since);
      }, limit);
      const end = (): void => {
        clearTimeout(timer);
        this.waiting.delete(id);
        this.closeUnused(conn);
      };
      this.waiting.set(id, {
        conn,
        parts: [],
        done: (parts) => done((end(), parts)),
        failed: (err) => failed((end(), err)),
      });
      try {
        conn.send({ ...m, request_id: id });
      } catch (err) {
        end();
        throw err;
      }
    });
  }

  // call makes a request. If the connection is lost, call makes it again, unless it must not be repeated.
  private async call(m: Message): Promise<Message[]> {
    const early = m.early_exit_ms;
    const limit = this.dialer.answer + (typeof early === 'number' ? early : 0);
    for (;;) {
      const conn = await this.connection();
      if (conn !== this.conn) continue; // it was closed in the same turn
      try {
        return await this.once(conn, m, limit);
      } catch (err) {
        const why = asError(err);
        if (!mayRepeat(m) || why.code !== 'lost' || this.now === 'closed') throw why;
      }
    }
  }

  private async ask(m: Message, answer: string): Promise<Message> {
    return replyTo(m, answer, await this.call(m));
  }

  // get makes a request and returns the fields of its reply.
  private async get<T>(m: Message, answer: string): Promise<T> {
    const { type: _, request_id: _id, ...rest } = await this.ask(m, answer);
    return rest as T;
  }

  private async ok(m: Message): Promise<void> {
    await this.ask(m, 'ok');
  }

  /** list returns all sessions, or those that the options select, the oldest first. A string selects an originator. */
  async list(which: string | ListOptions = {}): Promise<SessionInfo[]> {
    const { originator, labels = {} } = typeof which === 'string' ? { originator: which } : which;
    const some = Object.keys(labels).length > 0;
    const parts = await this.call({ type: 'list', ...(originator !== undefined && { originator }), ...(some && { labels }) });
    return parts.flatMap((m) => {
      if (m.type !== 'sessions' || !Array.isArray(m.sessions)) throw wrong(m, 'sessions');
      return m.sessions as SessionInfo[];
    });
  }

  /** Errors: `session_not_found`. */
  async info(id: string): Promise<SessionInfo> {
    return object(await this.ask({ type: 'info', session_id: id }, 'session'), 'session');
  }

  /**
   * spawn starts a session, and checks that its child does not end at once. After a lost connection it starts no second
   * session. Errors: `exited_early` with `exit`, `spawn_failed` with `reason`, `session_exists`, `limit_exceeded`.
   */
  spawn(spec: SpawnSpec): Promise<Spawned> {
    return this.get({ type: 'spawn', session_id: token(6), token: token(16), ...spec }, 'spawned');
  }

  /** reopen starts an exited or lost session again under its id. Errors: those of spawn, `session_not_found`, `session_running`. */
  reopen(id: string, changes: ReopenSpec = {}): Promise<Spawned> {
    return this.get({ type: 'reopen', session_id: id, token: token(16), ...changes }, 'spawned');
  }

  /** kill schedules the end of a session; `wait` waits for it. */
  kill(id: string, o: KillOptions = {}): Promise<void> {
    return this.ok({ type: 'terminate', session_id: id, instance: o.instance, grace_ms: o.graceMs, soft_signal: o.softSignal, reason: o.reason, all: o.all });
  }

  /** limit changes limits of a running session. Errors: `unsupported` if the session has no control group. */
  async limit(id: string, limits: Limits): Promise<SessionInfo> {
    return object(await this.ask({ type: 'limit', session_id: id, limits }, 'session'), 'session');
  }

  /** freeze stops all processes of a session. Errors: `unsupported` if the session has no control group. */
  freeze(id: string): Promise<void> {
    return this.ok({ type: 'freeze', session_id: id, frozen: true });
  }

  /** thaw continues all processes of a frozen session. */
  thaw(id: string): Promise<void> {
    return this.ok({ type: 'freeze', session_id: id, frozen: false });
  }

  /** signal sends a signal, such as `SIGUSR1`, `USR1` or a number, to the process groups of a session. */
  signal(id: string, name: string | number): Promise<void> {
    return this.ok({ type: 'signal', session_id: id, signal: String(name) });
  }

  /** rename sets the title of a session, its label `title`, for all viewers; '' removes the label. */
  async rename(id: string, title: string): Promise<SessionInfo> {
    return object(await this.ask({ type: 'rename', session_id: id, title }, 'session'), 'session');
  }

  /** interrupt sends SIGINT to the foreground process group. */
  interrupt(id: string): Promise<void> {
    return this.ok({ type: 'interrupt', session_id: id });
  }

  /** forget deletes an exited or lost session, and what is stored of it. */
  forget(id: string): Promise<void> {
    return this.ok({ type: 'forget', session_id: id });
  }

  /** wait waits for the end of a session, and returns its exit record. Errors: `timeout`. */
  async wait(id: string, o: WaitOptions = {}): Promise<ExitRecord> {
    return object(await this.long({ type: 'wait', session_id: id }, 'waited', o.timeoutMs), 'exit');
  }

  // long makes a request that may take long. After a lost connection it makes the request again, with the remaining time.
  // The supervisor measures the time. If no answer comes, because a process was stopped, for example, the request fails
  // with `timeout` some time later.
  private async long(m: Message, answer: string, timeoutMs: number | undefined): Promise<Message> {
    const grace = Math.min(ANSWER_MS, this.dialer.answer);
    const deadline = Date.now() + (timeoutMs ?? Infinity);
    for (;;) {
      const left = timeoutMs === undefined ? undefined : Math.max(0, deadline - Date.now());
      try {
        const conn = await this.connection(deadline + grace - Date.now());
        if (conn !== this.conn) continue; // it was closed in the same turn
        return replyTo(m, answer, await this.once(conn, { ...m, timeout_ms: left }, deadline + grace - Date.now()));
      } catch (err) {
        const why = asError(err);
        if (Date.now() >= deadline + grace && (lost(why) || why.code === 'connect')) throw late((timeoutMs ?? 0) + grace, true);
        if (!lost(why) || this.state === 'closed') throw why;
      }
      await pause(RETRY_MS, this.stop.signal);
    }
  }

  /**
   * screen returns a session's screen, also after the session has ended. With `at` it returns the screen of an earlier
   * moment; the format `state` then brings a new terminal of that size into its state. Errors: `not_stored`.
   */
  screen(spec: ScreenSpec): Promise<ScreenContent> {
    return this.get({ type: 'screen', ...spec }, 'screen_content');
  }

  /** history returns lines, the newest first. For older lines, pass the number of the last line as `before`. */
  history(spec: HistorySpec): Promise<HistoryContent> {
    return this.get({ type: 'history', ...spec }, 'history_content');
  }

  /** changes returns what has changed since the `mark` of the last reply, or the whole screen. Errors: `instance_mismatch`. */
  changes(spec: ChangesSpec): Promise<Changes> {
    return this.get({ type: 'changes', ...spec }, 'changes_content');
  }

  /** commands returns the last commands that have ended, the oldest first. For the output of one, pass its count to history as `command`. */
  commands(id: string): Promise<Commands> {
    return this.get({ type: 'commands', session_id: id }, 'commands_content');
  }

  /** search returns the lines that match. If the result has `more`, pass its `before` for older lines. */
  search(spec: SearchSpec): Promise<SearchContent> {
    return this.get({ type: 'search', ...spec }, 'search_content');
  }

  /** past describes what is kept of a session's past: the range of offsets, times, gaps and commands. */
  past(spec: PastSpec): Promise<PastContent> {
    return this.get({ type: 'past', ...spec }, 'past_content');
  }

  /** scrollback returns at most 512 KiB of output from an offset on, as far as the session keeps it. */
  async scrollback(id: string, offset = 0): Promise<ScrollbackData> {
    const m = await this.ask({ type: 'scrollback', session_id: id, offset }, 'scrollback_data');
    return { instance: str(m, 'instance'), offset: int(m, 'offset'), end: int(m, 'end'), data: fromBase64(str(m, 'data_b64')) };
  }

  /**
   * readPast returns at most 512 KiB of output from an offset on, as far as the store on disk or the session's memory has
   * it. It ends where output is missing, and begins behind it if it is missing at the offset.
   */
  async readPast(id: string, offset = 0): Promise<PastOutput> {
    const m = await this.ask({ type: 'scrollback', session_id: id, offset, past: true }, 'scrollback_data');
    return {
      instance: str(m, 'instance'), offset: int(m, 'offset'), end: int(m, 'end'), data: fromBase64(str(m, 'data_b64')),
      times: (m.times ?? []) as PastOutput['times'], sizes: (m.sizes ?? []) as PastOutput['sizes'],
    };
  }

  /** searchPast returns the lines of the whole past that match, the newest first. If the result has `more`, pass its `before` for older lines. */
  searchPast(spec: PastSearchSpec): Promise<PastSearchContent> {
    return this.get({ type: 'search_past', ...spec }, 'search_past_content');
  }

  /** resize changes a session's size once, with any size policy. */
  resize(id: string, cols: number, rows: number): Promise<void> {
    return this.ok({ type: 'resize', session_id: id, cols, rows });
  }

  /** clear deletes the lines above a session's screen, for all viewers. With `screen` it also deletes the screen's rows, except the row with the cursor. */
  clear(id: string, screen = false): Promise<void> {
    return this.ok({ type: 'clear', session_id: id, screen });
  }

  /** setSizePolicy sets the policy that determines a session's size. The policy fixed may have columns and rows. */
  setSizePolicy(id: string, policy: SizePolicy, cols = 0, rows = 0): Promise<void> {
    return this.ok({ type: 'size_policy', session_id: id, policy, cols, rows });
  }

  /**
   * input sends input without an attachment, exactly once, and returns when all of it was accepted. Errors:
   * `line_too_long` if the terminal cuts a line; all of the input was accepted then, too. `invalid_argument` if a text has
   * half of a surrogate pair.
   */
  async input(id: string, data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? utf8(data) : data;
    await this.type(bytes.length, INPUT_BYTES, (from, to) => ({
      type: 'input', session_id: id, data_b64: toBase64(bytes.subarray(from, to)),
    }));
  }

  /** paste sends text as a paste, framed if the program has enabled that. The session accepts all of it or nothing. */
  async paste(id: string, text: string): Promise<void> {
    const bytes = utf8(text);
    await this.type(bytes.length, Infinity, () => ({ type: 'input', session_id: id, data_b64: toBase64(bytes), paste: true }));
  }

  /** keys sends keys by their names (SPEC.md, Keys): `Enter`, `C-c`, `S-Tab`, `x`. */
  async keys(id: string, keys: string[]): Promise<void> {
    await this.type(keys.length, MAX_KEYS, (from, to) => ({ type: 'input', session_id: id, data_b64: '', keys: keys.slice(from, to) }));
  }

  // type sends input in parts, each of them once, because the supervisor knows by the writer's offset which input it
  // has accepted. It accepts a part with keys or a paste as a whole or not at all.
  private async type(length: number, atOnce: number, part: (from: number, to: number) => Message): Promise<void> {
    const writer = token(8);
    let warned: HoldfastError | undefined;
    for (let offset = 0; offset < length;) {
      const to = Math.min(length, offset + atOnce);
      const m = part(offset, to), whole = m.paste === true || m.keys !== undefined;
      try {
        const accepted = await this.ask({ ...m, writer, offset }, 'accepted');
        offset = whole ? to : acceptedTo(int(accepted, 'offset'), offset, to);
        continue;
      } catch (err) {
        const why = asError(err);
        if (why.code === 'line_too_long') {
          warned ??= why;
          offset = whole ? to : acceptedTo(why.offset ?? to, offset, to);
          continue;
        }
        if (this.state === 'closed' || (why.code !== 'input_full' && !lost(why))) throw why;
        if (why.code === 'input_full' && !whole) offset = why.offset ?? offset;
      }
      await pause(RETRY_MS, this.stop.signal); // until the child has read some input
    }
    if (warned !== undefined) throw warned;
  }

  /** mark returns the present position of a session, for `since` of await. */
  mark(id: string): Promise<Marked> {
    return this.get({ type: 'mark', session_id: id }, 'marked');
  }

  /**
   * await waits for one of text, prompt and idle_ms on a session's screen. For a text without `since` it takes an inclusive
   * mark first, so that it misses no line if the connection is lost. Errors: `timeout`.
   */
  async await(spec: AwaitSpec): Promise<Awaited> {
    let { since, timeout_ms } = spec;
    if (spec.text && !since) {
      const begun = Date.now();
      since = (await this.mark(spec.session_id).catch(() => undefined))?.inclusive; // if this fails, the await has the same reason to fail
      if (timeout_ms !== undefined) timeout_ms = Math.max(0, timeout_ms - (Date.now() - begun));
    }
    const { type: _, request_id: _id, ...rest } = await this.long({ type: 'await', ...spec, since }, 'awaited', timeout_ms);
    return rest as unknown as Awaited;
  }

  /** away returns the events since the last viewer left. */
  away(id: string): Promise<Away> {
    return this.get({ type: 'away', session_id: id }, 'away_content');
  }

  /** environment returns the environment of the viewer that last sent one, as `K=V`. */
  async environment(id: string): Promise<string[]> {
    return object(await this.ask({ type: 'environment', session_id: id }, 'environment_content'), 'env');
  }

  /**
   * share returns a link with which a browser can view this session and do nothing else. Errors: `unsupported` if the proxy
   * serves no page, or if the client has entered the host through a gate, because only the host itself reaches the link.
   */
  share(id: string, ttlMs?: number): Promise<Shared> {
    if (this.options.gate !== undefined) {
      return Promise.reject(new HoldfastError('unsupported', 'a gate serves no share links: make the link on the host itself'));
    }
    return this.get({ type: 'share', session_id: id, ttl_ms: ttlMs }, 'shared');
  }

  /** status returns the status of the proxy and of the supervisor. */
  status(): Promise<Status> {
    return this.get({ type: 'status' }, 'status_report');
  }

  /** ticket returns a ticket for one WebSocket over TCP: for the raw output of a session, or for the api. */
  ticket(id?: string): Promise<Ticket> {
    return this.get({ type: 'ticket', ...(id !== undefined && { session_id: id }) }, 'ticket_issued');
  }

  /**
   * subscribe returns the events of all sessions from now on. It continues after a lost connection. With `after` it
   * begins after an earlier event of the supervisor's instance in `status` (`supervisor.instance`; the instance in
   * `welcome` is the proxy's). If some later events are no longer kept, or the supervisor has another instance, the
   * first event is `missed`.
   */
  subscribe(options: { after?: { instance: string; seq: number } } = {}): Subscription {
    const stream = new EventStream(this.dialer, () => this.streams.delete(stream), options.after);
    this.streams.add(stream);
    if (this.now === 'closed') stream.close();
    return stream;
  }

  /**
   * attach attaches to a session. Errors: `session_not_found`, `session_exited` with `exit`, `already_attached`,
   * `instance_mismatch`, `limit_exceeded`, `client_closed` if the client is closed before it is attached.
   */
  async attach(id: string, options: AttachSpec = {}): Promise<Attachment> {
    if (this.now === 'closed') throw closed();
    const a = await Attachment.open(this.dialer, id, options, this.options.client ?? 'holdfast-client', this.stop.signal);
    if (this.state === 'closed') {
      await a.detach();
      throw closed();
    }
    this.attachments.add(a);
    a.exited.catch(() => {}).finally(() => this.attachments.delete(a));
    return a;
  }

  /** close detaches all attachments, and ends attaches that are under way, the subscriptions and the connection. The sessions continue. */
  async close(): Promise<void> {
    if (this.now === 'closed') return;
    this.setState('closed');
    for (const stream of [...this.streams]) stream.close();
    this.stop.abort();
    this.conn?.close(closed());
    this.conn = undefined;
    for (const w of [...this.waiting.values()]) w.conn.close(closed()); // one that moveOn has replaced
    for (const go of [...this.dialing]) go();
    await Promise.all([...this.attachments].map((a) => a.detach()));
  }
}
