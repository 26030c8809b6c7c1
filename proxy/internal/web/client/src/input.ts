import { MAX_DATA } from './frames.js';
import { ByteQueue } from './queue.js';

/**
 * An InputBuffer keeps what was written and not yet accepted, so that it can be sent
 * again over another connection.
 */
export class InputBuffer {
  private readonly data = new ByteQueue();
  /** Offset of the first byte that is kept: everything before was accepted. */
  base = 0;
  /** Offset of the next byte to send on this connection. */
  private sent = 0;

  get length(): number {
    return this.data.length;
  }

  private get end(): number {
    return this.base + this.data.length;
  }

  add(bytes: Uint8Array): void {
    this.data.add(bytes);
  }

  /** accepted forgets what is the supervisor's now. */
  accepted(offset: number): void {
    if (offset <= this.base) return;
    const n = Math.min(offset, this.end) - this.base;
    this.data.take(n);
    this.base += n;
    this.sent = Math.max(this.sent, this.base);
  }

  /**
   * resume begins to send at offset, where the session left off. A first attachment
   * with a known writer's name begins there, too. An offset before base is that of a
   * session which has forgotten this writer: what was accepted stays typed, and the
   * rest goes on under the new numbers.
   */
  resume(offset: number, first: boolean): void {
    if (first || offset < this.base) {
      this.base = this.sent = offset;
      return;
    }
    this.accepted(offset);
    this.sent = Math.max(this.base, Math.min(offset, this.end));
  }

  /** next returns a copy of what is to be sent next, or undefined. */
  next(): { offset: number; data: Uint8Array } | undefined {
    const from = this.sent - this.base;
    const data = this.data.peek(from, from + MAX_DATA).slice();
    if (data.length === 0) return undefined;
    const offset = this.sent;
    this.sent += data.length;
    return { offset, data };
  }
}
