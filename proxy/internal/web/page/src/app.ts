// The page of a user who is signed in: the list, tabs, panes and keys.

import { HoldfastError, type SessionInfo } from 'holdfast';

import type { Client } from './client.ts';
import { connectionBar, connectionLine } from './connection.ts';
import { confirmForget, confirmKill, details, help, menu, newSession, preferences, rename, said, searchHistory, share, type Item } from './dialogs.ts';
import { arrange, h, icon, iconButton } from './dom.ts';
import { exportBytes, exportText } from './export.ts';
import type { Fleet } from './fleet.ts';
import { hostState, split as splitName } from './hosts.ts';
import { keyBar } from './keys.ts';
import * as layout from './layout.ts';
import { List } from './list.ts';
import { PaneView } from './pane.ts';
import { Sessions } from './sessions.ts';
import { change, read, settings, write } from './settings.ts';
import { actionOf, keysOf, repeats, type Action } from './shortcuts.ts';
import { textOf, type TerminalView } from './terminal.ts';
import { ended, revival, title, type Revival } from './words.ts';

const act = (label: string, does: () => void, action?: Action, danger = false): Item => ({ label, does, ...(action && { keys: keysOf(action)! }), danger });

const TABS = 'holdfast.tabs';
const phone = matchMedia('(max-width: 45rem)'); // the same width as in style.css
const TAB_TYPE = 'application/x-holdfast-tab'; // type of the data of a dragged tab
const TICK = 20_000; // ms between updates of the times in the list

interface TabElement {
  element: HTMLElement;
  update(label: string, selected: boolean): void;
}

export class App {
  readonly element: HTMLElement;
  private readonly sessions: Sessions;
  private readonly list: List;
  private readonly strip = h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Tabs' });
  private readonly stage = h('div', { class: 'stage', id: 'stage', role: 'tabpanel', 'aria-label': 'Terminals', tabindex: -1 });
  private readonly alerts = h('div', { class: 'alerts', role: 'alert' });
  private readonly keys = keyBar(() => (this.view()?.past ? undefined : this.view()?.terminal), (t) => void this.paste(t));
  private readonly views = new Map<number, PaneView>(); // by the pane's id
  private tabs: layout.Tab[] = [];
  private current = 0; // index of the current tab
  private readonly tabElements = new Map<number, TabElement>(); // by the tab's id
  private dragged: layout.Tab | undefined; // the tab that is being dragged
  private divider: HTMLElement | undefined; // the divider that is being dragged
  private readonly paneTools: HTMLButtonElement[] = [];
  private readonly pastTool: HTMLButtonElement;
  private readonly over = new AbortController(); // ends the listeners
  private hasPast: boolean | undefined; // whether the proxy knows the request past; undefined: not known yet

  // fleet is the client, too, if the page is that of a gate.
  constructor(private readonly client: Client, private readonly fleet?: Fleet) {
    this.sessions = new Sessions(client);
    this.list = new List({
      open: (s) => this.open(s),
      menu: (at, s) => menu(at, this.actions(s)),
      forgetAll: (sessions) => void Promise.all(sessions.map((s) => this.forget(s))),
      current: () => this.pane().session,
      news: (s) => this.sessions.news(s),
      startOn: (host) => void this.start(host),
    });
    const tool = (name: Parameters<typeof iconButton>[0], label: string, action: Action, wide = false): HTMLButtonElement => {
      const b = iconButton(name, label, () => this.do(action), keysOf(action));
      if (wide) b.classList.add('wide-only');
      return b;
    };
    const more = iconButton('more', 'Actions for this session', () => {
      const s = this.session();
      menu(more, s ? this.actions(s) : [{ label: 'New session', does: () => this.do('new') }]);
    });
    this.pastTool = tool('past', 'The past', 'past', true);
    this.pastTool.hidden = true;
    this.paneTools.push(this.pastTool, tool('search', 'Find', 'find'), more);
    const drawer = iconButton('menu', 'Sessions', () => this.drawer());
    drawer.classList.add('phone-only');
    const narrow = tool('menu', 'Hide or show the list', 'list', true);
    narrow.addEventListener('click', (e) => {
      e.stopImmediatePropagation();
      this.element.classList.toggle('narrowed');
    }, true);
    const backdrop = h('button', { type: 'button', class: 'backdrop', 'aria-label': 'Close the list', tabindex: -1, onclick: () => this.drawer(false) });
    this.element = h('div', { class: 'app' },
      h('a', { class: 'skip', href: '#stage', text: 'To the terminal', onclick: (e: Event) => { e.preventDefault(); this.focus(); } }),
      h('nav', { class: 'list', 'aria-label': 'Sessions and settings' },
        h('header', {}, h('h1', { text: 'Holdfast' }), tool('plus', 'New session', 'new')),
        this.list.filter,
        this.list.element,
        h('footer', {}, connectionLine(client), tool('help', 'Keyboard', 'help'), tool('gear', 'Settings', 'settings'))),
      h('main', { class: 'main' },
        h('div', { class: 'bar' }, drawer, narrow, this.strip,
          ...[tool('plus', 'New tab', 'new'), tool('right', 'Split to the right', 'split-right', true), tool('down', 'Split below', 'split-down', true), ...this.paneTools]),
        this.stage,
        this.keys.element),
      backdrop, this.alerts);
    this.stage.append(connectionBar(client, () => this.sessions.refresh(), ...(fleet ? ['The gate does not answer. The sessions do not need it, and this page continues by itself.'] : ['If it stays so, run ', h('kbd', { text: 'proxy web' }), ' in a terminal on the machine of the sessions: this page continues by itself.'])));
    const saved = read<unknown>(TABS, null, 'sessionStorage') ?? read<unknown>(TABS, null);
    this.tabs = layout.thaw(saved);
    this.current = layout.currentOf(saved);
    if (this.tabs.length === 0) this.tabs = [layout.newTab()];
    const { signal } = this.over;
    document.addEventListener('keydown', (e) => this.key(e), { capture: true, signal });
    this.sessions.onChange(() => this.changed());
    const tick = setInterval(() => this.showList(), TICK);
    signal.addEventListener('abort', () => clearInterval(tick));
    client.on('state', () => (this.hasPast = this.hasPast || undefined)); // another proxy may know more requests
    document.addEventListener('visibilitychange', () => this.label(), { signal });
    addEventListener('beforeunload', (e) => { // nothing else has what was recorded
      if ([...this.views.values()].some((v) => v.terminal?.recording)) e.preventDefault();
    }, { signal });
    phone.addEventListener('change', () => this.draw(), { signal });
    this.draw();
  }

  // end removes all terminals, which saves their recordings, and stops the page. The layout stays stored.
  end(): void {
    for (const v of this.views.values()) v.dispose();
    this.over.abort();
    this.sessions.close();
    document.title = 'Holdfast';
  }

  // ---- the panes and their sessions

  private tab = (): layout.Tab => this.tabs[this.current]!;
  private pane = (): layout.Pane => layout.activePane(this.tab());
  private view = (): PaneView | undefined => this.views.get(this.pane().id);

  private session(): SessionInfo | undefined {
    const { session } = this.pane();
    return session === undefined ? undefined : this.sessions.get(session);
  }

  focus(): void {
    this.view()?.focus();
  }

  // open shows a session in the pane that has it already, or else in the active pane if it has no session, or else in a
  // new tab.
  private open(s: SessionInfo): void {
    this.drawer(false);
    for (const [i, t] of this.tabs.entries()) {
      const p = layout.panes(t.root).find((q) => q.session === s.id && q.instance === s.instance);
      if (!p) continue;
      t.active = p.id;
      this.current = i;
      this.draw();
      return this.focus();
    }
    if (this.pane().session !== undefined) {
      this.tabs.splice(this.current + 1, 0, layout.newTab());
      this.current++;
    }
    this.put(this.pane(), s);
    this.draw();
    this.focus();
  }

  private put(p: layout.Pane, s: SessionInfo): void {
    p.session = s.id;
    p.instance = s.instance;
    this.views.get(p.id)?.show(s);
  }

  private split(direction: layout.Direction, s?: SessionInfo): void {
    const p = layout.split(this.tab(), this.pane().id, direction);
    if (!p) return;
    if (s) this.put(p, s);
    this.draw();
    this.focus();
  }

  // close closes a pane, and its tab with the last pane.
  private close(tab: layout.Tab, id: number): void {
    if (!layout.close(tab, id)) return this.closeTab(this.tabs.indexOf(tab));
    this.draw();
    this.focus();
  }

  private activate(tab: layout.Tab, id: number): void {
    if (tab.active === id && this.tab() === tab) return;
    tab.active = id;
    this.draw();
  }

  // ---- actions

  private actions(s: SessionInfo): (Item | null)[] {
    const over = ended(s) !== '';
    const here = this.session()?.instance === s.instance ? this.view()?.terminal : undefined;
    // The menu returns the focus to its button. An action without a dialog moves it to the terminal, if the pane shows it.
    const plain = (label: string, does: () => void): Item => act(label, () => {
      does();
      if (here) this.focus();
    });
    return [
      ...(here ? this.terminalActions(s, here) : [act('Open', () => this.open(s)), act('Open at the right', () => this.split('right', s)), act('Open below', () => this.split('down', s))]),
      null,
      act('Rename…', () => void rename(this.client, s), 'rename'),
      act('Search its history…', () => void searchHistory(this.client, s, ''), 'history'),
      over || this.fleet ? null : act('Share to look…', () => void share(this.client, s)),
      plain('Export as text', () => void this.trying(() => exportText(this.client, s))),
      plain('Export as printed', () => void this.trying(() => exportBytes(this.client, s))),
      act('Details', () => void details(s)),
      // Only a session with a control group can be frozen; a session without one has no cage here.
      over || !(s.frozen || s.cage) ? null : s.frozen ? plain('Thaw', () => void this.trying(() => this.client.thaw(s.id))) : plain('Freeze', () => void this.trying(() => this.client.freeze(s.id))),
      null,
      ...(over ? [act('Start again', () => void this.reopen(s)), act(s.state === 'lost' ? 'Forget…' : 'Forget', () => this.mayForget(s))] : [act('End session…', () => void confirmKill(this.client, s), 'kill', true)]),
    ].filter((x, i, all) => x !== null || all[i - 1] !== null);
  }

  // terminalActions returns the actions of a terminal.
  private terminalActions(s: SessionInfo, t: TerminalView): Item[] {
    const output = t.marks.lastOutput();
    const view = this.view()!;
    const { past } = view;
    const { term } = past ?? t;
    const copy = (text: string): void => void this.copy(text);
    return [
      act(term.hasSelection() ? 'Copy' : 'Copy the screen', () => copy(textOf(term))),
      output === undefined ? null : act('Copy the last output', () => copy(output)),
      past ? null : act('Paste', () => void this.paste(t)),
      t.marks.count.prompts > 0 && !past ? act('To the command before', () => this.do('previous-command'), 'previous-command') : null,
      t.marks.count.prompts > 0 && !past ? act('To the next command', () => this.do('next-command'), 'next-command') : null,
      !this.hasPast ? null : past ? act('Leave the past', () => view.closePast()) : act('The past', () => this.do('past'), 'past'),
      act('Clear the scrollback', () => void this.trying(() => this.client.clear(s.id))), // for all viewers
      t.recording ? act('Stop recording', () => t.stopRecording()) : act('Record', () => void this.trying(() => t.record(title(s)), 'The recording has not begun, because a part of this page could not be loaded.')),
      act('Close the pane', () => this.do('close'), 'close'),
    ].filter((x) => x !== null).map((x) => ({ ...x, does: () => {
      x.does();
      this.focus(); // the menu returns the focus to its button
    } }));
  }

  // start starts a session, at a gate on a host that the user chooses. host is the default.
  private async start(host?: string): Promise<void> {
    const current = this.session();
    const there = current && splitName(current.id).host;
    const from = host === undefined || host === there ? current : undefined;
    const first = host ?? there;
    const hosts = (this.fleet?.hosts ?? []).filter((x) => hostState(x) !== 'unreachable').map((x) => x.name).sort((a, b) => Number(b === first) - Number(a === first));
    if (this.fleet && hosts.length === 0) return this.alert('No host is connected to the gate.');
    await newSession(async (w) => {
      const expected = this.expect();
      try {
        const { session } = await this.spawn(w.host, {
          ...(w.argv.length > 0 && { argv: w.argv }), originator: 'page', ...(w.integrate && { shell_integration: true }), ...(w.cwd && { cwd: w.cwd }), ...(w.id && { session_id: w.id }), ...expected.size,
        });
        this.sessions.put(session);
        expected.arrives(session);
      } catch (err) {
        expected.fails();
        throw err;
      }
    }, from?.current_cwd || from?.cwd || '', hosts);
  }

  private spawn(host: string, spec: Parameters<Client['spawn']>[0]): ReturnType<Client['spawn']> {
    return this.fleet ? this.fleet.start(host, spec) : this.client.spawn(spec);
  }

  // expect shows the terminal of a session that is being started, in the active pane if it has no session, or else in a
  // new tab. The terminal gets the focus, so that it receives all input from now on.
  private expect(): { size: { cols: number; rows: number } | undefined; arrives(s: SessionInfo): void; fails(): void } {
    const made = this.pane().session !== undefined;
    if (made) this.tabs.splice(++this.current, 0, layout.newTab());
    const tab = this.tab();
    const pane = this.pane();
    this.draw();
    const view = this.views.get(pane.id)!;
    const arrives = view.expect();
    this.focus();
    return {
      size: view.size,
      arrives: (s) => {
        if (!arrives(s)) return; // the pane is closed, or shows another session
        pane.session = s.id;
        pane.instance = s.instance;
        this.draw();
      },
      fails: () => {
        if (this.views.get(pane.id) !== view || pane.session !== undefined) return;
        if (made) this.close(tab, pane.id);
        else view.wait();
      },
    };
  }

  // reopen starts an exited or lost session again, a lost one below its old screen. Each pane that shows the session shows the new instance.
  private async reopen(s: SessionInfo): Promise<void> {
    const next = s.state === 'lost' ? revival(s) : undefined;
    if (next instanceof Error) return this.alert(next.message);
    this.open(s);
    const waiting = this.tabs.flatMap((t) => layout.panes(t.root)).filter((p) => p.session === s.id)
      .map((pane) => ({ pane, view: this.views.get(pane.id)! })).map(({ pane, view }) => ({ pane, view, arrives: view.expect() }));
    this.focus();
    try {
      const session = next ? await this.revive(s, next, waiting[0]?.view.size) : (await this.client.reopen(s.id, {})).session;
      this.sessions.put(session);
      for (const { pane, arrives } of waiting) if (arrives(session)) pane.instance = session.instance;
      this.draw();
    } catch (err) {
      for (const { view } of waiting) {
        view.show(s);
        const isThere = err instanceof HoldfastError && err.code === 'session_running'; // another client has started it, and show offers it
        if (!isThere) view.failed(`The session was not started again: ${said(err)}`);
      }
      if (!(err instanceof HoldfastError)) throw err;
    }
  }

  // revive starts a lost session again. If its directory is gone, the session starts in the one of its beginning.
  private async revive(s: SessionInfo, { argv, cwd }: Revival, size: { cols: number; rows: number } | undefined): Promise<SessionInfo> {
    const changes = { keep_screen: true, early_exit_ms: 0, ...(argv && { argv }), ...size };
    try {
      return (await this.client.reopen(s.id, { ...changes, ...(cwd && { cwd }) })).session;
    } catch (err) {
      if (!(err instanceof HoldfastError) || err.code !== 'spawn_failed' || err.reason !== 'not_found' || !cwd) throw err;
      return (await this.client.reopen(s.id, changes)).session;
    }
  }

  // mayForget forgets a session. For a lost one it asks first, because its screen exists nowhere else.
  private mayForget(s: SessionInfo): void {
    if (s.state !== 'lost') return void this.forget(s);
    void confirmForget(this.client, s, async () => {
      await this.client.forget(s.id);
      this.forgotten(s);
    });
  }

  private forgotten(s: SessionInfo): void {
    this.sessions.gone(s.id);
    for (const t of [...this.tabs]) for (const p of layout.panes(t.root)) if (p.instance === s.instance) this.close(t, p.id);
  }

  private async forget(s: SessionInfo): Promise<void> {
    await this.trying(async () => {
      await this.client.forget(s.id);
      this.forgotten(s);
    });
  }

  // trying does an action, and tells if it fails. refused is the text for an action that the browser may refuse.
  private async trying(f: () => Promise<void>, refused?: string): Promise<void> {
    this.alerts.replaceChildren();
    try {
      await f();
    } catch (err) {
      if (!refused && !(err instanceof HoldfastError)) throw err;
      this.alert(refused ?? said(err));
    }
  }

  // copy writes to the clipboard, and paste pastes its text. A browser has no clipboard for a page that is sent without
  // encryption from another machine.
  private copy(text: string): Promise<void> {
    return this.writing(() => navigator.clipboard.writeText(text));
  }

  private writing(write: () => Promise<void>): Promise<void> {
    return this.trying(write, 'The browser does not let this page write to the clipboard.');
  }

  private paste(t: TerminalView): Promise<void> {
    return this.trying(async () => t.paste(await navigator.clipboard.readText()), 'The browser does not let this page read the clipboard. Ctrl+Shift+V pastes without that.');
  }

  // alert shows a text at the bottom of the page until it is closed, or until the next action begins.
  private alert(text: string): void {
    this.alerts.replaceChildren(h('span', { class: 'say', text }), h('button', { type: 'button', class: 'action', text: 'Close', onclick: () => {
      this.alerts.replaceChildren();
      this.focus();
    } }));
  }

  private key(e: KeyboardEvent): void {
    if (document.querySelector('dialog[open], .menu')) return;
    const view = this.view();
    const selection = (view?.past ?? view?.terminal)?.term.getSelection();
    if (e.ctrlKey && e.shiftKey && !e.altKey && e.code === 'KeyC') {
      if (selection) void this.copy(selection);
    } else {
      const action = actionOf(e);
      if (!action) {
        if (e.key === 'Escape' && this.element.classList.contains('drawer')) this.drawer(false);
        return;
      }
      if (!e.repeat || repeats(action)) this.do(action);
    }
    e.preventDefault();
    e.stopPropagation();
  }

  private do(action: Action): void {
    const s = this.session();
    const size = settings().fontSize;
    switch (action) {
      case 'new': return void this.start();
      case 'list': return this.toList();
      case 'filter':
        this.element.classList.remove('narrowed');
        this.drawer(true);
        return this.list.find();
      case 'previous-command': case 'next-command': return this.jump(action === 'next-command');
      case 'split-right': return this.split('right');
      case 'split-down': return this.split('down');
      case 'close': return this.close(this.tab(), this.pane().id);
      case 'left': case 'right': case 'up': case 'down': {
        const p = layout.neighbour(this.tab(), this.pane().id, action);
        if (p) this.activate(this.tab(), p.id);
        return this.focus();
      }
      case 'next-tab': return this.toTab((this.current + 1) % this.tabs.length);
      case 'previous-tab': return this.toTab((this.current + this.tabs.length - 1) % this.tabs.length);
      case 'tab-left': case 'tab-right': return this.moveTab(this.current, this.current + (action === 'tab-left' ? -1 : 1));
      case 'find': return this.view()?.find();
      case 'history': return s && void searchHistory(this.client, s, '');
      case 'past': return this.view()?.past ? this.view()!.closePast() : this.view()?.openPast();
      case 'share': return s && !this.fleet ? void share(this.client, s) : undefined;
      case 'rename': return s && void rename(this.client, s);
      case 'kill': return s && !ended(s) ? void confirmKill(this.client, s) : undefined;
      case 'larger': return change({ fontSize: size + 1 });
      case 'smaller': return change({ fontSize: size - 1 });
      case 'normal': return change({ fontSize: 14 });
      case 'help': return void help();
      case 'settings': return void preferences();
      default: this.toTab(Number(action.slice(4)) - 1);
    }
  }

  // jump moves to the next command in a direction: in the past to its screen, and in the terminal to its first line. If
  // the terminal does not have the command any more, the past shows it.
  private jump(forward: boolean): void {
    const view = this.view();
    const marks = view?.terminal?.marks;
    if (!view || !marks) return;
    if (view.past) return view.past.command(forward ? 1 : -1);
    if (marks.jump(forward) || forward) return;
    const { ended: here } = marks.count;
    if (here < (this.session()?.command?.count ?? 0)) view.openPast(here + 1);
  }

  private toTab(i: number): void {
    if (!this.tabs[i]) return;
    this.current = i;
    this.draw();
    this.focus();
  }

  // toList moves the focus to the list, or from the list to the terminal.
  private toList(): void {
    if (this.list.contains(document.activeElement)) {
      this.drawer(false);
      return this.focus();
    }
    this.element.classList.remove('narrowed');
    this.drawer(true);
    this.list.focus();
  }

  private drawer(open = !this.element.classList.contains('drawer')): void {
    this.element.classList.toggle('drawer', open && phone.matches);
    if (open && phone.matches) this.list.focus();
  }

  // ---- drawing

  private changed(): void {
    for (const t of this.tabs) {
      for (const p of layout.panes(t.root)) {
        const s = p.session === undefined ? undefined : this.sessions.get(p.session);
        if (s) this.views.get(p.id)?.update(s);
        else if (p.session !== undefined && this.isGone(p.session)) this.views.get(p.id)?.forgotten();
      }
    }
    if (this.sessions.ready) this.settle();
    void this.probe();
    this.label();
  }

  // isGone reports whether a session that is not in the list does not exist any more.
  private isGone = (id: string): boolean => this.sessions.ready && !this.fleet?.isUnknown(id);

  // probe finds out whether the proxy and the supervisor know the request past, as soon as there is a session.
  private async probe(): Promise<void> {
    const s = this.fleet ? this.session() : this.sessions.all()[0]; // at a gate, the page enters only the hosts that the user opens
    if (this.hasPast !== undefined || !s) return;
    this.hasPast = false;
    try {
      await this.client.past({ session_id: s.id, from: 1, to: 1 });
      this.hasPast = true;
      this.changed();
    } catch (err) {
      if (!(err instanceof HoldfastError)) throw err;
      if (err.code !== 'unsupported' && err.code !== 'permission_denied') this.hasPast = undefined; // the next change of the list tries again
    }
  }

  // settle attaches the panes of the saved layout when the list of sessions is known. A pane whose session does not
  // exist any more shows the choice of sessions.
  private settle(): void {
    for (const t of this.tabs) {
      for (const p of layout.panes(t.root)) {
        const v = this.views.get(p.id);
        const s = p.session === undefined ? undefined : this.sessions.get(p.session);
        if (!v || v.terminal) continue;
        if (s && s.instance === p.instance) {
          const free = document.activeElement === document.body || v.element.contains(document.activeElement);
          v.show(s);
          if (free && p === this.pane()) this.focus();
        } else if (s) {
          v.replaced(s);
          continue;
        } else if (p.session !== undefined && this.isGone(p.session)) {
          delete p.session;
          delete p.instance;
        }
        if (!v.terminal) v.wait();
      }
    }
  }

  private showList(): void {
    this.list.show(this.sessions.all(), this.sessions.ready, this.fleet?.hosts);
  }

  private draw(): void {
    const tab = this.tab();
    const there = new Set<number>();
    for (const t of this.tabs) {
      const rects = layout.rects(t.root);
      for (const p of layout.panes(t.root)) {
        const whole = phone.matches; // there is room for one pane
        there.add(p.id);
        let v = this.views.get(p.id);
        if (!v) {
          v = this.paneView(t, p);
          this.views.set(p.id, v);
          this.stage.append(v.element);
          const s = p.session === undefined ? undefined : this.sessions.get(p.session);
          if (s) v.show(s);
        }
        const r = whole ? { x: 0, y: 0, w: 1, h: 1 } : rects.get(p.id)!;
        const gap = (at: number): string => (at > 0 ? '1px' : '0px');
        Object.assign(v.element.style, {
          left: `calc(${r.x * 100}% + ${gap(r.x)})`, top: `calc(${r.y * 100}% + ${gap(r.y)})`,
          width: `calc(${r.w * 100}% - ${gap(r.x)})`, height: `calc(${r.h * 100}% - ${gap(r.y)})`,
        });
        v.element.hidden = t !== tab || (whole && p.id !== tab.active);
        v.element.classList.toggle('active', t === tab && p.id === tab.active);
      }
    }
    for (const [id, v] of this.views) {
      if (there.has(id)) continue;
      v.dispose();
      this.views.delete(id);
    }
    this.stage.classList.toggle('split', tab.root.kind === 'split' && !phone.matches);
    for (const t of this.tabs) for (const p of layout.panes(t.root)) this.views.get(p.id)!.shown(!this.views.get(p.id)!.element.hidden);
    this.dividers(tab);
    this.label();
    const saved = layout.freeze(this.tabs, this.current);
    write(TABS, saved, 'sessionStorage');
    write(TABS, saved);
  }

  // label updates the names and states of the sessions. It moves no element.
  private label(): void {
    this.drawTabs();
    this.keys.update();
    for (const b of this.paneTools) b.disabled = this.pane().session === undefined;
    this.pastTool.hidden = !this.hasPast;
    this.pastTool.setAttribute('aria-pressed', String(this.view()?.past !== undefined));
    const s = this.session();
    if (!document.hidden) for (const p of layout.panes(this.tab().root)) if (p.instance && !this.views.get(p.id)?.element.hidden) this.sessions.seen(p.instance);
    const news = this.sessions.all().some((x) => this.sessions.news(x));
    document.title = `${news ? '• ' : ''}${s ? `${title(s)} — ` : ''}Holdfast`;
    this.showList();
  }

  private paneView(t: layout.Tab, p: layout.Pane): PaneView {
    return new PaneView(this.client, {
      activate: () => this.activate(t, p.id),
      close: () => this.close(t, p.id),
      start: () => {
        this.activate(t, p.id);
        void this.start();
      },
      show: (s) => {
        this.put(p, s);
        this.activate(t, p.id);
        this.draw();
        this.focus();
      },
      reopen: (s) => void this.reopen(s),
      forget: (s) => this.mayForget(s),
      copy: (write) => void this.writing(write),
      hasPast: () => this.hasPast === true,
      changed: () => this.label(),
      history: (s, text) => void searchHistory(this.client, s, text),
      choices: () => {
        const shown = new Set(this.tabs.flatMap((x) => layout.panes(x.root)).map((q) => q.session));
        return this.sessions.all().filter((s) => !ended(s) && !shown.has(s.id));
      },
    });
  }

  private drawTabs(): void {
    const focused = this.strip.contains(document.activeElement);
    const shown = this.tabs.map((t) => {
      const called = layout.panes(t.root).map((p) => {
        const s = p.session === undefined ? undefined : this.sessions.get(p.session);
        return s ? title(s) : '';
      });
      const name = called[layout.panes(t.root).findIndex((p) => p.id === t.active)] || called.find((c) => c) || 'New tab';
      const records = layout.panes(t.root).some((p) => this.views.get(p.id)?.terminal?.recording);
      let tab = this.tabElements.get(t.id);
      if (!tab) this.tabElements.set(t.id, (tab = this.tabElement(t)));
      tab.update(`${records ? '● ' : ''}${name}${called.length > 1 ? ` +${called.length - 1}` : ''}`, t === this.tab());
      return tab.element;
    });
    const there = new Set(this.tabs.map((t) => t.id));
    for (const id of this.tabElements.keys()) if (!there.has(id)) this.tabElements.delete(id);
    arrange(this.strip, shown);
    const selected = shown[this.current]!;
    const now = `${this.tab().id} of ${[...there].join()}`;
    if (this.strip.dataset.now === now) return;
    this.strip.dataset.now = now;
    selected.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    if (focused) selected.focus();
  }

  // tabElement returns a tab of the strip. A tab list may contain only tabs, so the cross is hidden from assistive
  // technology: the key Delete closes a tab, and so does the menu.
  private tabElement(t: layout.Tab): TabElement {
    const index = (): number => this.tabs.indexOf(t);
    const cross = h('span', { class: 'cross', 'aria-hidden': 'true', title: 'Close the tab', onclick: (e: Event) => {
      e.stopPropagation();
      this.closeTab(index());
    } }, icon('close'));
    const name = h('span', { class: 'name' });
    const element = h('div', {
      class: 'tab', role: 'tab', 'aria-controls': 'stage', 'aria-keyshortcuts': 'Delete', draggable: 'true', onclick: () => this.toTab(index()),
    }, name, cross);
    element.addEventListener('auxclick', (e) => e.button === 1 && this.closeTab(index()));
    element.addEventListener('keydown', (e) => {
      const i = index();
      const count = this.tabs.length;
      const to = { ArrowRight: (i + 1) % count, ArrowLeft: (i + count - 1) % count, Home: 0, End: count - 1 }[e.key];
      if (e.altKey || e.shiftKey) return;
      if (e.key === 'Delete') this.closeTab(i);
      else if (e.key === 'Enter' || e.key === ' ') this.toTab(i);
      else if (to !== undefined) {
        this.current = to;
        this.draw();
      } else return;
      e.preventDefault();
    });
    element.addEventListener('dragstart', (e) => {
      this.dragged = t;
      e.dataTransfer!.effectAllowed = 'move';
      e.dataTransfer!.setData(TAB_TYPE, String(t.id));
    });
    element.addEventListener('dragover', (e) => {
      if (!this.dragged) return;
      e.preventDefault();
      const from = this.tabs.indexOf(this.dragged);
      element.classList.toggle('before', from > index());
      element.classList.toggle('behind', from < index());
    });
    element.addEventListener('dragleave', () => element.classList.remove('before', 'behind'));
    element.addEventListener('drop', (e) => {
      e.preventDefault();
      element.classList.remove('before', 'behind');
      if (this.dragged) this.moveTab(this.tabs.indexOf(this.dragged), index());
    });
    element.addEventListener('dragend', () => (this.dragged = undefined));
    return {
      element,
      update: (label, selected) => {
        element.classList.toggle('current', selected);
        element.tabIndex = selected ? 0 : -1;
        element.setAttribute('aria-selected', String(selected));
        if (name.textContent === label) return;
        name.textContent = label;
        element.title = label;
        element.setAttribute('aria-label', label);
      },
    };
  }

  // moveTab moves a tab to the place of another. The current tab remains current.
  private moveTab(from: number, to: number): void {
    if (from < 0) return; // it was closed meanwhile
    const current = this.tab();
    const [tab] = this.tabs.splice(from, 1);
    if (tab) this.tabs.splice(Math.max(0, Math.min(to, this.tabs.length)), 0, tab);
    this.current = this.tabs.indexOf(current);
    this.draw();
  }

  // closeTab closes a tab. The current tab remains current, unless it is the closed one.
  private closeTab(i: number): void {
    if (!this.tabs[i]) return;
    this.tabs.splice(i, 1);
    if (this.tabs.length === 0) this.tabs = [layout.newTab()];
    if (i < this.current || this.current >= this.tabs.length) this.current = Math.max(0, this.current - 1);
    this.draw();
    this.focus();
  }

  private dividers(tab: layout.Tab): void {
    const rects = layout.rects(tab.root);
    const focused = (document.activeElement as HTMLElement | null)?.dataset.split;
    const splits = phone.matches ? [] : layout.splits(tab.root);
    const held = splits.some((s) => String(s.id) === this.divider?.dataset.split) ? this.divider : undefined; // a drag ends if its element is removed
    for (const old of this.stage.querySelectorAll('.divider')) if (old !== held) old.remove();
    for (const s of splits) {
      if (String(s.id) === held?.dataset.split) continue;
      const r = rects.get(s.id)!;
      const beside = s.direction === 'right';
      const d = h('div', { class: 'divider', role: 'separator', tabindex: 0, 'aria-orientation': beside ? 'vertical' : 'horizontal', 'aria-label': 'Size of the panes', 'aria-valuenow': Math.round(s.ratio * 100), 'data-split': s.id });
      const place = (ratio: number): void => {
        Object.assign(d.style, beside
          ? { left: `${(r.x + r.w * ratio) * 100}%`, top: `${r.y * 100}%`, height: `${r.h * 100}%` }
          : { top: `${(r.y + r.h * ratio) * 100}%`, left: `${r.x * 100}%`, width: `${r.w * 100}%` });
      };
      place(s.ratio);
      const set = (ratio: number): void => {
        layout.setRatio(tab, s.id, ratio);
        this.draw();
      };
      d.addEventListener('keydown', (e) => {
        const step = { ArrowLeft: -0.02, ArrowUp: -0.02, ArrowRight: 0.02, ArrowDown: 0.02 }[e.key];
        if (step === undefined || e.altKey) return;
        e.preventDefault();
        set(s.ratio + step);
      });
      d.addEventListener('pointerdown', (e) => {
        e.preventDefault();
        d.setPointerCapture(e.pointerId);
        const whole = this.stage.getBoundingClientRect();
        let to = s.ratio;
        const move = (m: PointerEvent): void => {
          to = beside ? ((m.clientX - whole.left) / whole.width - r.x) / r.w : ((m.clientY - whole.top) / whole.height - r.y) / r.h;
          to = Math.min(0.9, Math.max(0.1, to));
          place(to);
        };
        d.addEventListener('pointermove', move);
        this.divider = d;
        d.addEventListener('lostpointercapture', () => {
          this.divider = undefined;
          set(to);
        }, { once: true });
      });
      this.stage.append(d);
      if (focused === String(s.id)) d.focus();
    }
  }
}
