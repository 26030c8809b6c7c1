// The client of the page of a gate. A session is named HOST/ID. Each host that the user opens has a HoldfastClient of
// its own, which enters the host through the gate, connects again if the gate dies, and resumes at its offsets. The
// gate's directory lists the sessions of the other hosts.

import { GateDirectory, HoldfastClient, HoldfastError, type ClientEvents, type ClientState, type HoldfastEvent, type HostInfo, type SessionInfo, type Subscription } from 'holdfast';

import type { Client } from './client.ts';
import { fullName, hostState, merge, ofHost, split } from './hosts.ts';

const EVERY = 2000; // ms between questions about the directory
const RETRY = 500; // ms between questions while the gate does not answer
const PATIENCE = 2000; // ms for a host to list its sessions; the list then has those of the directory
const MAX_EVENTS = 1024; // events that wait for the list

type Listeners = { [K in keyof ClientEvents]: Set<ClientEvents[K]> };

export class Fleet implements Client {
  state: ClientState = 'connected';
  hosts: HostInfo[] = []; // sorted by name; all are unknown while the gate does not answer
  private readonly directory: GateDirectory;
  private readonly clients = new Map<string, Promise<HoldfastClient>>(); // by host
  private readonly connected = new Map<string, HoldfastClient>(); // those that have been connected once
  private readonly listeners: Listeners = { state: new Set(), event: new Set(), goaway: new Set(), error: new Set() };
  private sessions: SessionInfo[] = [];

  private constructor(private readonly url: URL) {
    this.directory = new GateDirectory({ url });
  }

  // connect asks the gate at a URL for its hosts. Errors: connect, unauthorized.
  static async connect(url: URL): Promise<Fleet> {
    const f = new Fleet(url);
    f.hosts = await f.directory.hosts();
    return f;
  }

  on: HoldfastClient['on'] = (event, fn) => {
    this.listeners[event].add(fn);
    return () => this.listeners[event].delete(fn);
  };

  private is(state: ClientState): void {
    if (this.state === state || this.state === 'closed') return;
    this.state = state;
    for (const f of this.listeners.state) f(state);
  }

  // isUnknown reports whether a session may exist although it is not in the list. A gate that has just started knows a
  // host before the sessions of the host.
  isUnknown = (name: string): boolean => {
    const host = this.hosts.find((h) => h.name === split(name).host);
    return hostState(host) === 'unreachable' || host?.sessions === 0;
  };

  // list returns the sessions of all hosts.
  async list(): Promise<SessionInfo[]> {
    try {
      this.hosts = await this.directory.hosts();
      const details = new Map((await Promise.all(this.hosts.map((h) => this.details(h)))).filter((d) => d !== undefined));
      this.sessions = merge(this.hosts, await this.directory.sessions(), details, this.sessions, new Set(this.clients.keys()));
    } catch (err) {
      if (!(err instanceof HoldfastError)) throw err;
      if (this.state === 'closed') throw err;
      this.hosts = this.hosts.map((h) => ({ ...h, reachable: false }));
      this.sessions = merge(this.hosts, [], new Map(), this.sessions, new Set());
      this.is('reconnecting');
      for (const f of this.listeners.error) f(err);
      return this.sessions;
    }
    this.is('connected');
    return this.sessions;
  }

  // details returns a host with its own answer, or undefined if the page has no connection with it.
  private async details(h: HostInfo): Promise<[string, SessionInfo[]] | undefined> {
    const client = this.connected.get(h.name);
    if (hostState(h) !== 'ready' || client?.state !== 'connected') return undefined;
    const late = new Promise<undefined>((done) => setTimeout(() => done(undefined), PATIENCE));
    const list = await Promise.race([client.list().catch(() => undefined), late]);
    return list && [h.name, list.map((s) => ofHost(h.name, s))];
  }

  // subscribe returns the events of the hosts that the user has opened. For all others it asks for a new list from time
  // to time.
  subscribe(): Subscription {
    const queue: HoldfastEvent[] = [];
    let wake = (): void => undefined;
    let isOver = false;
    const add = (e: HoldfastEvent): void => {
      if (queue.length < MAX_EVENTS) queue.push(e);
      wake();
    };
    const off = this.on('event', add);
    const state = (): string => this.state;
    const events = async function* (): AsyncGenerator<HoldfastEvent> {
      for (;;) {
        while (queue.length > 0) yield queue.shift()!;
        if (isOver) return;
        const isDue = await new Promise<boolean>((done) => {
          const timer = setTimeout(() => done(true), state() === 'connected' ? EVERY : RETRY);
          wake = () => {
            clearTimeout(timer);
            done(false);
          };
        });
        if (isDue && !document.hidden) yield { event: 'missed' } as HoldfastEvent;
      }
    };
    return {
      ready: Promise.resolve(),
      close: () => {
        isOver = true;
        off();
        wake();
      },
      [Symbol.asyncIterator]: events,
    };
  }

  // host returns the client of a host. Errors: connect, unknown_host, unauthorized.
  private host(name: string, start = false): Promise<HoldfastClient> {
    let client = this.clients.get(name);
    if (client) return client;
    client = HoldfastClient.connect({ gate: { url: this.url, host: name, start }, client: 'page' });
    this.clients.set(name, client);
    client.then((c) => {
      this.connected.set(name, c);
      c.on('state', (state) => {
        if (state !== 'closed' || this.connected.get(name) !== c) return;
        this.connected.delete(name); // the gate refuses the host, perhaps only for a while: the next request tries again
        this.clients.delete(name);
      });
      c.on('event', (e) => {
        const event = e.session ? { ...e, session: ofHost(name, e.session) } : e;
        for (const f of this.listeners.event) f(e.exit ? { ...event, exit: { ...e.exit, session_id: fullName(name, e.exit.session_id) } } : event);
      });
    }, () => this.clients.delete(name)); // the next request tries again
    return client;
  }

  // at calls f with the client of the host of a session, and with the id of the session there.
  private async at<R>(name: string, f: (client: HoldfastClient, id: string) => Promise<R>): Promise<R> {
    const { host, id } = split(name);
    return f(await this.host(host), id);
  }

  // atOnce is at for a request that must not wait for a connection, because the user may have decided otherwise by then.
  // Error: connect, if the host has no connection.
  private atOnce<R>(name: string, f: (client: HoldfastClient, id: string) => Promise<R>): Promise<R> {
    return this.at(name, (c, id) => {
      if (c.state !== 'connected') throw new HoldfastError('connect', `there is no connection with ${split(name).host}`);
      return f(c, id);
    });
  }

  // asked calls f for a request that names a session.
  private asked<S extends { session_id: string }, R>(spec: S, f: (client: HoldfastClient, spec: S) => Promise<R>): Promise<R> {
    return this.at(spec.session_id, (c, id) => f(c, { ...spec, session_id: id }));
  }

  // start starts a session on a host, and a proxy if none runs there.
  async start(host: string, spec: Parameters<HoldfastClient['spawn']>[0]): ReturnType<HoldfastClient['spawn']> {
    const spawned = await (await this.host(host, true)).spawn(spec);
    return { ...spawned, session: ofHost(host, spawned.session) };
  }

  spawn: Client['spawn'] = () => Promise.reject(new HoldfastError('invalid_argument', 'a session of a gate is started on a host'));
  attach: Client['attach'] = (name, options) => this.at(name, (c, id) => c.attach(id, options));
  clear: Client['clear'] = (name, screen) => this.at(name, (c, id) => c.clear(id, screen));
  commands: Client['commands'] = (name) => this.at(name, (c, id) => c.commands(id));
  forget: Client['forget'] = (name) => this.atOnce(name, (c, id) => c.forget(id));
  freeze: Client['freeze'] = (name) => this.at(name, (c, id) => c.freeze(id));
  history: Client['history'] = (spec) => this.asked(spec, (c, s) => c.history(s));
  info: Client['info'] = (name) => this.at(name, async (c, id) => ofHost(split(name).host, await c.info(id)));
  kill: Client['kill'] = (name, options) => this.atOnce(name, (c, id) => c.kill(id, options));
  past: Client['past'] = (spec) => this.asked(spec, (c, s) => c.past(s));
  rename: Client['rename'] = (name, text) => this.at(name, (c, id) => c.rename(id, text));
  reopen: Client['reopen'] = (name, changes) => this.at(name, async (c, id) => {
    const spawned = await c.reopen(id, changes);
    return { ...spawned, session: ofHost(split(name).host, spawned.session) };
  });
  screen: Client['screen'] = (spec) => this.asked(spec, (c, s) => c.screen(s));
  scrollback: Client['scrollback'] = (name, offset) => this.at(name, (c, id) => c.scrollback(id, offset));
  search: Client['search'] = (spec) => this.asked(spec, (c, s) => c.search(s));
  share: Client['share'] = () => Promise.reject(new HoldfastError('unsupported', 'a gate has no links to look'));
  thaw: Client['thaw'] = (name) => this.at(name, (c, id) => c.thaw(id));

  async close(): Promise<void> {
    this.is('closed');
    this.directory.close();
    await Promise.all([...this.connected.values()].map((c) => c.close()));
  }
}
