// Frames as described in protocol/SPEC.md: [u32 length][u8 kind][payload]. A binary message of a WebSocket is a frame
// without the length, and a text message is a control message.

import { HoldfastError } from './errors.js';
import { ByteQueue } from './queue.js';

export const CONTROL = 0;
export const OUTPUT = 1;
export const INPUT = 2;
export const SNAPSHOT = 3;
export const VIEW = 4;

/** Largest size of a frame's kind and payload in bytes. */
export const MAX_FRAME = 1 << 20;
/** Largest size before the hello was accepted. */
export const MAX_HELLO = 1 << 16;
/** Largest size of the data in one frame that this client sends. */
export const MAX_DATA = 32768;
/** Size of the attachment's number and the offset before the data. */
export const DATA_HEAD = 12;

/** frame returns a whole frame, for a stream of bytes. */
export function frame(kind: number, payload: Uint8Array): Uint8Array {
  const raw = new Uint8Array(5 + payload.length);
  new DataView(raw.buffer).setUint32(0, payload.length + 1);
  raw[4] = kind;
  raw.set(payload, 5);
  return raw;
}

/** message returns a frame without its length, for a WebSocket. */
export function message(kind: number, payload: Uint8Array): Uint8Array {
  const raw = new Uint8Array(1 + payload.length);
  raw[0] = kind;
  raw.set(payload, 1);
  return raw;
}

/** inputPayload returns the payload of an input frame. */
export function inputPayload(attachment: number, offset: number, data: Uint8Array): Uint8Array {
  const payload = new Uint8Array(DATA_HEAD + data.length);
  const view = new DataView(payload.buffer);
  view.setUint32(0, attachment);
  view.setBigUint64(4, BigInt(offset));
  payload.set(data, DATA_HEAD);
  return payload;
}

/** parseData parses the payload of a frame of output, input, snapshot or view. */
export function parseData(payload: Uint8Array): { attachment: number; offset: number; data: Uint8Array } {
  if (payload.length < DATA_HEAD) throw new HoldfastError('decode', `a data frame of ${payload.length} bytes`);
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  const offset = Number(view.getBigUint64(4));
  if (!Number.isSafeInteger(offset)) throw new HoldfastError('decode', `offset ${offset} is beyond 2^53`);
  return { attachment: view.getUint32(0), offset, data: payload.subarray(DATA_HEAD) };
}

/**
 * A FrameReader splits a stream of bytes into frames. It stores at most one incomplete frame and the last piece of the
 * stream.
 */
export class FrameReader {
  private readonly rest = new ByteQueue();
  /** Largest size of a frame's kind and payload. */
  max = MAX_HELLO;

  /** read adds a piece of the stream, and calls each for every complete frame. The payload is a copy. */
  read(piece: Uint8Array, each: (kind: number, payload: Uint8Array) => void): void {
    this.rest.add(piece);
    while (this.rest.length >= 4) {
      const head = this.rest.peek(0, 4);
      const n = new DataView(head.buffer, head.byteOffset, 4).getUint32(0);
      if (n === 0 || n > this.max) throw new HoldfastError('decode', `a frame of ${n} bytes`);
      if (this.rest.length < 4 + n) return;
      const whole = this.rest.peek(4, 4 + n).slice();
      this.rest.take(4 + n);
      each(whole[0] as number, whole.subarray(1));
    }
  }
}
