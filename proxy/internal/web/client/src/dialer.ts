import { gate, ssh, unixSocket } from '#unix';
import { asError, HoldfastError } from './errors.js';
import { MAX_FRAME } from './frames.js';
import { gateSocket } from './gatesocket.js';
import { errorOf, int, object, parse, str } from './message.js';
import type { Message } from './message.js';
import { pause } from './pause.js';
import { webSocket } from './transport.js';
import type { GateOptions, GateSocketOptions, SSHOptions, Transport, WebSocketConstructor } from './transport.js';
import type { VersionRange, Welcome } from './types.js';

/** The lowest and highest version of the protocol that this client supports. */
const SPOKEN: VersionRange = { min: 1, max: 1 };
const HELLO_MS = 5000;
/** The longest time until a transport comes. ssh may ask the user for a password. */
const DIAL_MS = 600_000;
/** The longest time that a proxy can ask a client to wait before the next attempt. */
const MAX_RETRY_AFTER_MS = 30000;
/** The longest time of setTimeout. A longer one would end at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;
/** Bytes that may wait to be sent before this client sends no more sizes and interrupts. */
const MAX_UNSENT = 2 << 20;
/**
 * If a gate is stopped, its connections do not end. So a connection through one of several gates sends a ping after so much
 * silence, and ends if nothing comes for so long after that. Another gate may serve the next one.
 */
const CALM_MS = 15_000;
const PING_MS = 5000;
/** The request id of a ping. Other requests have numbers, and sizes other words. */
const PING = 'ping';
const MAX_EARLY = 64; // messages that may arrive before begin sets a handler

/** The times, in milliseconds, between attempts to replace a lost connection, and for the answer to a request. */
export interface Redial {
  /** The first wait; default 20. Each one is twice the last. */
  min?: number;
  /** The longest wait; default 2000. */
  max?: number;
  /** The time that a request waits for a connection; default 30000. Attachments and subscriptions wait without a limit. */
  giveUp?: number;
  /** The time that the proxy may take to answer a request; default 30000. The time that the request itself names is added. */
  answer?: number;
}

/** There must be exactly one of url, socketPath, ssh, gate and transport. */
export interface ConnectOptions {
  /** `ws(s)://…/v1/api`. */
  url?: string | URL;
  /** A proxy's Unix socket, or on Windows its named pipe; in Node and Electron. */
  socketPath?: string;
  /** Another host, which ssh reaches; in Node and Electron. */
  ssh?: SSHOptions;
  /** Another host, which has joined a gate. By its addresses: in Node and Electron. By a WebSocket: in a browser, too. */
  gate?: GateOptions | GateSocketOptions;
  /** Makes a connection. It is called again after each lost connection. */
  transport?: (signal: AbortSignal) => Promise<Transport>;
  /** A name for people; default `holdfast-client`. */
  client?: string;
  /** On TCP without a ticket or a cookie: the proxy's token. */
  token?: string;
  /** The shared secret, if the proxy has one. */
  secret?: string;
  redial?: Redial;
  /** A constructor such as that of npm's ws, if there is no global one (Node 20) or another should be used. */
  WebSocket?: WebSocketConstructor;
}

/** The options of `start`, which are also those of `connect` except where the proxy is. In Node and Electron. */
export interface StartOptions extends Omit<ConnectOptions, 'url' | 'socketPath' | 'ssh' | 'gate' | 'transport' | 'token' | 'WebSocket'> {
  /** The directory of the app's own for all files of Holdfast. It is made if it is missing. */
  dir: string;
  /** The version of the app, for people. */
  app?: string;
  /** A directory with the programs `proxy` and `supervisor`; default those in the package for this system. */
  programs?: string;
  /** Is called if older programs were replaced, or with an error if they were not and continue. `from` and `to` are versions. */
  onUpgrade?: (upgrade: { from: string; to: string; error?: HoldfastError }) => void;
}

/** The callbacks of a connection. After `closed` the connection calls none of them. */
export interface ConnectionHandler {
  message(m: Message): void;
  data?(kind: number, payload: Uint8Array): void;
  closed(err: HoldfastError): void;
}

/** A Connection is a transport on which the proxy has accepted the hello. */
export class Connection {
  welcome: Welcome | undefined;
  /** The number of messages and frames that all connections have received. */
  static received = 0;
  /** That number when this connection received the last one. If it is smaller than an earlier number, the connection was silent since. */
  heard = 0;
  private over: HoldfastError | undefined;
  private handler: ConnectionHandler | undefined;
  private early: Message[] = [];
  private isPaused = false;
  private silence: ReturnType<typeof setTimeout> | undefined; // calls the next step of watch

  constructor(private readonly transport: Transport) {
    transport.open({
      message: (text) => this.received(text),
      data: (kind, payload) => this.guard(() => this.handler?.data?.(kind, payload)),
      closed: (err) => this.ended(err ?? new HoldfastError('lost', 'the connection was lost')),
    });
  }

  /** begin passes received messages to the handler, those received before as well. */
  begin(handler: ConnectionHandler): void {
    this.handler = handler;
    for (const m of this.early.splice(0)) this.guard(() => handler.message(m));
    if (this.over !== undefined) handler.closed(this.over);
  }

  /** rest stops passing messages on; the next call of begin continues. */
  private rest(): void {
    this.handler = undefined;
  }

  private received(text: string): void {
    this.guard(() => {
      const m = parse(text);
      if (m.request_id === PING) return; // `ok`, or `unsupported` of an older proxy
      if (this.handler !== undefined) this.handler.message(m);
      else if (this.early.push(m) > MAX_EARLY) throw new HoldfastError('decode', `the proxy sent more than ${MAX_EARLY} messages before a request`);
    });
  }

  // guard calls fn. If fn throws, because a message is malformed, guard closes this connection.
  private guard(fn: () => void): void {
    if (this.over !== undefined) return;
    this.heard = ++Connection.received;
    try {
      fn();
    } catch (err) {
      this.close(asError(err));
    }
  }

  private ended(err: HoldfastError): void {
    if (this.over !== undefined) return;
    this.over = err;
    clearTimeout(this.silence);
    this.handler?.closed(err);
  }

  send(m: Message): void {
    const text = JSON.stringify(m);
    // JSON.stringify writes only halves of surrogate pairs in this way. A proxy would replace them by another character.
    if (/(?:^|[^\\])(?:\\\\)*\\ud[89a-f]/.test(text)) throw new HoldfastError('invalid_argument', 'a text with half of a surrogate pair cannot be passed');
    // Each character may take three bytes.
    if (text.length * 3 + 1 > MAX_FRAME && new TextEncoder().encode(text).length + 1 > MAX_FRAME) {
      throw new HoldfastError('frame_too_large', `${m.type} of ${text.length} characters`);
    }
    if (this.over === undefined) this.transport.message(text);
  }

  data(kind: number, payload: Uint8Array): void {
    if (this.over === undefined) this.transport.data(kind, payload);
  }

  /** close closes the connection with an error, and calls closed at once. */
  close(err = new HoldfastError('lost', 'the connection was closed')): void {
    if (this.over !== undefined) return;
    this.ended(err);
    this.transport.close();
  }

  /** closeIfSilent closes the connection if it has received nothing since Connection.received had a value. */
  closeIfSilent(since: number): boolean {
    const silent = this.heard <= since;
    if (silent) this.close(new HoldfastError('lost', 'the connection was silent although an answer was due'));
    return silent;
  }

  /** watch sends a ping each time after CALM_MS of silence, and closes the connection if nothing comes for PING_MS then. */
  watch(): void {
    const since = this.heard;
    this.silence = setTimeout(() => {
      if (this.heard > since || this.isPaused) return this.watch();
      this.send({ type: 'ping', request_id: PING });
      this.silence = setTimeout(() => {
        if (this.isPaused || !this.closeIfSilent(since)) this.watch();
      }, PING_MS);
    }, CALM_MS);
  }

  /** So much waits to be sent that no size and no interrupt should be added. */
  get full(): boolean {
    return (this.transport.unsent ?? 0) >= MAX_UNSENT;
  }

  get pausable(): boolean {
    return this.transport.pause !== undefined && this.transport.resume !== undefined;
  }

  pause(): void {
    this.isPaused = true;
    this.transport.pause?.();
  }

  resume(): void {
    this.isPaused = false;
    this.transport.resume?.();
  }

  /** hello sends the hello. Errors: the error that the proxy replies, `lost`, `decode`. */
  hello(o: ConnectOptions): Promise<void> {
    return new Promise((done, failed) => {
      const late = setTimeout(() => this.close(new HoldfastError('lost', `no welcome within ${HELLO_MS} ms`)), HELLO_MS);
      const end = (err?: HoldfastError): void => {
        clearTimeout(late);
        this.rest();
        if (err === undefined) return done();
        this.close(err);
        failed(err);
      };
      this.begin({
        message: (m) => end(this.welcomed(m)),
        closed: end,
      });
      this.send({
        type: 'hello', protocol: SPOKEN, client: o.client ?? 'holdfast-client', pid: pid(),
        ...(o.token !== undefined && { token: o.token }), ...(o.secret !== undefined && { secret: o.secret }),
      });
    });
  }

  private welcomed(m: Message): HoldfastError | undefined {
    switch (m.type) {
      case 'welcome': {
        const theirs = object<VersionRange>(m, 'protocol');
        const agreed = int(m, 'agreed');
        if (agreed < SPOKEN.min || agreed > SPOKEN.max) {
          return new HoldfastError('protocol_mismatch', `the proxy speaks versions ${theirs.min} to ${theirs.max}, this client ${SPOKEN.min} to ${SPOKEN.max}`);
        }
        this.welcome = m as unknown as Welcome;
        this.transport.limit = MAX_FRAME;
        return undefined;
      }
      case 'error':
        return errorOf(m);
      case 'goaway':
        return goingAway(m);
    }
    return new HoldfastError('decode', `hello answered by ${m.type}`);
  }
}

/** goingAway returns the error of a connection that ended with goaway. It contains the time to wait before the next one. */
export function goingAway(m: Message): HoldfastError {
  return new HoldfastError('lost', `the proxy is ending: ${str(m, 'reason')}; connect again`, { retryable: true, retryAfterMs: int(m, 'retry_after_ms') });
}

function pid(): number | undefined {
  return (globalThis as { process?: { pid?: number } }).process?.pid;
}

/** retryAfter returns the milliseconds that the proxy has asked to wait before the next attempt. */
export function retryAfter(why: HoldfastError): number {
  return Math.min(why.retryAfterMs ?? 0, MAX_RETRY_AFTER_MS);
}

export const closed = (): HoldfastError => new HoldfastError('client_closed', 'it was closed');

/** A Dialer makes connections. */
export class Dialer {
  readonly min: number;
  readonly max: number;
  readonly giveUp: number;
  readonly answer: number;
  /** Receives the error of each failed attempt that will be repeated. */
  failed: (err: HoldfastError) => void = () => {};

  /** The proxy is behind a gate, which asks with goaway for another connection before it closes the present one. */
  readonly isBehindGate: boolean;

  private readonly hasOtherGates: boolean;
  private readonly reach: ((signal: AbortSignal) => Promise<Transport>) | undefined;

  constructor(private readonly o: ConnectOptions) {
    const ways = [o.url, o.socketPath, o.ssh, o.gate, o.transport].filter((way) => way !== undefined);
    if (ways.length !== 1) throw new HoldfastError('invalid_argument', 'one of url, socketPath, ssh, gate and transport must say where the proxy is');
    this.reach = o.transport ?? (o.ssh && ssh(o.ssh)) ?? (o.gate && ('url' in o.gate ? gateSocket(o.gate, o.WebSocket) : gate(o.gate)));
    this.isBehindGate = o.gate !== undefined;
    this.hasOtherGates = o.gate !== undefined && 'addresses' in o.gate && o.gate.addresses.length > 1;
    this.min = Math.min(Math.max(1, o.redial?.min ?? 20), MAX_TIMER_MS);
    this.max = Math.min(Math.max(this.min, o.redial?.max ?? 2000), MAX_TIMER_MS);
    this.giveUp = Math.min(o.redial?.giveUp ?? 30000, MAX_TIMER_MS);
    this.answer = Math.min(o.redial?.answer ?? 30000, MAX_TIMER_MS);
  }

  private transport(signal: AbortSignal): Promise<Transport> {
    if (this.reach !== undefined) return this.reach(signal);
    if (this.o.socketPath !== undefined) return unixSocket(this.o.socketPath, signal);
    return webSocket(String(this.o.url), this.o.WebSocket, undefined, signal);
  }

  // reached returns a transport. If the signal is aborted, or if the transport takes too long, reached ends the attempt, and
  // closes the transport if it comes nevertheless.
  private reached(signal: AbortSignal): Promise<Transport> {
    const attempt = new AbortController();
    return new Promise((done, failed) => {
      const settle = (): void => {
        clearTimeout(late);
        signal.removeEventListener('abort', stop);
      };
      const stop = (): void => {
        settle();
        failed(new HoldfastError('connect', `no connection within ${DIAL_MS} ms`));
        attempt.abort();
      };
      const late = setTimeout(stop, DIAL_MS);
      signal.addEventListener('abort', stop);
      if (signal.aborted) stop();
      (async () => this.transport(attempt.signal))().then((transport) => {
        settle();
        if (attempt.signal.aborted) transport.close();
        else done(transport);
      }, (err: unknown) => {
        settle();
        failed(err);
      });
    });
  }

  /** dial makes one attempt. */
  async dial(signal: AbortSignal): Promise<Connection> {
    let transport: Transport;
    try {
      transport = await this.reached(signal);
    } catch (err) {
      throw asError(err, 'connect');
    }
    const conn = new Connection(transport);
    const stop = (): void => conn.close(closed());
    signal.addEventListener('abort', stop);
    try {
      if (signal.aborted) stop();
      await conn.hello(this.o);
    } finally {
      signal.removeEventListener('abort', stop);
    }
    if (this.hasOtherGates) conn.watch();
    return conn;
  }

  /**
   * redial makes attempts until there is a connection, for at most a number of milliseconds. It throws an error at once
   * if waiting cannot help.
   */
  async redial(signal: AbortSignal, giveUp = Infinity): Promise<Connection> {
    const deadline = Date.now() + giveUp;
    for (let wait = this.min; ; wait = Math.min(2 * wait, this.max)) {
      let why: HoldfastError;
      try {
        const conn = await this.dial(signal);
        if (!signal.aborted) return conn;
        conn.close();
        throw closed();
      } catch (err) {
        why = asError(err);
      }
      if (signal.aborted) throw closed();
      const ms = Math.max(wait, retryAfter(why));
      if (!why.retryable || Date.now() + ms > deadline) throw why;
      this.failed(why);
      await pause(ms, signal);
    }
  }
}
