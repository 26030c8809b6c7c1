import type { AttachSpec, Resume } from './types.js';

/** A Position is where a viewer stands in a session's output. */
export class Position {
  instance = '';
  private offset = 0; // of the next byte of output, or what the snapshot that is under way stands for
  /** Everything before was shown, or told to be missed. */
  had = 0;
  private left = 0; // bytes of a snapshot still to come
  private view = false; // a view of the viewer's own is shown, which output cannot continue

  attached(instance: string, offset: number, missed: number, snapshotBytes: number, view: boolean, resume: Resume | undefined): void {
    Object.assign(this, { instance, offset, had: offset, left: snapshotBytes, view });
    if (snapshotBytes > 0) this.had = (resume?.offset ?? 0) + missed;
  }

  resync(offset: number, missed: number, snapshotBytes: number, view: boolean): void {
    Object.assign(this, { offset, left: snapshotBytes, view });
    this.had += missed;
    this.complete();
  }

  // A snapshot that has come whole shows all before its offset.
  private complete(): void {
    if (this.left === 0) this.had = this.offset;
  }

  output(offset: number, n: number): void {
    this.had = this.offset = offset + n;
  }

  /** snapshot notes n bytes of one, and returns how many are to come. */
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
   * resume changes a request so that it goes on from here. Half a snapshot is of no
   * use: then a new one is asked for. Nor can output continue a view, or what was
   * shown at another size: then the screen alone is asked for. Who has come in this
   * one's place meanwhile is not stolen from.
   */
  resume(spec: AttachSpec, reshaped: boolean): AttachSpec {
    const snapshot = this.left > 0 || this.view || reshaped;
    return {
      ...spec, resume: { instance: this.instance, offset: this.had }, steal: false, snapshot,
      screen_only: snapshot && this.left === 0,
    };
  }
}
