import type { AttachSpec, Resume } from './types.js';

/** A Position is the position of a viewer in a session's output. */
export class Position {
  instance = '';
  private offset = 0; // offset of the next byte of output, or of the snapshot that is being received
  /** All output before this offset was emitted or reported as missed. */
  had = 0;
  private whole = 0; // had before the snapshots that were received in part
  private left = 0; // bytes of the snapshot that were not received yet
  private view = false; // the viewer's own view is shown, which output cannot continue

  /**
   * All output before this offset was emitted, or is contained in a snapshot that was emitted completely. A viewer that
   * does not know of an incomplete snapshot can resume here.
   */
  get stored(): number {
    return this.left > 0 ? this.whole : this.had;
  }

  attached(instance: string, offset: number, missed: number, snapshotBytes: number, view: boolean, resume: Resume | undefined): void {
    if (this.left === 0) this.whole = resume?.offset ?? 0;
    Object.assign(this, { instance, offset, had: offset, left: snapshotBytes, view });
    if (snapshotBytes > 0 && resume !== undefined) this.had = resume.offset + missed;
  }

  resync(offset: number, missed: number, snapshotBytes: number, view: boolean): void {
    if (this.left === 0) this.whole = this.had;
    Object.assign(this, { offset, left: snapshotBytes, view });
    this.had += missed;
    this.complete();
  }

  // complete moves to the offset of the snapshot if all of it was received.
  private complete(): void {
    if (this.left === 0) this.had = this.offset;
  }

  output(offset: number, n: number): void {
    this.had = this.offset = offset + n;
  }

  /** snapshot counts n bytes of a snapshot, and returns the number of the remaining bytes. */
  snapshot(n: number): number {
    this.left = Math.max(0, this.left - n);
    this.complete();
    return this.left;
  }

  viewed(offset: number): void {
    this.had = this.offset = offset;
    this.view = true;
  }

  /**
   * resume returns the options of an attach that continues at this position. If a snapshot was received in part, they
   * request a new one. If the viewer shows a view of its own, or output at another size, they request a snapshot of the
   * screen, because output cannot continue it. They never steal, so that a client that has attached in the meantime
   * keeps the session.
   */
  resume(spec: AttachSpec, reshaped: boolean): AttachSpec {
    const snapshot = this.left > 0 || this.view || reshaped;
    return {
      ...spec, resume: { instance: this.instance, offset: this.had }, steal: false, snapshot,
      screen_only: snapshot && this.left === 0,
    };
  }
}
