/**
 * A ByteQueue is a queue of bytes. The buffer grows by factors, so that each byte is copied only a few times, also if
 * the pieces are small.
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
    // The room of removed bytes is used again before a larger buffer is allocated.
    const room = need * 2 <= this.data.length ? this.data : new Uint8Array(Math.max(need * 2, 256));
    room.set(this.data.subarray(this.from, this.to), 0);
    this.to = this.length;
    this.from = 0;
    this.data = room;
  }

  /** peek returns a part of the queue without a copy. It is valid until the queue changes. */
  peek(start: number, end: number): Uint8Array {
    return this.data.subarray(this.from + start, this.from + Math.min(end, this.length));
  }

  /** take removes the first n bytes, or all bytes if there are fewer. */
  take(n: number): void {
    this.from += Math.min(n, this.length);
    if (this.from === this.to) {
      this.from = this.to = 0;
      if (this.data.length > 1 << 16) this.data = new Uint8Array(0);
    }
  }
}
