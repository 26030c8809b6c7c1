import { MAX_DATA } from './frames.js';
import { ByteQueue } from './queue.js';

/** An InputBuffer stores written input until it was accepted, so that it can be sent again on another connection. */
export class InputBuffer {
  private readonly data = new ByteQueue();
  /** Offset of the first stored byte. All input before it was accepted. */
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

  /** accepted removes the input before offset, because the supervisor has accepted it. */
  accepted(offset: number): void {
    if (offset <= this.base) return;
    const n = Math.min(offset, this.end) - this.base;
    this.data.take(n);
    this.base += n;
    this.sent = Math.max(this.sent, this.base);
  }

  /**
   * resume continues at offset, up to which the session has accepted the writer's input. The first attachment of a
   * known writer begins there, too. If offset is before base, the session has forgotten this writer. The accepted
   * input must not be sent again, so the remaining input gets new offsets.
   */
  resume(offset: number, first: boolean): void {
    if (first || offset < this.base) {
      this.base = this.sent = offset;
      return;
    }
    this.accepted(offset);
    this.sent = Math.max(this.base, Math.min(offset, this.end));
  }

  /** next returns a copy of the input to send next, or undefined if there is none. */
  next(): { offset: number; data: Uint8Array } | undefined {
    const from = this.sent - this.base;
    const data = this.data.peek(from, from + MAX_DATA).slice();
    if (data.length === 0) return undefined;
    const offset = this.sent;
    this.sent += data.length;
    return { offset, data };
  }
}
