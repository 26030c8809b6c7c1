// The sessions of the proxy: the result of list, updated by events. After a lost connection, the client requests the
// missed events. If some are lost, and after each new connection, the page lists the sessions again.

import { HoldfastError, type HoldfastEvent, type SessionInfo, type Subscription } from 'holdfast';

import type { Client } from './client.ts';
import { reported } from './words.ts';

export class Sessions {
  private readonly byID = new Map<string, SessionInfo>();
  private readonly listeners = new Set<() => void>();
  private readonly unseen = new Map<string, string>(); // by instance: the last event since the user viewed the session
  private subscription: Subscription | undefined;
  private queued = false;
  private generation = 0; // order of lists and events: an event that arrives during a list is newer than its result
  private touched = new Map<string, number>();
  ready = false; // the first list has arrived

  constructor(private readonly client: Client) {
    client.on('state', (state) => {
      if (state === 'connected') void this.refresh();
    });
    void this.follow();
  }

  // all returns the running sessions, then the lost ones and then the exited ones, each in the order of their start.
  all(): SessionInfo[] {
    const over = (s: SessionInfo): number => (s.state === 'exited' ? 2 : s.state === 'lost' ? 1 : 0);
    return [...this.byID.values()].sort((a, b) => over(a) - over(b) || a.created_at.localeCompare(b.created_at) || a.id.localeCompare(b.id));
  }

  get = (id: string): SessionInfo | undefined => this.byID.get(id);

  // news describes the last event of a session since the user viewed it here.
  news = (s: SessionInfo): string | undefined => this.unseen.get(s.instance);

  seen(instance: string): void {
    if (this.unseen.delete(instance)) this.tell();
  }

  onChange(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  put(s: SessionInfo): void {
    const old = this.byID.get(s.id);
    if (!s.cage && old?.cage && old.instance === s.instance) s = { ...s, cage: old.cage }; // events do not contain the cage
    this.touched.set(s.id, ++this.generation);
    this.byID.set(s.id, s);
    this.tell();
  }

  gone(id: string): void {
    this.touched.set(id, ++this.generation);
    this.byID.delete(id);
    this.tell();
  }

  async refresh(): Promise<void> {
    const from = ++this.generation;
    try {
      const list = await this.client.list();
      const there = new Set(list.map((s) => s.id));
      for (const s of list) if ((this.touched.get(s.id) ?? 0) <= from) this.byID.set(s.id, s);
      for (const id of this.byID.keys()) if (!there.has(id) && (this.touched.get(id) ?? 0) <= from) this.byID.delete(id);
      const alive = new Set(list.map((s) => s.instance));
      for (const instance of this.unseen.keys()) if (!alive.has(instance)) this.unseen.delete(instance);
      for (const id of this.touched.keys()) if (!this.byID.has(id)) this.touched.delete(id);
      this.ready = true;
      this.tell();
    } catch (err) {
      if (!(err instanceof HoldfastError)) throw err;
      // The page shows the state of the connection, and lists the sessions again after the next one.
    }
  }

  close(): void {
    this.subscription?.close();
    this.listeners.clear();
  }

  private async follow(): Promise<void> {
    await this.refresh();
    try {
      this.subscription = this.client.subscribe();
      for await (const e of this.subscription) this.happened(e);
    } catch (err) {
      if (!(err instanceof HoldfastError)) throw err;
      // The client is closed, or it must not subscribe. The list then shows the sessions of the last connection.
    }
  }

  private happened(e: HoldfastEvent): void {
    switch (e.event) {
      case 'missed':
        void this.refresh();
        return;
      case 'forgotten':
        if (e.session && this.byID.get(e.session.id)?.instance === e.session.instance) this.gone(e.session.id);
        return;
      case 'exited':
        void this.ask(e.session?.id ?? e.exit?.session_id);
        return;
      case 'bell':
        this.note(e, 'rang');
        break;
      case 'notification':
        this.note(e, e.notification?.title || e.notification?.body);
        break;
      case 'program_status':
        this.note(e, reported(e.session));
        break;
      case 'command_finished':
        this.note(e, e.session?.command?.exit_code ? `failed with ${e.session.command.exit_code}` : 'finished');
    }
    if (e.session) this.put(e.session);
  }

  private note(e: HoldfastEvent, what: string | undefined): void {
    if (e.session && what) this.unseen.set(e.session.instance, what);
  }

  // ask requests one session, because the event of an exit contains only a part of the exit record.
  private async ask(id: string | undefined): Promise<void> {
    if (!id) return;
    try {
      this.put(await this.client.info(id));
    } catch (err) {
      if (err instanceof HoldfastError && err.code === 'session_not_found') this.gone(id);
      else if (!(err instanceof HoldfastError)) throw err;
    }
  }

  private tell(): void {
    if (this.queued) return;
    this.queued = true;
    setTimeout(() => { // not an animation frame, because the browser draws none in the background
      this.queued = false;
      for (const f of this.listeners) f();
    }, 20);
  }
}
