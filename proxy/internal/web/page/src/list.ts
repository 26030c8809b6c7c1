// The list of sessions. If there are many, it has a filter and groups. The element of a row is made once and then
// updated, so that it keeps the focus.

import type { HostInfo, SessionInfo } from 'holdfast';

import { arrange, h, iconButton, setText } from './dom.ts';
import { choices, grouped, matches, type Group, type GroupBy } from './groups.ts';
import { hostState } from './hosts.ts';
import { change, onChange, settings } from './settings.ts';
import { ago, ended, failed, place, runs, says, title, uses, who } from './words.ts';

interface Row {
  element: HTMLLIElement;
  update(s: SessionInfo, current: boolean, news: string | undefined): void;
}

const MANY = 6; // number of sessions from which on the filter is shown

interface Heading {
  element: HTMLLIElement;
  update(group: Group, host?: HostInfo): void; // host: the group is that of a host of the gate
}

export interface Hooks {
  open(s: SessionInfo): void;
  menu(at: HTMLElement, s: SessionInfo): void;
  forgetAll(sessions: SessionInfo[]): void; // forgets these exited sessions
  current(): string | undefined; // id of the session of the active pane
  startOn(host: string): void; // starts a session on a host of the gate
  news(s: SessionInfo): string | undefined; // events since the user last viewed the session
}

export class List {
  readonly element = h('ul', { id: 'sessions', 'aria-label': 'Sessions' });
  private readonly query = h('input', { type: 'search', class: 'query', 'aria-label': 'Filter the sessions', placeholder: 'Filter', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', title: 'Words of an id, a title, a command, a directory or a label (Alt + Shift + G)' });
  private readonly by: HTMLSelectElement = h('select', { class: 'by', 'aria-label': 'Group the sessions', onchange: () => change({ groupBy: this.by.value as GroupBy }) });
  readonly filter = h('div', { class: 'filter', role: 'search', 'aria-label': 'Sessions', hidden: true }, this.query, this.by);
  private readonly headings = new Map<string, Heading>();
  private readonly collapsed = new Set<string>(); // names of collapsed groups
  private last: [SessionInfo[], boolean, HostInfo[] | undefined] = [[], false, undefined];
  private readonly rows = new Map<string, Row>();
  private exited: SessionInfo[] = []; // the exited sessions that the filter lets through
  private readonly over = h('li', { class: 'over' }, h('h2', { text: 'Ended' }), h('button', { type: 'button', text: 'Forget all', onclick: () => this.hooks.forgetAll(this.exited) }));
  private readonly gone = h('li', { class: 'over' }, h('h2', { text: 'Lost with the machine' }));
  private readonly none = h('li', { class: 'none', text: 'No sessions yet.' });

  constructor(private readonly hooks: Hooks) {
    this.query.addEventListener('input', () => this.again());
    this.query.addEventListener('keydown', (e) => {
      if (e.isComposing) return;
      if (e.key === 'ArrowDown') this.element.querySelector<HTMLElement>('.open')?.focus();
      else if (e.key === 'Enter') this.element.querySelector<HTMLElement>('.open')?.click();
      else if (e.key === 'Escape' && this.query.value) {
        this.query.value = '';
        this.again();
      } else return;
      e.preventDefault();
      e.stopPropagation();
    });
    onChange(() => this.again());
    this.element.addEventListener('keydown', (e) => {
      const all = this.opens();
      const i = all.findIndex((b) => b.parentElement?.contains(document.activeElement));
      if (e.key === '/' && i >= 0) {
        e.preventDefault();
        return this.find();
      }
      if (e.key === 'ArrowUp' && i === 0 && !this.filter.hidden) return this.query.focus();
      const to = { ArrowDown: Math.min(i + 1, all.length - 1), ArrowUp: Math.max(i - 1, 0), Home: 0, End: all.length - 1 }[e.key];
      if (to === undefined || i < 0) return;
      e.preventDefault();
      all[to]?.focus();
    });
  }

  // show updates the list. ready tells whether the sessions are known. hosts are those of the gate, if the page is that
  // of a gate.
  show(all: SessionInfo[], ready: boolean, hosts?: HostInfo[]): void {
    this.last = [all, ready, hosts];
    const current = this.hooks.current();
    const chosen = settings().groupBy;
    const by = chosen === (hosts ? 'none' : 'host') ? (hosts ? 'host' : 'none') : chosen;
    this.choose(all, by, hosts !== undefined);
    this.filter.hidden = all.length < MANY && this.query.value === '' && (by === 'none' || by === 'host') && !this.filter.contains(document.activeElement);
    const found = all.filter((s) => matches(s, this.query.value));
    const row = (s: SessionInfo): HTMLElement => {
      let row = this.rows.get(s.id);
      if (!row) this.rows.set(s.id, (row = this.row()));
      row.update(s, s.id === current, this.hooks.news(s));
      return row.element;
    };
    const wanted: HTMLElement[] = [];
    const groups = grouped(found.filter((s) => !ended(s)), by);
    if (by === 'host' && !this.query.value) { // hosts without sessions, too
      for (const { name } of hosts ?? []) if (!groups.some((g) => g.name === name)) groups.push({ name, sessions: [] });
      groups.sort((a, b) => a.name.localeCompare(b.name));
    }
    for (const group of groups) {
      if (by !== 'none') wanted.push(this.heading(group, by === 'host' ? hosts?.find((h) => h.name === group.name) : undefined));
      if (by === 'none' || !this.collapsed.has(group.name) || this.query.value) wanted.push(...group.sessions.map(row));
    }
    const gone = found.filter((s) => s.state === 'lost');
    if (gone.length > 0) wanted.push(this.gone, ...gone.map(row));
    const over = (this.exited = found.filter((s) => ended(s) && s.state !== 'lost'));
    if (over.length > 0) wanted.push(this.over, ...over.map(row));
    const back = this.holdFocus();
    const there = new Set(all.map((s) => s.id));
    for (const id of this.rows.keys()) if (!there.has(id)) this.rows.delete(id);
    const shown = new Set(wanted);
    for (const [name, { element }] of this.headings) if (!shown.has(element)) this.headings.delete(name);
    this.none.textContent = !ready ? 'Loading…' : all.length > 0 ? 'No session matches.' : 'No sessions yet.';
    arrange(this.element, wanted.length > 0 ? wanted : [this.none]);
    back();
  }

  // holdFocus returns a function that returns the focus to the element that has it now, if that was moved in the list. If
  // its row was removed, the row that is in its place then gets the focus.
  private holdFocus(): () => void {
    const at = document.activeElement;
    if (!(at instanceof HTMLElement) || !this.element.contains(at)) return () => undefined;
    const i = this.opens().findIndex((b) => b.parentElement?.contains(at));
    return () => {
      if (document.activeElement === at) return;
      const all = this.opens();
      (this.element.contains(at) ? at : all[Math.min(Math.max(i, 0), all.length - 1)])?.focus({ preventScroll: true });
    };
  }

  // opens returns the buttons that open the sessions, in the order of the list.
  private opens(): HTMLElement[] {
    return [...this.element.querySelectorAll<HTMLElement>('.open')];
  }

  focus(): void {
    (this.element.querySelector<HTMLElement>('.current .open') ?? this.element.querySelector<HTMLElement>('.open'))?.focus();
  }

  // find moves the focus to the filter.
  find(): void {
    this.filter.hidden = false;
    this.query.focus();
    this.query.select();
  }

  // contains reports whether an element belongs to the list or its filter.
  contains(e: Element | null): boolean {
    return this.element.contains(e) || this.filter.contains(e);
  }

  private again(): void {
    this.show(...this.last);
  }

  // choose updates the ways to group. The chosen one stays, also if no session has its label.
  private choose(all: SessionInfo[], by: GroupBy, atGate: boolean): void {
    const offered = choices(all, atGate);
    if (!offered.some(([value]) => value === by)) offered.push([by, `By ${by.replace('label:', '')}`]);
    const now = JSON.stringify([offered, by]);
    if (this.by.dataset.now === now) return;
    this.by.dataset.now = now;
    this.by.replaceChildren(...offered.map(([value, text]) => h('option', { value, text, selected: value === by })));
    this.by.value = by;
  }

  private heading(group: Group, host?: HostInfo): HTMLElement {
    let heading = this.headings.get(group.name);
    if (!heading) {
      const { name } = group;
      const path = name.startsWith('/') && name.length > 32 ? `…${name.slice(-31)}` : name;
      const count = h('span', { class: 'count' });
      const state = h('span', { class: 'state', hidden: true });
      const plus = iconButton('plus', `New session on ${name}`, () => this.hooks.startOn(name));
      plus.hidden = true;
      const button = h('button', { type: 'button', title: name, onclick: () => {
        if (!this.collapsed.delete(name)) this.collapsed.add(name);
        this.again();
      } }, h('span', { class: 'name', text: path || 'Others' }), count, state);
      heading = {
        element: h('li', { class: 'group' }, h('h2', {}, button), plus),
        update: ({ sessions }, host) => {
          const says = host ? hostState(host) : '';
          setText(state, says);
          state.hidden = plus.hidden = !host;
          plus.disabled = says === 'unreachable';
          heading!.element.dataset.host = host ? name : '';
          heading!.element.dataset.state = says;
          setText(count, String(sessions.length));
          button.setAttribute('aria-expanded', String(!this.collapsed.has(name)));
        },
      };
      this.headings.set(name, heading);
    }
    heading.update(group, host);
    return heading.element;
  }

  private row(): Row {
    let session: SessionInfo;
    const name = h('span', { class: 'name' });
    const when = h('span', { class: 'when' });
    const cwd = h('span', { class: 'sub' });
    const about = h('span', { class: 'sub' });
    const open = h('button', { type: 'button', class: 'open', onclick: () => this.hooks.open(session) }, h('span', { class: 'dot', 'aria-hidden': 'true' }), name, when, cwd, about);
    const more = iconButton('more', 'Actions', () => this.hooks.menu(more, session));
    more.classList.add('more');
    const element = h('li', { class: 'row' }, open, more);
    const update: Row['update'] = (s, current, news) => {
      session = s;
      const lost = s.state === 'lost';
      const over = lost ? 'lost' : ended(s);
      const called = title(s);
      element.dataset.session = s.id;
      element.dataset.state = lost ? 'lost' : over ? (failed(s) ? 'failed' : 'ended') : says(s);
      element.classList.toggle('current', current);
      if (current) open.setAttribute('aria-current', 'true');
      else open.removeAttribute('aria-current');
      setText(name, called);
      name.classList.toggle('news', news !== undefined);
      setText(when, ago(over ? (s.lost?.seen_at ?? s.exit?.exited_at ?? s.last_io_at) : s.last_io_at));
      setText(cwd, [over, called === s.id ? '' : s.id, runs(s), place(s)].filter(Boolean).join(' · '));
      setText(about, [news ?? says(s), `${s.size.cols}×${s.size.rows}`, uses(s), who(s)].filter(Boolean).join(' · '));
      about.hidden = over !== '';
      open.title = `${called}\n${s.id}`;
      more.setAttribute('aria-label', `Actions for ${called}`);
    };
    return { element, update };
  }
}
