import { Attachment } from './attachment.js';
import { fromBase64, toBase64, token } from './base64.js';
import { closed, Dialer, goingAway, pause } from './dialer.js';
import type { Connection, ConnectOptions } from './dialer.js';
import { asError, HoldfastError, lost } from './errors.js';
import { Emitter } from './events.js';
import { errorOf, int, object, str, wrong } from './message.js';
import type { Message } from './message.js';
import { EventStream } from './subscription.js';
import type { Subscription } from './subscription.js';
import type {
  AttachSpec, Away, Awaited, AwaitSpec, ExitRecord, HistoryContent, HistorySpec, HoldfastEvent, Labels, Limits, Marked, ReopenSpec, ScreenContent, ScreenSpec,
  ScrollbackData, SearchContent, SearchSpec, SessionInfo, Shared, SizePolicy, Spawned, SpawnSpec, Status, Ticket, Welcome,
} from './types.js';
import { REPEATABLE } from './wire.js';

export type { Subscription } from './subscription.js';

/** `reconnecting` says that the connection was lost, and is being made again. */
export type ClientState = 'connected' | 'reconnecting' | 'closed';

export type ClientEvents = {
  state: (state: ClientState) => void;
  /** What happens to all sessions; who listens is subscribed from then on. */
  event: (event: HoldfastEvent) => void;
  /** The proxy is about to go away; the client comes back by itself. */
  goaway: (what: { retryAfterMs: number; reason: string }) => void;
  /** A connection could not be made: it is tried again while `state` is not `closed`. */
  error: (err: HoldfastError) => void;
};

export interface KillOptions {
  /** Time between the soft signal and SIGKILL; absent is 250. */
  graceMs?: number;
  /** Absent is SIGHUP. */
  softSignal?: string;
  reason?: string;
  /** Also what has left the terminal; `unsupported` without a control group of its own. */
  all?: boolean;
}

export interface ListOptions {
  /** Only sessions of this one. */
  originator?: string;
  /** Only sessions that have all of these labels with these values. */
  labels?: Labels;
}

export interface WaitOptions {
  /** Absent is for ever. */
  timeoutMs?: number;
}

/** Bytes of input in one request, and keys. */
const INPUT_BYTES = 256 << 10;
const MAX_KEYS = 256;
/** Messages that may answer one request. */
const MAX_PARTS = 256;
/** Requests that may wait for an answer. */
const MAX_REQUESTS = 4096;
const RETRY_MS = 20;

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

interface Waiting {
  parts: Message[];
  done(parts: Message[]): void;
  failed(err: HoldfastError): void;
}

/**
 * A HoldfastClient talks to one proxy and its successors. Requests go over one
 * connection; each attachment and subscription has one of its own. Where it is
 * harmless a request whose connection is lost is made again.
 */
export class HoldfastClient {
  private now: ClientState = 'connected';
  private readonly events = new Emitter<ClientEvents>();
  private readonly stop = new AbortController();
  private readonly dialer: Dialer;
  private conn: Connection | undefined;
  private last: HoldfastError | undefined; // why there is no connection
  private fault: HoldfastError | undefined; // why the proxy is about to close the connection
  private welcomed: Welcome | undefined;
  private readonly waiting = new Map<string, Waiting>();
  private readonly dialing = new Set<() => void>(); // who waits for a connection
  private readonly attachments = new Set<Attachment>();
  private readonly streams = new Set<EventStream>();
  private listening: EventStream | undefined; // for those who listen to `event`
  private requests = 0;

  private constructor(private readonly options: ConnectOptions) {
    this.dialer = new Dialer(options);
    this.dialer.failed = (err) => void this.events.emit('error', err);
  }

  /**
   * connect says hello to a proxy. Errors: `connect` where there is none, what it
   * answers (`unauthorized`, `protocol_mismatch`), `lost`.
   */
  static async connect(options: ConnectOptions): Promise<HoldfastClient> {
    const c = new HoldfastClient(options);
    const deadline = Date.now() + c.dialer.giveUp;
    for (;;) {
      try {
        c.serve(await c.dialer.dial(c.stop.signal));
        return c;
      } catch (err) {
        const why = asError(err);
        // Where nobody answers there may never have been one; a proxy that goes away has a successor.
        if (why.code === 'connect' || !why.retryable || Date.now() > deadline) throw why;
        await pause(Math.max(RETRY_MS, Math.min(why.retryAfterMs ?? 0, c.dialer.max)), c.stop.signal);
      }
    }
  }

  get state(): ClientState {
    return this.now;
  }

  /** What the proxy said of itself when it was connected to last. */
  get welcome(): Welcome {
    return this.welcomed as Welcome;
  }

  on<K extends keyof ClientEvents>(event: K, fn: ClientEvents[K]): () => void {
    const off = this.events.on(event, fn);
    if (event === 'event') this.listen();
    return () => {
      off();
      if (event === 'event' && this.events.count('event') === 0) {
        this.listening?.close();
        this.listening = undefined;
      }
    };
  }

  private listen(): void {
    if (this.listening !== undefined || this.now === 'closed') return;
    const stream = (this.listening = this.subscribe() as EventStream);
    const run = async (): Promise<void> => {
      for await (const event of stream) this.events.emit('event', event);
    };
    run().catch((err: unknown) => this.events.emit('error', asError(err)));
  }

  private setState(state: ClientState): void {
    if (this.now === state) return;
    this.now = state;
    this.events.emit('state', state);
  }

  // serve takes over a connection, until it is lost.
  private serve(conn: Connection): void {
    if (this.now === 'closed') return conn.close();
    this.conn = conn;
    this.fault = undefined;
    this.welcomed = conn.welcome;
    conn.begin({
      message: (m) => this.message(conn, m),
      closed: (err) => this.lose(err),
    });
    if (this.conn !== conn) return; // lost meanwhile
    this.setState('connected');
    for (const go of [...this.dialing]) go();
  }

  private lose(err: HoldfastError): void {
    this.conn = undefined;
    this.last = err;
    // What was asked in a form that the proxy does not take is not asked again.
    const why = this.fault ?? new HoldfastError('lost', err.message, err.retryAfterMs === undefined ? {} : { retryAfterMs: err.retryAfterMs });
    for (const w of [...this.waiting.values()]) w.failed(why);
    if (this.now === 'closed') return;
    this.setState('reconnecting');
    void this.redial(err.retryAfterMs ?? 0);
  }

  private async redial(after: number): Promise<void> {
    try {
      await pause(Math.min(after, this.dialer.giveUp), this.stop.signal);
      this.serve(await this.dialer.redial(this.stop.signal));
    } catch (err) {
      this.last = asError(err);
      if (this.now === 'closed') return;
      this.events.emit('error', this.last);
      await this.close(); // no waiting mends it
    }
  }

  private message(conn: Connection, m: Message): void {
    if (m.type === 'goaway') {
      const err = goingAway(m);
      this.events.emit('goaway', { retryAfterMs: err.retryAfterMs ?? 0, reason: str(m, 'reason') });
      return conn.close(err);
    }
    const w = this.waiting.get(str(m, 'request_id'));
    if (w === undefined) {
      if (m.type === 'error' && m.request_id === undefined && m.retryable !== true) this.fault = errorOf(m);
      return;
    }
    if (m.type === 'error') return w.failed(errorOf(m));
    if (w.parts.push(m) > MAX_PARTS) throw new HoldfastError('decode', 'more parts than any answer has');
    if (m.more !== true || m.type !== 'sessions') w.done(w.parts);
  }

  // connection returns the live one, or waits for it.
  private connection(): Promise<Connection> {
    return new Promise((done, failed) => {
      const go = (): void => {
        if (this.conn === undefined && this.now !== 'closed') return;
        clearTimeout(late);
        this.dialing.delete(go);
        if (this.conn !== undefined) done(this.conn);
        else failed(this.last?.retryable === false ? this.last : closed());
      };
      const late = setTimeout(() => {
        this.dialing.delete(go);
        failed(new HoldfastError('connect', this.last?.message ?? 'there is no connection'));
      }, this.dialer.giveUp);
      if (this.dialing.size < MAX_REQUESTS) this.dialing.add(go);
      else failed(new HoldfastError('limit_exceeded', `${MAX_REQUESTS} requests wait for a connection`));
      go();
    });
  }

  private once(conn: Connection, m: Message): Promise<Message[]> {
    return new Promise((done, failed) => {
      if (this.waiting.size >= MAX_REQUESTS) throw new HoldfastError('limit_exceeded', `${MAX_REQUESTS} requests wait for an answer`);
      const id = String(++this.requests);
      const end = (): boolean => this.waiting.delete(id);
      this.waiting.set(id, {
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
    for (;;) {
      const conn = await this.connection();
      try {
        return await this.once(conn, m);
      } catch (err) {
        const why = asError(err);
        if (!mayRepeat(m) || why.code !== 'lost' || this.now === 'closed') throw why;
      }
    }
  }

  private async ask(m: Message, answer: string): Promise<Message> {
    return replyTo(m, answer, await this.call(m));
  }

  // get is ask for an answer that is handed over as it is.
  private async get<T>(m: Message, answer: string): Promise<T> {
    const { type: _, request_id: _id, ...rest } = await this.ask(m, answer);
    return rest as T;
  }

  private async ok(m: Message): Promise<void> {
    await this.ask(m, 'ok');
  }

  /** list returns what is known of every session, or of those that the options select, oldest first. A string is an originator. */
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
   * spawn starts a session and checks that it lives; a lost connection starts no second
   * one. Errors: `exited_early`, whose `exit` says how, `spawn_failed` with its
   * `reason`, `session_exists`, `limit_exceeded`.
   */
  spawn(spec: SpawnSpec): Promise<Spawned> {
    return this.get({ type: 'spawn', session_id: token(6), token: token(16), ...spec }, 'spawned');
  }

  /** reopen starts an exited session again under its id. Errors: those of spawn, `session_not_found`, `session_running`. */
  reopen(id: string, changes: ReopenSpec = {}): Promise<Spawned> {
    return this.get({ type: 'reopen', session_id: id, token: token(16), ...changes }, 'spawned');
  }

  /** kill begins a session's end, and returns when that is scheduled: `wait` tells how it came. */
  kill(id: string, o: KillOptions = {}): Promise<void> {
    return this.ok({ type: 'terminate', session_id: id, grace_ms: o.graceMs, soft_signal: o.softSignal, reason: o.reason, all: o.all });
  }

  /** limit changes limits of a session that runs; `unsupported` if it has no control group of its own. */
  async limit(id: string, limits: Limits): Promise<SessionInfo> {
    return object(await this.ask({ type: 'limit', session_id: id, limits }, 'session'), 'session');
  }

  /** freeze stops all processes of a session; `unsupported` as limit. */
  freeze(id: string): Promise<void> {
    return this.ok({ type: 'freeze', session_id: id, frozen: true });
  }

  /** thaw has all processes of a session run on. */
  thaw(id: string): Promise<void> {
    return this.ok({ type: 'freeze', session_id: id, frozen: false });
  }

  /** signal sends one, by `SIGUSR1`, `USR1` or a number. */
  signal(id: string, name: string | number): Promise<void> {
    return this.ok({ type: 'signal', session_id: id, signal: String(name) });
  }

  /** rename says what a session is called, for all who see it: its label `title`; '' takes that away. */
  async rename(id: string, title: string): Promise<SessionInfo> {
    return object(await this.ask({ type: 'rename', session_id: id, title }, 'session'), 'session');
  }

  /** interrupt sends SIGINT to the foreground process group. */
  interrupt(id: string): Promise<void> {
    return this.ok({ type: 'interrupt', session_id: id });
  }

  /** forget removes an exited session. */
  forget(id: string): Promise<void> {
    return this.ok({ type: 'forget', session_id: id });
  }

  /** wait returns how a session ended once it has. Errors: `timeout`. */
  async wait(id: string, o: WaitOptions = {}): Promise<ExitRecord> {
    return object(await this.long({ type: 'wait', session_id: id }, 'waited', o.timeoutMs), 'exit');
  }

  // long asks what may take long, and again for what is left of the time.
  private async long(m: Message, answer: string, timeoutMs: number | undefined): Promise<Message> {
    const deadline = Date.now() + (timeoutMs ?? Infinity);
    for (;;) {
      const left = timeoutMs === undefined ? undefined : Math.max(0, deadline - Date.now());
      try {
        return replyTo(m, answer, await this.once(await this.connection(), { ...m, timeout_ms: left }));
      } catch (err) {
        if (!lost(asError(err)) || this.state === 'closed') throw err;
      }
      await pause(RETRY_MS, this.stop.signal);
    }
  }

  /** screen returns what a session shows, also after its end. */
  screen(spec: ScreenSpec): Promise<ScreenContent> {
    return this.get({ type: 'screen', ...spec }, 'screen_content');
  }

  /** history returns lines, newest first; to page on, ask with the number of the last one as `before`. */
  history(spec: HistorySpec): Promise<HistoryContent> {
    return this.get({ type: 'history', ...spec }, 'history_content');
  }

  /** search returns lines that match; where it says `more`, ask again with its `before`. */
  search(spec: SearchSpec): Promise<SearchContent> {
    return this.get({ type: 'search', ...spec }, 'search_content');
  }

  /** scrollback returns bytes that a session printed, from offset on as far as they are kept, at most 512 KiB. */
  async scrollback(id: string, offset = 0): Promise<ScrollbackData> {
    const m = await this.ask({ type: 'scrollback', session_id: id, offset }, 'scrollback_data');
    return { instance: str(m, 'instance'), offset: int(m, 'offset'), end: int(m, 'end'), data: fromBase64(str(m, 'data_b64')) };
  }

  /** resize changes a session's size once, whatever its policy. */
  resize(id: string, cols: number, rows: number): Promise<void> {
    return this.ok({ type: 'resize', session_id: id, cols, rows });
  }

  /** clear forgets the lines above a session's screen, for all viewers; with `screen` those on it, too, but the row with the cursor. */
  clear(id: string, screen = false): Promise<void> {
    return this.ok({ type: 'clear', session_id: id, screen });
  }

  /** setSizePolicy changes whose size a session has; a fixed one may be given columns and rows. */
  setSizePolicy(id: string, policy: SizePolicy, cols = 0, rows = 0): Promise<void> {
    return this.ok({ type: 'size_policy', session_id: id, policy, cols, rows });
  }

  /**
   * input types without an attachment, exactly once, and returns when all was accepted.
   * Errors: `line_too_long` where the terminal cuts a line; all was accepted then, too.
   */
  async input(id: string, data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    await this.type(bytes.length, INPUT_BYTES, (from, to) => ({
      type: 'input', session_id: id, data_b64: toBase64(bytes.subarray(from, to)),
    }));
  }

  /** paste types text as a terminal pastes it: framed, where the program asked for that. It is taken whole or not at all. */
  async paste(id: string, text: string): Promise<void> {
    const bytes = new TextEncoder().encode(text);
    await this.type(bytes.length, Infinity, () => ({ type: 'input', session_id: id, data_b64: toBase64(bytes), paste: true }));
  }

  /** keys types keys by name (SPEC.md, Keys): `Enter`, `C-c`, `S-Tab`, `x`. */
  async keys(id: string, keys: string[]): Promise<void> {
    await this.type(keys.length, MAX_KEYS, (from, to) => ({ type: 'input', session_id: id, data_b64: '', keys: keys.slice(from, to) }));
  }

  // type sends all of something in parts, each once: a writer's offset tells the
  // supervisor what it has had. A part that is not plain bytes is taken whole or not at
  // all.
  private async type(length: number, atOnce: number, part: (from: number, to: number) => Message): Promise<void> {
    const writer = token(8);
    let warned: HoldfastError | undefined;
    for (let offset = 0; offset < length;) {
      const to = Math.min(length, offset + atOnce);
      const m = part(offset, to), whole = m.paste === true || m.keys !== undefined;
      try {
        const accepted = await this.ask({ ...m, writer, offset }, 'accepted');
        offset = whole ? to : int(accepted, 'offset');
        continue;
      } catch (err) {
        const why = asError(err);
        if (why.code === 'line_too_long') {
          warned ??= why;
          offset = whole ? to : (why.offset ?? to);
          continue;
        }
        if (this.state === 'closed' || (why.code !== 'input_full' && !lost(why))) throw why;
        if (why.code === 'input_full' && !whole) offset = why.offset ?? offset;
      }
      await pause(RETRY_MS, this.stop.signal); // the child does not read as fast as we type
    }
    if (warned !== undefined) throw warned;
  }

  /** mark says where a session is, for `since` of await. */
  mark(id: string): Promise<Marked> {
    return this.get({ type: 'mark', session_id: id }, 'marked');
  }

  /** await waits for something on a screen: one of text, prompt and idle_ms. Errors: `timeout`. */
  async await(spec: AwaitSpec): Promise<Awaited> {
    const { type: _, request_id: _id, ...rest } = await this.long({ type: 'await', ...spec }, 'awaited', spec.timeout_ms);
    return rest as unknown as Awaited;
  }

  /** away tells what has happened since the last viewer went. */
  away(id: string): Promise<Away> {
    return this.get({ type: 'away', session_id: id }, 'away_content');
  }

  /** environment is that of the last viewer that told its own, as `K=V`. */
  async environment(id: string): Promise<string[]> {
    return object(await this.ask({ type: 'environment', session_id: id }, 'environment_content'), 'env');
  }

  /** share makes a link by which a browser can look at this session, and do nothing else. */
  share(id: string, ttlMs?: number): Promise<Shared> {
    return this.get({ type: 'share', session_id: id, ttl_ms: ttlMs }, 'shared');
  }

  /** status is the state of both processes. */
  status(): Promise<Status> {
    return this.get({ type: 'status' }, 'status_report');
  }

  /** ticket returns one for one WebSocket on TCP: to a session's raw bytes, or to the api. */
  ticket(id?: string): Promise<Ticket> {
    return this.get({ type: 'ticket', ...(id !== undefined && { session_id: id }) }, 'ticket_issued');
  }

  /**
   * subscribe tells what happens to all sessions from now on, through the loss of connections.
   * With `after` it begins behind an event that was seen before, of the supervisor's instance
   * that `status` names (`supervisor.instance`, not that of `welcome`, which is the proxy's). If
   * some of what followed is no longer kept, or the instance is another, `missed` comes first.
   */
  subscribe(options: { after?: { instance: string; seq: number } } = {}): Subscription {
    const stream = new EventStream(this.dialer, () => this.streams.delete(stream), options.after);
    this.streams.add(stream);
    if (this.now === 'closed') stream.close();
    return stream;
  }

  /**
   * attach attaches to a session. Errors: `session_not_found`, `session_exited` (whose
   * `exit` says how), `already_attached`, `instance_mismatch`, `limit_exceeded`.
   */
  async attach(id: string, options: AttachSpec = {}): Promise<Attachment> {
    if (this.now === 'closed') throw closed();
    const a = await Attachment.open(this.dialer, id, options, this.options.client ?? 'holdfast-client');
    this.attachments.add(a);
    a.exited.catch(() => {}).finally(() => this.attachments.delete(a));
    if (this.state === 'closed') await a.detach();
    return a;
  }

  /** close detaches all attachments, ends subscriptions and the connection. The sessions live on. */
  async close(): Promise<void> {
    if (this.now === 'closed') return;
    this.setState('closed');
    for (const stream of [...this.streams]) stream.close();
    this.stop.abort();
    this.conn?.close(closed());
    this.conn = undefined;
    for (const go of [...this.dialing]) go();
    await Promise.all([...this.attachments].map((a) => a.detach()));
  }
}
