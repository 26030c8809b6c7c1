// A gate that a WebSocket reaches: in a browser, whose TLS accepts no certificate by its fingerprint, and in Node. The
// messages are those of a TLS connection (gate.ts).

import { asError, HoldfastError } from './errors.js';
import { MAX_FRAME } from './frames.js';
import { object, parse, str } from './message.js';
import type { Message } from './message.js';
import { webSocket } from './transport.js';
import type { GateSocketOptions, Transport, WebSocketConstructor, WebSocketTransport } from './transport.js';
import type { Labels, State } from './types.js';

/** The WebSocket subprotocol of a gate. */
const SUBPROTOCOL = 'holdfast.gate.v1';
/** The time that a gate may take to answer. It gives a host 10 s to arrive. */
export const ANSWER_MS = 20_000;

/** Describes a host that has joined a gate. */
export interface HostInfo {
  name: string;
  /** The host is connected to a gate. */
  reachable: boolean;
  /** A proxy runs on the host. */
  serving: boolean;
  release?: string;
  system?: string;
  labels?: Labels;
  /** The number of sessions that the gate knows. */
  sessions: number;
  running: number;
  cpus?: number;
  /** When the gate last heard from the host. */
  seen_at?: string;
  gate?: string;
}

/** Describes a session of a host. `unknown`: the host cannot be reached; the session may live or may have ended. */
export interface SessionRow {
  host: string;
  id: string;
  instance: string;
  state: State | 'unknown';
  cols: number;
  rows: number;
  title?: string;
  /** The command and its arguments in one line, cut. */
  command: string;
  labels?: Labels;
  created_at: string;
  exit_code?: number;
}

/** Each field that is set restricts the list. */
export interface SessionFilter {
  id?: string;
  host?: string;
  state?: string;
  labels?: Labels;
  /** A text that the command contains. */
  command?: string;
}

/** checkHost throws `invalid_argument` unless name may be the name of a host. */
export function checkHost(name: string): void {
  if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$/.test(name)) throw new HoldfastError('invalid_argument', `${JSON.stringify(name)} is no name of a host of a gate`);
}

/** enterMessage returns the message that enters a host. A client that was connected before starts no proxy there. */
export function enterMessage(o: { token?: string; userToken?: string; host: string; start?: boolean }, isLater: boolean): string {
  return JSON.stringify({ type: 'enter', token: o.token ?? '', ...(o.userToken !== undefined && { user_token: o.userToken }), host: o.host, ...(isLater ? { again: true } : o.start === true && { start: true }) });
}

/** refusalOf returns the error in an answer of the gate that should be of a type, or undefined if it is. */
export function refusalOf(m: Message, type: string): HoldfastError | undefined {
  if (m.type === type) return undefined;
  if (m.type !== 'refused') return new HoldfastError('decode', `the gate answers with ${m.type} instead of ${type}`);
  return new HoldfastError(codeOf(str(m, 'code')), `gate: ${str(m, 'message')}`);
}

/** codeOf returns the code of an error for a refusal of the gate. */
function codeOf(refusal: string): string {
  switch (refusal) {
    case 'unauthorized':
    case 'permission_denied':
    case 'unknown_host':
      return refusal;
    case 'invalid':
      return 'invalid_argument';
  }
  return 'connect'; // host_unreachable and busy, and refusals of a later release: a further attempt may succeed
}

/** gateSocket returns a function that enters a host through a gate. Its errors are those of `gate`. */
export function gateSocket(o: GateSocketOptions, Socket: WebSocketConstructor | undefined): (signal: AbortSignal) => Promise<Transport> {
  checkHost(o.host);
  let hasBegun = false;
  return async (signal) => {
    const transport = await webSocket(String(o.url), Socket, SUBPROTOCOL, signal);
    try {
      await question(transport, enterMessage(o, hasBegun), 'entered');
    } catch (err) {
      transport.close();
      throw err;
    }
    hasBegun = true;
    return transport;
  };
}

/** question sends a message, and returns the answer, which must be of a type. */
async function question(transport: WebSocketTransport, message: string, type: string): Promise<Message> {
  let m: Message;
  try {
    m = parse(await transport.ask(message, ANSWER_MS));
  } catch (err) {
    const why = asError(err);
    throw why.code === 'lost' ? new HoldfastError('connect', why.message) : why;
  }
  const refusal = refusalOf(m, type);
  if (refusal !== undefined) throw refusal;
  return m;
}

/**
 * A GateDirectory lists the hosts of a gate, and the sessions of all of them. It connects when it is asked, and again
 * after a lost connection. Errors: `connect`, `unauthorized`.
 */
export class GateDirectory {
  private transport: WebSocketTransport | undefined;
  private last: Promise<unknown> = Promise.resolve(); // the gate answers one question after the other

  constructor(private readonly o: Omit<GateSocketOptions, 'host' | 'start'> & { WebSocket?: WebSocketConstructor }) {}

  /** hosts returns the hosts that have joined, sorted by name. */
  hosts(): Promise<HostInfo[]> {
    return this.all<HostInfo>('hosts', 'host_list', {});
  }

  /** sessions returns the sessions of all hosts, sorted by host and id. */
  sessions(filter: SessionFilter = {}): Promise<SessionRow[]> {
    return this.all<SessionRow>('sessions', 'session_list', filter);
  }

  /** close closes the connection. */
  close(): void {
    this.transport?.close();
    this.transport = undefined;
  }

  private async all<Row>(type: 'hosts' | 'sessions', answer: string, filter: SessionFilter): Promise<Row[]> {
    const rows: Row[] = [];
    let after = '';
    do {
      const asked = this.last.then(() => this.ask({ ...filter, type, token: this.o.token ?? '', ...(after !== '' && { after }) }, answer));
      this.last = asked.catch(() => undefined);
      const m = await asked;
      rows.push(...object<Row[]>(m, type));
      after = str(m, 'next');
    } while (after !== '');
    return rows;
  }

  private async ask(m: Message, answer: string): Promise<Message> {
    const before = this.transport;
    this.transport ??= await this.dial();
    try {
      return await question(this.transport, JSON.stringify(m), answer);
    } catch (err) {
      this.close();
      // The gate closes a connection that asks nothing for a while.
      if (before === undefined || !asError(err).retryable) throw err;
      return this.ask(m, answer);
    }
  }

  private async dial(): Promise<WebSocketTransport> {
    const transport = await webSocket(String(this.o.url), this.o.WebSocket, SUBPROTOCOL);
    transport.limit = MAX_FRAME;
    return transport;
  }
}
