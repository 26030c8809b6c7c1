import { closed, goingAway } from './dialer.js';
import type { Connection, Dialer } from './dialer.js';
import { asError, HoldfastError, late, lost } from './errors.js';
import { errorOf, exitOf, int, str } from './message.js';
import type { Message } from './message.js';
import { pause } from './pause.js';
import type { HoldfastEvent, Notification, SessionInfo } from './types.js';

/** Events that may wait for the program. If there are more, the client stops reading. */
const WINDOW = 1024;
const LOW = WINDOW / 4;

/**
 * A Subscription iterates over the events of all sessions. After a lost connection it continues with the next event, if
 * the supervisor still keeps that event. Otherwise the event `missed` contains the number of lost events, or 0 if that
 * number is not known; `list` then returns the present sessions.
 */
export interface Subscription extends AsyncIterable<HoldfastEvent> {
  /** Resolves when the proxy has accepted the subscription. It has all events after that time. */
  readonly ready: Promise<void>;
  close(): void;
}

interface Taker {
  done(r: IteratorResult<HoldfastEvent, undefined>): void;
  failed(err: HoldfastError): void;
}

export class EventStream implements Subscription, AsyncIterator<HoldfastEvent, undefined> {
  readonly ready: Promise<void>;
  private subscribed!: () => void;
  private readonly stop = new AbortController();
  private conn: Connection | undefined;
  private instance = '';
  private seq = 0;
  private readonly queue: HoldfastEvent[] = [];
  private readonly takers: Taker[] = [];
  private paused = false;
  private dropped = false;
  private refused: HoldfastError | undefined; // the error or goaway before the end of the connection
  private timer: ReturnType<typeof setTimeout> | undefined; // closes a connection on which the subscription is not answered
  private room: (() => void) | undefined;
  private over = false;
  private err: HoldfastError | undefined;

  constructor(private readonly dialer: Dialer, private readonly gone: () => void, after?: { instance: string; seq: number }) {
    if (after !== undefined) {
      this.instance = after.instance;
      this.seq = after.seq;
    }
    let failed!: (err: HoldfastError) => void;
    this.ready = new Promise((d, f) => {
      this.subscribed = d;
      failed = f;
    });
    this.ready.catch(() => {});
    this.run().then(
      () => this.end(undefined),
      (err: unknown) => this.end(asError(err)),
    ).finally(() => failed(this.err ?? closed()));
  }

  [Symbol.asyncIterator](): AsyncIterator<HoldfastEvent, undefined> {
    return this;
  }

  next(): Promise<IteratorResult<HoldfastEvent, undefined>> {
    const event = this.queue.shift();
    if (this.queue.length <= LOW) this.relieve();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.err !== undefined) return Promise.reject(this.err);
    if (this.over) return Promise.resolve({ done: true, value: undefined });
    return new Promise((done, failed) => this.takers.push({ done, failed }));
  }

  return(): Promise<IteratorResult<HoldfastEvent, undefined>> {
    this.close();
    return Promise.resolve({ done: true, value: undefined });
  }

  close(): void {
    this.queue.length = 0;
    this.end(undefined);
  }

  private end(err: HoldfastError | undefined): void {
    if (this.over) return;
    this.over = true;
    this.err = err;
    for (const t of this.takers.splice(0)) {
      if (err !== undefined) t.failed(err);
      else t.done({ done: true, value: undefined });
    }
    this.room?.();
    this.stop.abort();
    this.gone();
  }

  private async run(): Promise<void> {
    for (let wait = this.dialer.min; ;) {
      const before = this.seq;
      let why: HoldfastError;
      try {
        why = await this.serve(await this.dialer.redial(this.stop.signal));
      } catch (err) {
        why = asError(err);
      }
      this.conn = undefined;
      this.paused = false;
      if (this.over) return;
      if (!lost(why) && !why.retryable) throw why; // another attempt would fail in the same way
      if (this.dropped) {
        await new Promise<void>((done) => {
          this.room = done;
          if (this.over || this.queue.length <= LOW) done();
        });
        this.room = undefined;
        continue;
      }
      await pause(Math.max(wait, Math.min(why.retryAfterMs ?? 0, this.dialer.giveUp)), this.stop.signal);
      wait = this.seq !== before ? this.dialer.min : Math.min(2 * wait, this.dialer.max);
    }
  }

  private serve(conn: Connection): Promise<HoldfastError> {
    this.conn = conn;
    this.dropped = false;
    this.refused = undefined;
    const stop = (): void => conn.close(closed());
    this.stop.signal.addEventListener('abort', stop);
    const { answer } = this.dialer;
    this.timer = setTimeout(() => conn.close(late(answer, true)), answer);
    return new Promise((done) => {
      conn.begin({
        message: (m) => this.message(conn, m),
        closed: (err) => {
          clearTimeout(this.timer);
          this.stop.signal.removeEventListener('abort', stop);
          done(this.refused ?? err);
        },
      });
      conn.send({ type: 'events', ...(this.instance !== '' && { instance: this.instance, after: this.seq }) });
      if (this.over) stop();
    });
  }

  private message(conn: Connection, m: Message): void {
    if (this.over) return;
    switch (m.type) {
      case 'goaway':
      case 'error':
        this.refused = m.type === 'goaway' ? goingAway(m) : errorOf(m);
        return conn.close(this.refused);
      case 'subscribed': {
        const other = this.instance !== '' && this.instance !== str(m, 'instance');
        this.instance = str(m, 'instance');
        this.seq = int(m, 'seq');
        clearTimeout(this.timer);
        this.subscribed();
        if (other) this.put({ seq: this.seq, event: 'missed', missed: 0 }); // another instance numbers its events from the beginning
        return;
      }
      case 'event': {
        this.seq = int(m, 'seq');
        return this.put({
          seq: this.seq, event: str(m, 'event'), at: str(m, 'at'), ...(m.missed !== undefined && { missed: int(m, 'missed') }),
          ...(typeof m.session === 'object' && m.session !== null && { session: m.session as SessionInfo }),
          ...(typeof m.notification === 'object' && m.notification !== null && { notification: m.notification as Notification }),
        });
      }
    }
    const exit = m.seq === undefined ? undefined : exitOf(m, str(m, 'session_id'));
    if (exit === undefined) return;
    this.seq = int(m, 'seq');
    this.put({ seq: this.seq, event: 'exited', ...(exit.exited_at !== undefined && { at: exit.exited_at }), exit });
  }

  /** closeIfSilent closes the connection if it has received nothing since Connection.received had a value. */
  closeIfSilent(since: number): void {
    if (!this.paused) this.conn?.closeIfSilent(since);
  }

  private put(event: HoldfastEvent): void {
    const taker = this.takers.shift();
    if (taker !== undefined) return taker.done({ done: false, value: event });
    this.queue.push(event);
    if (this.queue.length < WINDOW || this.paused || this.dropped || this.conn === undefined) return;
    if (this.conn.pausable) {
      this.paused = true;
      this.conn.pause();
    } else {
      this.dropped = true;
      this.conn.close();
    }
  }

  private relieve(): void {
    if (this.paused) {
      this.paused = false;
      this.conn?.resume();
    }
    this.room?.();
  }
}
