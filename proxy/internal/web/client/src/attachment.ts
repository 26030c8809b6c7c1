import { fromBase64, token } from './base64.js';
import { closed, Connection, goingAway, retryAfter } from './dialer.js';
import type { Dialer } from './dialer.js';
import { asError, HoldfastError, late, lost } from './errors.js';
import { Emitter } from './events.js';
import * as frames from './frames.js';
import { InputBuffer } from './input.js';
import { errorOf, exitOf, exitOfRecord, int, object, str, wrong } from './message.js';
import type { Message } from './message.js';
import { pause } from './pause.js';
import { Position } from './position.js';
import type { Appearance, AttachSpec, ExitInfo, Resume, SessionInfo, Size, Typed } from './types.js';
import type { ClientState } from './client.js';

/** Bytes of output that listeners may still be processing. If there are more, the client stops reading. */
const OUTPUT_WINDOW = 1 << 20;
const OUTPUT_LOW = OUTPUT_WINDOW / 4;
/** Bytes that each piece of output counts in addition to its data. */
const PIECE_BYTES = 256;
/** Bytes of input that may wait to be accepted. If there are more, write drops its data. */
const INPUT_WINDOW = 1 << 20;
const DETACH_MS = 1000;
const RETRY_FULL_MS = 20;
const MAX_COLS = 2000;
const MAX_ROWS = 1000;
/** Pixels of the widest and of the highest cell. */
const MAX_CELL = 1024;

/** The number of each attachment. A connection carries one attachment, so that a slow listener delays no other attachment. */
const NUMBER = 1;

/** Announces a snapshot, which replaces the output that was shown before. */
export interface Resync {
  /** Output offset of the snapshot. */
  offset: number;
  /** Bytes of output that the viewer does not receive. */
  bytesMissed: number;
  snapshotBytes: number;
  /** The snapshot contains only the screen: erase the screen, and keep the lines above it. If not set, reset the terminal. */
  screenOnly: boolean;
  /** The snapshot shows the viewer's own view. */
  view: boolean;
}

/** A listener may return a promise. While listeners process 1 MiB of output, the client reads no more. */
export type AttachmentEvents = {
  /** Output of the session, and the offset of its first byte. */
  output: (data: Uint8Array, offset: number) => void | PromiseLike<unknown>;
  /** A piece of the snapshot of an offset, and the number of bytes of the snapshot that follow. */
  snapshot: (data: Uint8Array, offset: number, left: number) => void | PromiseLike<unknown>;
  /** With `view: 'own'`: bytes that update the view to an offset. Write them to the terminal like output. */
  view: (data: Uint8Array, offset: number) => void | PromiseLike<unknown>;
  resync: (what: Resync) => void;
  /** The session has this size from this point of the output on. Not with `view: 'own'`. */
  resized: (size: Size) => void;
  /** Another client attached with steal, which ends this attachment. No event follows. */
  stolen: (by: string, detached: boolean) => void;
  /** The session has ended. No event follows. */
  exit: (exit: ExitInfo) => void;
  /** The error that ended the attachment. `line_too_long` and `permission_denied` do not end it. */
  error: (err: HoldfastError) => void;
  state: (state: ClientState) => void;
  /** With `typed`: input of any writer. */
  typed: (what: Typed) => void;
  /** The session's input queue is full, or write dropped its data. */
  inputFull: () => void;
};

const encoder = new TextEncoder();
let attempts = 0;

// attempt returns the number of an attach. The numbers grow with the time, so that those of a program that runs later
// are greater.
function attempt(): number {
  return (attempts = Math.max(attempts + 1, Date.now() * 1000));
}

// checkAppearance throws `invalid_argument` for values that the proxy refuses, because its refusal would end the attachment.
function checkAppearance(looks: Appearance): void {
  for (const colour of [looks.foreground, looks.background, looks.cursor]) {
    if (colour && !/^#[0-9a-f]{6}$/i.test(colour)) throw new HoldfastError('invalid_argument', `a colour must be #rrggbb, but it is ${JSON.stringify(colour)}`);
  }
  for (const pixels of [looks.cell_width ?? 0, looks.cell_height ?? 0]) {
    if (!Number.isInteger(pixels) || pixels < 0 || pixels > MAX_CELL) throw new HoldfastError('invalid_argument', `cell_width and cell_height must be whole numbers up to ${MAX_CELL}`);
  }
}

// checkSize throws `invalid_argument` for a size that the proxy refuses, because its refusal would end the attachment.
function checkSize(cols: number, rows: number): void {
  for (const n of [cols, rows]) {
    if (!Number.isInteger(n) || n < 0) throw new HoldfastError('invalid_argument', `columns and rows must be whole numbers from 0, but they are ${cols} and ${rows}`);
  }
}

// sizeID returns the request id of the n-th size that is sent.
const sizeID = (n: number): string => `size-${n}`;

function defer<T>(): { promise: Promise<T>; done: (value: T) => void; failed: (err: HoldfastError) => void } {
  let done!: (value: T) => void, failed!: (err: HoldfastError) => void;
  const promise = new Promise<T>((d, f) => {
    done = d;
    failed = f;
  });
  promise.catch(() => {}); // a rejection that nothing awaits is no unhandled one; others still receive it
  return { promise, done, failed };
}

/**
 * An Attachment is a view of a session. It emits the session's output as events, and sends input to the session. If
 * its connection is lost, it resumes at its offsets on another connection, so that each byte arrives once in both
 * directions.
 *
 * It emits the first event in the turn of the event loop after `attach` has resolved, so that listeners that are
 * added before receive all events.
 */
export class Attachment {
  /** Resolves when the session has ended. It is rejected if the attachment ends first. */
  readonly exited: Promise<ExitInfo>;

  private info: SessionInfo | undefined;
  private now: ClientState = 'reconnecting';
  private readonly events = new Emitter<AttachmentEvents>();
  private readonly stop = new AbortController();
  private readonly pos = new Position();
  private readonly input = new InputBuffer();
  private readonly ended = defer<ExitInfo>();
  private readonly detached = defer<void>();
  private why: HoldfastError | undefined; // the reason for the end
  private leaving = false; // detach was called, so that output is no longer emitted
  private conn: Connection | undefined; // while attached over it
  private next: Connection | undefined; // replaces conn, which is closed already
  private refused: HoldfastError | undefined; // the error with which the proxy refused or ended the attachment
  private sending: AttachSpec | undefined; // the options in this connection's attach
  private timer: ReturnType<typeof setTimeout> | undefined; // closes a connection on which the attach or input is not answered
  private watched = false; // timer waits until input is accepted
  private late = false; // the next attach has no attempt
  private full = false; // the session's input queue was full, so no input is sent until a timer ends

  private pending = 0; // bytes that listeners are processing
  private paused = false;
  private dropped = false; // the connection was closed because pending is too large
  private room: (() => void) | undefined;
  private starting: (() => void)[] | undefined = []; // events to emit in the next turn
  private startedAt = 0; // the offset before the events of starting

  private size: Size | undefined; // to be sent
  private unconfirmed: Size | undefined; // the size that was sent last, until the proxy confirms it
  private resizes = 0; // the number of sizes that were sent, which identifies the last one
  private looks: Appearance | undefined; // to be sent
  private reshaped = false; // the own view had another size when it was last shown
  private half = ''; // the first half of a surrogate pair, with which the last text ended
  private settled: (() => void)[] = []; // callbacks of flush

  private constructor(private readonly dialer: Dialer, private readonly id: string, private spec: AttachSpec, private readonly name: string) {
    this.spec = { ...spec, writer: spec.writer ?? token(8), answers: spec.answers === true && spec.mode !== 'read_only' };
    this.exited = this.ended.promise;
  }

  /**
   * open attaches to a session. If the signal is aborted before it is attached, the attempt ends, and the error is
   * `client_closed`.
   * @internal
   */
  static async open(dialer: Dialer, id: string, spec: AttachSpec, name: string, signal: AbortSignal): Promise<Attachment> {
    const a = new Attachment(dialer, id, spec, name);
    const first = defer<void>();
    const stop = (): void => {
      if (a.info !== undefined) return;
      first.failed(closed());
      a.end(closed());
    };
    signal.addEventListener('abort', stop);
    a.run(first).catch((err: unknown) => a.fail(asError(err)));
    try {
      await first.promise;
    } finally {
      signal.removeEventListener('abort', stop);
    }
    return a;
  }

  /** The session as it was at the last attach. */
  get session(): SessionInfo {
    return this.info as SessionInfo;
  }

  get state(): ClientState {
    return this.now;
  }

  /** Another attachment can resume at this offset, with writer. While a snapshot is incomplete, it is the offset before that snapshot. */
  get offset(): number {
    return this.starting === undefined ? this.pos.stored : this.startedAt;
  }

  /** The position at which another attachment can resume. If this one has a view of its own, resume with `snapshot`. */
  get resume(): Resume {
    return { instance: this.pos.instance, offset: this.offset };
  }

  /** The writer of the input. */
  get writer(): string {
    return this.spec.writer as string;
  }

  on<K extends keyof AttachmentEvents>(event: K, fn: AttachmentEvents[K]): () => void {
    return this.events.on(event, fn);
  }

  private setState(state: ClientState): void {
    if (this.now === state) return;
    this.now = state;
    this.tell(() => this.events.emit('state', state));
  }

  // tell calls fn, which emits an event. If no listener can have been added yet, it calls fn in the next turn.
  private tell(fn: () => void): void {
    if (this.starting !== undefined) this.starting.push(fn);
    else fn();
  }

  private begin(): void {
    const all = this.starting ?? [];
    this.starting = undefined;
    for (const fn of all) fn();
    this.relieve();
  }

  // run attaches on one connection after another until the attachment ends.
  private async run(first: ReturnType<typeof defer<void>>): Promise<void> {
    const signal = this.stop.signal;
    const deadline = Date.now() + this.dialer.giveUp;
    let wait = this.dialer.min;
    for (;;) {
      const before = this.progress();
      let why: HoldfastError;
      try {
        const conn = this.next ?? await this.dialer.redial(signal, this.info === undefined ? deadline - Date.now() : Infinity);
        this.next = undefined;
        why = await this.serve(conn, first);
      } catch (err) {
        why = asError(err);
      }
      this.conn = undefined;
      this.paused = false;
      if (this.over || signal.aborted) return this.next?.close();
      if (this.next !== undefined) continue;
      const again = why.code === 'superseded' && !this.late && !this.reached(before);
      this.late = again; // an earlier attempt has a greater number because the clock was set back
      if (this.info === undefined) {
        if (!again && (!lost(why) || Date.now() > deadline)) return first.failed(why);
      } else if (!again && !lost(why) && !why.retryable) {
        return this.fail(why);
      }
      if (this.info !== undefined) this.setState('reconnecting');
      if (this.dropped || this.pending >= OUTPUT_WINDOW) await this.hasRoom();
      if (this.dropped) continue; // the proxy did not cause the loss
      await pause(retryAfter(why), signal);
      // If a proxy accepts and closes connections again and again, the waits grow.
      if (this.reached(before)) {
        wait = this.dialer.min;
      } else if (!again) {
        await pause(wait, signal);
        wait = Math.min(2 * wait, this.dialer.max);
      }
    }
  }

  // progress returns the number of bytes that were transferred in both directions.
  private progress(): number {
    return this.pos.had + this.input.base;
  }

  private reached(before: number): boolean {
    return this.progress() !== before;
  }

  // serve attaches on a connection, and returns the reason for its end.
  private serve(conn: Connection, first: ReturnType<typeof defer<void>>): Promise<HoldfastError> {
    this.refused = undefined;
    this.dropped = false;
    const spec = this.info === undefined ? { ...this.spec } : this.pos.resume(this.spec, this.reshaped);
    this.sending = spec;
    const stop = (): void => conn.close(closed());
    this.stop.signal.addEventListener('abort', stop);
    if (this.stop.signal.aborted) stop();
    const { answer } = this.dialer;
    this.timer = setTimeout(() => conn.close(late(answer, true)), answer);
    return new Promise((done) => {
      conn.begin({
        message: (m) => this.message(conn, m, first),
        data: (kind, payload) => this.data(kind, payload),
        closed: (err) => {
          clearTimeout(this.timer);
          this.stop.signal.removeEventListener('abort', stop);
          done(this.refused ?? err);
        },
      });
      try {
        conn.send({
          type: 'attach', attachment: NUMBER, session_id: this.id, client: this.name, ...spec, ...(!this.late && { attempt: attempt() }),
        });
      } catch (err) {
        conn.close(asError(err)); // the message is too large, for example
      }
    });
  }

  private message(conn: Connection, m: Message, first: ReturnType<typeof defer<void>>): void {
    if (m.type === 'goaway') {
      const why = goingAway(m);
      if (this.dialer.isBehindGate && this.conn === conn && why.retryAfterMs === 0) return void this.moveOn(conn, why);
      this.refused = why;
      return conn.close(why);
    }
    if (typeof m.attachment === 'number' && m.attachment !== NUMBER) return; // of another attachment
    if (m.type === 'error') return this.error(conn, errorOf(m));
    if (m.type === 'attached') return this.attached(conn, m, first);
    if (this.conn === undefined || this.over) return;
    switch (m.type) {
      case 'accepted':
        this.input.accepted(int(m, 'offset'));
        return this.flowed();
      case 'ok':
        if (m.request_id === sizeID(this.resizes)) this.unconfirmed = undefined;
        return this.flushInput(); // a later size may have waited for room
      case 'detached':
        return this.detached.done();
      case 'resync':
        this.pos.resync(int(m, 'offset'), int(m, 'bytes_missed'), int(m, 'snapshot_bytes'), m.view === true);
        return this.anew(m, m.screen_only === true);
      case 'resized': {
        const size = { cols: int(m, 'cols'), rows: int(m, 'rows') };
        this.session.size = size;
        return this.say(() => this.events.emit('resized', size));
      }
      case 'typed': {
        const what = { at: str(m, 'at'), offset: int(m, 'offset'), data: fromBase64(str(m, 'data_b64')), masked: m.masked === true };
        return this.say(() => this.events.emit('typed', what));
      }
      case 'stolen': {
        const by = str(m, 'stolen_by');
        const detached = m.detached === true;
        this.say(() => this.events.emit('stolen', by, detached));
        return this.end(new HoldfastError('stolen', `${detached ? 'another client has detached this one' : "another client attached in this one's place"}: ${by}`));
      }
    }
    const exit = exitOf(m, this.id);
    if (exit !== undefined) this.exit(exit);
  }

  // moveOn replaces a connection that a gate wants to close. The next connection is made while output and input still
  // use the old one, so that they wait only for the attach, and not for the way through the gate.
  private async moveOn(old: Connection, why: HoldfastError): Promise<void> {
    const next = await this.dialer.redial(this.stop.signal).catch(() => undefined); // run meets the error again
    if (this.conn !== old || this.over) return next?.close(); // old was lost meanwhile, and run has dealt with that
    this.next = next;
    old.close(why);
  }

  private say(fn: () => void): void {
    if (!this.leaving) this.tell(fn);
  }

  private attached(conn: Connection, m: Message, first: ReturnType<typeof defer<void>>): void {
    const spec = this.sending as AttachSpec;
    const session = object<SessionInfo>(m, 'session');
    if (typeof session.instance !== 'string' || typeof session.size?.cols !== 'number' || typeof session.size.rows !== 'number') {
      throw wrong(m, 'session');
    }
    const offset = int(m, 'offset'), missed = int(m, 'bytes_missed'), bytes = int(m, 'snapshot_bytes');
    const old = this.info;
    clearTimeout(this.timer);
    this.watched = false;
    this.conn = conn;
    this.info = session;
    this.reshaped = this.spec.view === 'own' && (this.spec.cols !== spec.cols || this.spec.rows !== spec.rows);
    this.pos.attached(session.instance, offset, missed, bytes, m.view === true, spec.resume);
    this.input.resume(int(m, 'input_offset'), old === undefined);
    this.late = false;
    if (old === undefined) {
      this.startedAt = this.pos.stored;
      this.spec.steal = false; // a client that steals the session during an interruption keeps it
      first.done();
      setTimeout(() => this.begin(), 0);
    }
    this.setState('connected');
    if (old !== undefined && this.spec.view !== 'own' && (old.size.cols !== session.size.cols || old.size.rows !== session.size.rows)) {
      this.say(() => this.events.emit('resized', session.size));
    }
    if (m.replay === 'snapshot') this.anew(m, old !== undefined && spec.screen_only === true);
    this.flowed();
    this.size ??= this.unconfirmed; // an attach that resumes does not change the size of the session
    this.flushInput();
    if (this.leaving) conn.send({ type: 'detach', attachment: NUMBER }); // the connection that was to carry it is lost
  }

  private anew(m: Message, screenOnly: boolean): void {
    const what = {
      offset: int(m, 'offset'), bytesMissed: int(m, 'bytes_missed'), snapshotBytes: int(m, 'snapshot_bytes'), screenOnly, view: m.view === true,
    };
    this.reshaped = this.reshaped && m.type === 'attached';
    this.say(() => this.events.emit('resync', what));
  }

  private data(kind: number, payload: Uint8Array): void {
    if (kind !== frames.OUTPUT && kind !== frames.SNAPSHOT && kind !== frames.VIEW) return;
    const { attachment, offset, data } = frames.parseData(payload);
    if (attachment !== NUMBER || this.conn === undefined || this.over || this.leaving) return;
    let emit: () => PromiseLike<unknown>[];
    if (kind === frames.SNAPSHOT) {
      const left = this.pos.snapshot(data.length);
      emit = () => this.events.emit('snapshot', data, offset, left);
    } else if (kind === frames.VIEW) {
      this.pos.viewed(offset);
      emit = () => this.events.emit('view', data, offset);
    } else {
      this.pos.output(offset, data.length);
      emit = () => this.events.emit('output', data, offset);
    }
    const cost = data.length + PIECE_BYTES;
    this.pending += cost;
    this.tell(() => {
      const waits = emit();
      const done = (): void => {
        this.pending -= cost;
        this.relieve();
      };
      if (waits.length === 0) done();
      else void Promise.allSettled(waits).then(done);
    });
    if (this.pending >= OUTPUT_WINDOW) this.hold();
  }

  // hold stops reading. If the transport cannot be paused, hold closes the connection. The supervisor keeps the output,
  // so the next connection receives it or a snapshot.
  private hold(): void {
    const conn = this.conn;
    if (conn === undefined || this.paused || this.dropped) return;
    if (conn.pausable) {
      this.paused = true;
      conn.pause();
    } else {
      this.dropped = true;
      conn.close();
    }
  }

  private relieve(): void {
    if (this.pending > OUTPUT_LOW) return;
    if (this.paused) {
      this.paused = false;
      this.conn?.resume();
    }
    this.room?.();
  }

  private hasRoom(): Promise<void> {
    return new Promise((done) => {
      this.room = () => {
        this.room = undefined;
        done();
      };
      if (this.over || this.pending <= OUTPUT_LOW) this.room();
    });
  }

  // error handles an error of the attachment: it sends input again from the accepted offset, or ends the attachment.
  private error(conn: Connection, err: HoldfastError): void {
    switch (this.conn === undefined ? '' : err.code) {
      case 'input_gap':
      case 'input_full':
        if (err.offset === undefined) return;
        this.input.resume(err.offset, false);
        this.flowed();
        if (err.code === 'input_gap') return this.flushInput();
        this.say(() => this.events.emit('inputFull'));
        if (this.full) return; // an answer to an earlier part of the input has set the timer
        this.full = true;
        setTimeout(() => {
          this.full = false;
          this.flushInput();
        }, RETRY_FULL_MS);
        return;
      case 'line_too_long':
      case 'permission_denied':
        return this.say(() => this.events.emit('error', err));
    }
    this.refused = err;
    conn.close(err);
  }

  private exit(exit: ExitInfo): void {
    this.say(() => this.events.emit('exit', exit));
    this.tell(() => this.ended.done(exit));
    this.end(new HoldfastError('session_exited', `the session has ended with ${exit.exit_code}`));
  }

  // fail ends the attachment with an error. If the session has exited and its last output is gone, the error contains
  // the exit record, which fail reports as the session's end.
  private fail(err: HoldfastError): void {
    if (this.over) return;
    if (err.code === 'session_exited' && err.exit !== undefined) return this.exit(exitOfRecord(err.exit, this.id, this.pos.instance));
    this.say(() => this.events.emit('error', err));
    this.end(err);
  }

  // over tells that the attachment has ended, so that no more events are emitted.
  private get over(): boolean {
    return this.why !== undefined;
  }

  private end(why: HoldfastError): void {
    if (this.over) return;
    this.why = why;
    this.setState('closed');
    this.tell(() => this.ended.failed(why)); // has no effect after an exit
    this.detached.done();
    for (const done of this.settled.splice(0)) done();
    this.room?.();
    this.stop.abort();
  }

  /**
   * write sends input. If it returns true, the attachment stores the data until it has arrived, also if the proxy is
   * replaced. If 1 MiB waits to be accepted, or if the attachment has ended, it returns false and drops the data;
   * `flush` waits until there is room. A text is sent as UTF-8. If it ends with the first half of a surrogate pair, that
   * waits for the next call; U+FFFD replaces each half without the other. It throws `permission_denied` if the attachment is read-only.
   */
  write(data: string | Uint8Array): boolean {
    if (this.spec.mode === 'read_only') throw new HoldfastError('permission_denied', 'a read-only attachment does not type');
    if (this.over || this.leaving) return false;
    if (this.input.length >= INPUT_WINDOW) {
      this.say(() => this.events.emit('inputFull'));
      return false;
    }
    const text = this.half + (typeof data === 'string' ? data : '');
    this.half = typeof data === 'string' ? (/[\ud800-\udbff]$/.exec(text)?.[0] ?? '') : '';
    const bytes = encoder.encode(text.slice(0, text.length - this.half.length));
    if (bytes.length > 0) this.input.add(bytes);
    if (typeof data !== 'string') this.input.add(data);
    this.flushInput();
    return true;
  }

  /**
   * flush waits until all written input was accepted. Errors: if the attachment ends first, the reason, such as
   * `session_exited`, `stolen`, or `client_closed` after detach.
   */
  async flush(): Promise<void> {
    this.flushInput();
    while (this.input.length > 0) {
      if (this.why !== undefined) throw this.why;
      await new Promise<void>((done) => this.settled.push(done));
    }
  }

  private flowed(): void {
    if (this.input.length === 0) for (const done of this.settled.splice(0)) done();
  }

  // flushInput sends the input that was not sent on this connection yet, unless the session's queue for it was full just now.
  private flushInput(): void {
    const conn = this.conn;
    if (conn === undefined || this.over) return;
    if (this.size !== undefined && !conn.full) {
      this.unconfirmed = this.size;
      conn.send({ type: 'resize', request_id: sizeID(++this.resizes), attachment: NUMBER, ...this.size });
      this.size = undefined;
    }
    if (this.looks !== undefined && !conn.full) {
      conn.send({ type: 'appearance', attachment: NUMBER, ...this.looks });
      this.looks = undefined;
    }
    for (let part = this.full ? undefined : this.input.next(); part !== undefined; part = this.input.next()) {
      conn.data(frames.INPUT, frames.inputPayload(NUMBER, part.offset, part.data));
    }
    this.watch();
  }

  // watch closes the connection if nothing arrives on it although input waits to be accepted.
  private watch(): void {
    if (this.watched || this.input.length === 0) return;
    this.watched = true;
    const since = Connection.received;
    this.timer = setTimeout(() => {
      this.watched = false;
      if (this.input.length > 0 && !this.closeIfSilent(since)) this.watch();
    }, this.dialer.answer);
  }

  /**
   * closeIfSilent closes the connection if it has received nothing since Connection.received had a value.
   * @internal
   */
  closeIfSilent(since: number): boolean {
    return !this.paused && this.conn?.closeIfSilent(since) === true;
  }

  /**
   * resize sends this viewer's size, or stores it until there is a connection again. It throws `invalid_argument` if a number
   * is negative or not whole.
   */
  resize(cols: number, rows: number): void {
    checkSize(cols, rows);
    const size = { cols: Math.min(cols || 80, MAX_COLS), rows: Math.min(rows || 24, MAX_ROWS) };
    const changed = size.cols !== this.spec.cols || size.rows !== this.spec.rows;
    this.reshaped = this.reshaped || (this.spec.view === 'own' && changed);
    this.spec = { ...this.spec, ...size }; // for the next connection
    this.size = size;
    this.flushInput();
  }

  /**
   * setAppearance sends the properties of this viewer's terminal, which replace all earlier ones. It throws
   * `invalid_argument` if a colour is not `#rrggbb`, or a size of a cell no number of pixels.
   */
  setAppearance(looks: Appearance): void {
    checkAppearance(looks);
    this.spec = { ...this.spec, appearance: looks };
    this.looks = looks;
    this.flushInput();
  }

  /**
   * interrupt sends SIGINT to the foreground process group, after the input before it. Without a connection, and while 2 MiB
   * wait to be sent, it has no effect.
   */
  interrupt(): void {
    if (this.conn?.full === false) this.conn.send({ type: 'interrupt', attachment: NUMBER });
  }

  /** detach ends the attachment; the session continues. If there is a connection, it sends the written input first. */
  async detach(): Promise<void> {
    if (this.over) return;
    this.full = false;
    this.flushInput();
    this.leaving = true;
    const conn = this.conn;
    if (conn !== undefined) {
      if (this.paused) conn.resume(); // otherwise the reply is not read
      conn.send({ type: 'detach', attachment: NUMBER });
      // The reply confirms that the input before it was passed on. If the connection were closed at once, that input
      // could be lost.
      const late = setTimeout(() => this.detached.done(), DETACH_MS);
      await this.detached.promise;
      clearTimeout(late);
    }
    this.end(closed());
  }
}
