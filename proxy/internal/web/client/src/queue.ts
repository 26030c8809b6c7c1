/**
 * A ByteQueue is bytes that are added at the end and taken from the beginning.
 * Adding is amortised: a byte is copied a few times, however small the pieces are.
 */
export class ByteQueue {
  private data = new Uint8Array(0);
  private from = 0;
  private to = 0;

  get length(): number {
    return this.to - this.from;
  }

  add(bytes: Uint8Array): void {
    if (this.to + bytes.length > this.data.length) this.grow(bytes.length);
    this.data.set(bytes, this.to);
    this.to += bytes.length;
  }

  private grow(n: number): void {
    const need = this.length + n;
    // What was taken makes room before more is asked for.
    const room = need * 2 <= this.data.length ? this.data : new Uint8Array(Math.max(need * 2, 256));
    room.set(this.data.subarray(this.from, this.to), 0);
    this.to = this.length;
    this.from = 0;
    this.data = room;
  }

  /** peek shows bytes that are not copied: they hold until the queue is changed. */
  peek(start: number, end: number): Uint8Array {
    return this.data.subarray(this.from + start, this.from + Math.min(end, this.length));
  }

  /** take forgets the first n bytes, or all if there are fewer. */
  take(n: number): void {
    this.from += Math.min(n, this.length);
    if (this.from === this.to) {
      this.from = this.to = 0;
      if (this.data.length > 1 << 16) this.data = new Uint8Array(0);
    }
  }
}
