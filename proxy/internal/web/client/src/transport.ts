import { asError, HoldfastError } from './errors.js';
import * as frames from './frames.js';

/** The callbacks of a transport. After `closed` it calls none of them. */
export interface TransportHandler {
  /** Receives the JSON of a control message. */
  message(text: string): void;
  /** Receives a frame of another kind. */
  data(kind: number, payload: Uint8Array): void;
  /** The transport has ended. err is its error, if there is one. */
  closed(err?: HoldfastError): void;
}

/**
 * A Transport carries frames in order until it ends. Besides a WebSocket or a Unix socket, a program may pass other
 * channels to `connect`, such as Electron's MessagePort.
 */
export interface Transport {
  /** Sets the handler of all messages, those received before as well. It is called once. */
  open(handler: TransportHandler): void;
  message(text: string): void;
  data(kind: number, payload: Uint8Array): void;
  /** Ends the transport. Messages that were sent before may still arrive. */
  close(): void;
  /**
   * Stops and continues reading. If a transport lacks one of both, a viewer that is too slow closes the connection, and
   * makes another one when it has processed its output.
   */
  pause?(): void;
  resume?(): void;
  /** Largest size of a received frame. The client raises it when the proxy has accepted the hello. */
  limit?: number;
  /** Bytes that wait to be sent. If there are many, the client adds no sizes and no interrupts. */
  readonly unsent?: number;
}

/** Names another host, and how ssh reaches the proxy there. In Node and Electron. */
export interface SSHOptions {
  /** As for ssh: a host, user@host, or a name of ~/.ssh/config. */
  host: string;
  /** ssh and its options; default `ssh -o ConnectTimeout=15 -o ServerAliveInterval=5`. */
  command?: string[];
  /** The program of the proxy on the host; default `proxy`, which is also looked for in ~/.local/bin. */
  program?: string;
  /** Directory of Holdfast's files on the host; default that of the user there. */
  dir?: string;
  /** Name of the proxy on the host; default `proxy`. */
  proxy?: string;
  /** Start a proxy and a supervisor on the host if none runs. */
  start?: boolean;
}

/** Names the gate of a host, or several gates that have it. In Node and Electron. `parseGate` makes the first three fields. */
export interface GateOptions {
  /**
   * `HOST:PORT` of each gate. The client begins with the one that served it last, and tries the next one when a gate
   * fails or has not answered for half a second.
   */
  addresses: string[];
  /** SHA-256 of the certificate of all gates: 64 hexadecimal digits in lower case. */
  fingerprint: string;
  /** The token of clients; empty for a gate whose policy knows `userToken`. */
  token: string;
  /** The token for the policy of the gate; default the client's option `token`. */
  userToken?: string;
  /** The name of the host at the gate. */
  host: string;
  /** Start a proxy and a supervisor on the host if none runs. */
  start?: boolean;
}

/** Names a host of a gate that a WebSocket reaches: in a browser, Node and Electron. */
export interface GateSocketOptions {
  /** `wss://HOST:PORT/v1/gate`. */
  url: string | URL;
  /** The token of clients. The page of the gate needs none, because it has a cookie. */
  token?: string;
  /** The name of the host at the gate. */
  host: string;
  /** Start a proxy and a supervisor on the host if none runs. */
  start?: boolean;
}

/**
 * parseGate returns the options in the text that `proxy gate client-token` prints. Commas separate the addresses of
 * several gates. Errors: `invalid_argument`.
 */
export function parseGate(text: string): Omit<GateOptions, 'host'> {
  const parts = /^holdfast-client\/([^/,]+:\d+(?:,[^/,]+:\d+)*)\/([0-9a-f]{64})\/([0-9a-f]{64}|none)$/.exec(text.trim());
  if (parts === null) {
    throw new HoldfastError('invalid_argument', 'the text has not the form holdfast-client/HOST:PORT/FINGERPRINT/TOKEN; copy what proxy gate client-token prints');
  }
  const [, addresses, fingerprint, token] = parts as unknown as [string, string, string, string];
  return { addresses: addresses.split(','), fingerprint, token: token === 'none' ? '' : token };
}

/** The members of a WebSocket that are used here. The browser's, Node's and that of npm's ws have them. */
export interface WebSocketLike {
  binaryType: string;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  readonly bufferedAmount?: number;
  send(data: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
  pause?(): void;
  resume?(): void;
  /** Closes the connection without waiting for the other side. Only that of npm's ws has it. */
  terminate?(): void;
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

export const SUBPROTOCOL = 'holdfast.v1';

/** Time that a connection waits at its end until the other side has read the last frames. */
export const LINGER_MS = 1000;
/** The time that a WebSocket may take to open. */
const OPEN_MS = 5000;

/**
 * webSocket connects to `/v1/api` of a proxy, or with another subprotocol to a gate. If the signal is aborted, it ends the
 * attempt. Errors: `connect`, also if the other side accepts the connection and does not answer the handshake.
 */
export function webSocket(url: string, Socket: WebSocketConstructor | undefined, subprotocol = SUBPROTOCOL, signal?: AbortSignal): Promise<WebSocketTransport> {
  const WS = Socket ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
  if (WS === undefined) {
    return Promise.reject(new HoldfastError('connect', 'this Node has no WebSocket: give one as options.WebSocket', { retryable: false }));
  }
  return new Promise((done, failed) => {
    const ws = new WS(url, [subprotocol]);
    ws.binaryType = 'arraybuffer';
    const why = (event: { message?: unknown; reason?: unknown; code?: unknown }): HoldfastError => {
      const text = [event.message, event.reason, event.code && `code ${String(event.code)}`].find((s) => typeof s === 'string' && s !== '');
      return new HoldfastError('connect', `the WebSocket does not open${text === undefined ? '' : `: ${String(text)}`}`);
    };
    const settle = (): void => {
      clearTimeout(late);
      signal?.removeEventListener('abort', stop);
    };
    const end = (err: HoldfastError): void => {
      settle();
      failed(err);
    };
    const stop = (): void => {
      end(new HoldfastError('connect', 'the attempt was ended'));
      ws.close();
    };
    const late = setTimeout(() => {
      end(new HoldfastError('connect', `the WebSocket does not open within ${OPEN_MS} ms`));
      ws.close();
    }, OPEN_MS);
    ws.onopen = () => {
      settle();
      done(new WebSocketTransport(ws));
    };
    ws.onerror = (event: { message?: unknown }) => end(why(event));
    ws.onclose = (event: { code?: unknown }) => end(why(event));
    signal?.addEventListener('abort', stop);
    if (signal?.aborted === true) stop();
  });
}

export class WebSocketTransport implements Transport {
  limit = frames.MAX_HELLO;
  pause?: () => void;
  resume?: () => void;
  private handler: TransportHandler | undefined;
  // Messages received before open is called. A proxy sends none before the hello.
  private early: (() => void)[] = [];
  private over = false;

  constructor(private readonly ws: WebSocketLike) {
    if (typeof ws.pause === 'function' && typeof ws.resume === 'function') {
      this.pause = () => ws.pause?.();
      this.resume = () => ws.resume?.();
    }
    ws.onmessage = (event: { data: unknown }) => this.came(() => this.received(event.data));
    ws.onerror = () => {}; // the event close follows
    ws.onclose = (event: { code?: number; reason?: string }) => this.came(() => this.end(
      new HoldfastError('lost', `the WebSocket was closed with ${event.code ?? 0} ${event.reason ?? ''}`.trim()),
    ));
  }

  get unsent(): number {
    return this.ws.bufferedAmount ?? 0;
  }

  private came(what: () => void): void {
    if (this.handler !== undefined) return what();
    if (this.early.length < 16) this.early.push(what);
    else this.close();
  }

  open(handler: TransportHandler): void {
    this.handler = handler;
    for (const what of this.early.splice(0)) what();
  }

  /**
   * ask sends a message, and returns the next message. `open`, or another call, receives those that follow. Errors:
   * `lost` if the transport ends before, or if no message arrives within a number of milliseconds.
   */
  ask(text: string, withinMs: number): Promise<string> {
    return new Promise((done, failed) => {
      const late = setTimeout(() => this.end(new HoldfastError('lost', `no answer within ${withinMs} ms`)), withinMs);
      const end = (): void => {
        clearTimeout(late);
        this.handler = undefined;
      };
      this.open({
        message: (answer) => {
          end();
          done(answer);
        },
        data: (kind) => this.end(new HoldfastError('decode', `a message of kind ${kind} instead of an answer`)),
        closed: (err) => {
          end();
          failed(err);
        },
      });
      this.message(text);
      if (this.over) {
        end();
        failed(new HoldfastError('lost', 'the connection was closed'));
      }
    });
  }

  private received(data: unknown): void {
    if (this.over) return;
    try {
      if (typeof data === 'string') {
        if (data.length > this.limit) throw new HoldfastError('decode', `a message of ${data.length} characters`);
        return this.handler?.message(data);
      }
      if (!(data instanceof ArrayBuffer)) throw new HoldfastError('decode', 'a message that is no ArrayBuffer');
      const raw = new Uint8Array(data);
      if (raw.length === 0 || raw.length > this.limit) throw new HoldfastError('decode', `a message of ${raw.length} bytes`);
      if (raw[0] !== frames.CONTROL) this.handler?.data(raw[0] as number, raw.subarray(1));
    } catch (err) {
      this.end(asError(err));
    }
  }

  private end(err: HoldfastError): void {
    if (this.over) return;
    this.over = true;
    this.ws.close();
    if (this.ws.terminate !== undefined) { // ws waits 30 s for the other side, and keeps the process alive meanwhile
      const late = setTimeout(() => this.ws.terminate?.(), LINGER_MS);
      (late as { unref?(): void }).unref?.();
    }
    this.handler?.closed(err);
  }

  message(text: string): void {
    if (!this.over) this.ws.send(text);
  }

  data(kind: number, payload: Uint8Array): void {
    if (!this.over) this.ws.send(frames.message(kind, payload));
  }

  close(): void {
    this.resume?.(); // a paused socket of npm's ws does not receive the close of the other side
    this.end(new HoldfastError('lost', 'the connection was closed'));
  }
}
