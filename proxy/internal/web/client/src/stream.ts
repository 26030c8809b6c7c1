import type { Readable, Writable } from 'node:stream';
import { asError, HoldfastError } from './errors.js';
import * as frames from './frames.js';
import { LINGER_MS } from './transport.js';
import type { Transport, TransportHandler } from './transport.js';

/**
 * A StreamTransport carries frames over two streams of bytes. finish ends both after the frames that wait to be sent, and
 * destroy ends them at once.
 */
export class StreamTransport implements Transport {
  private readonly reader = new frames.FrameReader();
  private handler: TransportHandler | undefined;
  private over = false;

  constructor(
    private readonly input: Readable, private readonly output: Writable, private readonly finish: () => void, private readonly destroy: () => void,
  ) {
    input.on('error', () => {}); // the event close follows
  }

  get limit(): number {
    return this.reader.max;
  }

  set limit(n: number) {
    this.reader.max = n;
  }

  get unsent(): number {
    return this.output.writableLength;
  }

  open(handler: TransportHandler): void {
    this.handler = handler;
    this.input.on('close', () => this.end(new HoldfastError('lost', 'the connection was lost')));
    this.input.on('data', (piece: Buffer) => this.received(piece));
    this.input.resume();
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
    this.input.resume(); // a paused stream does not notice its end
    this.finish();
    const late = setTimeout(this.destroy, LINGER_MS);
    late.unref();
    this.handler?.closed(err);
  }

  message(text: string): void {
    if (!this.over) this.output.write(frames.frame(frames.CONTROL, new TextEncoder().encode(text)));
  }

  data(kind: number, payload: Uint8Array): void {
    if (!this.over) this.output.write(frames.frame(kind, payload));
  }

  close(): void {
    this.end(new HoldfastError('lost', 'the connection was closed'));
  }

  pause(): void {
    this.input.pause();
  }

  resume(): void {
    if (!this.over) this.input.resume();
  }
}
