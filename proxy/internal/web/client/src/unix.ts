// The transport over a Unix socket, or a named pipe on Windows. Only Node and Electron have it.

import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { asError, HoldfastError } from './errors.js';
import * as frames from './frames.js';
import type { Transport, TransportHandler } from './transport.js';

/** Time that a connection waits at its end until the proxy has read the last frames. */
const LINGER_MS = 1000;

/** unixSocket connects to a proxy's socket. Errors: `connect`. */
export function unixSocket(path: string): Promise<Transport> {
  return new Promise((done, failed) => {
    const sock = connect(path);
    const refused = (err: Error): void => failed(new HoldfastError('connect', err.message));
    sock.once('error', refused);
    sock.once('connect', () => {
      sock.off('error', refused);
      done(new UnixTransport(sock));
    });
  });
}

class UnixTransport implements Transport {
  private readonly reader = new frames.FrameReader();
  private handler: TransportHandler | undefined;
  private over = false;

  constructor(private readonly sock: Socket) {
    sock.on('error', () => {}); // the event close follows
  }

  get limit(): number {
    return this.reader.max;
  }

  set limit(n: number) {
    this.reader.max = n;
  }

  open(handler: TransportHandler): void {
    this.handler = handler;
    this.sock.on('close', () => this.end(new HoldfastError('lost', 'the connection was lost')));
    this.sock.on('data', (piece: Buffer) => this.received(piece)); // the socket begins to read when this listener is added
  }

  private received(piece: Uint8Array): void {
    try {
      this.reader.read(piece, (kind, payload) => {
        if (this.over) return;
        if (kind === frames.CONTROL) this.handler?.message(new TextDecoder().decode(payload));
        else this.handler?.data(kind, payload);
      });
    } catch (err) {
      this.end(asError(err));
    }
  }

  private end(err: HoldfastError): void {
    if (this.over) return;
    this.over = true;
    this.sock.resume(); // a paused socket does not notice its end
    this.sock.destroySoon(); // after the frames that wait to be sent
    const late = setTimeout(() => this.sock.destroy(), LINGER_MS);
    late.unref();
    this.handler?.closed(err);
  }

  message(text: string): void {
    if (!this.over) this.sock.write(frames.frame(frames.CONTROL, new TextEncoder().encode(text)));
  }

  data(kind: number, payload: Uint8Array): void {
    if (!this.over) this.sock.write(frames.frame(kind, payload));
  }

  close(): void {
    this.end(new HoldfastError('lost', 'the connection was closed'));
  }

  pause(): void {
    this.sock.pause();
  }

  resume(): void {
    if (!this.over) this.sock.resume();
  }
}
