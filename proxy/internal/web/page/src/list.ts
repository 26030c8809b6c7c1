// The list of sessions. A row is made once and kept, so that the focus stays where it is.

import type { SessionInfo } from 'holdfast-client';

import { h, iconButton } from './dom.ts';
import { ago, chosen, ended, failed, place, says, title, who } from './words.ts';

interface Row {
  element: HTMLLIElement;
  update(s: SessionInfo, current: boolean, news: string | undefined): void;
}

export interface Hooks {
  open(s: SessionInfo): void;
  menu(at: HTMLElement, s: SessionInfo): void;
  forgetAll(): void; // that have ended
  current(): string | undefined; // the session of the active pane
  news(s: SessionInfo): string | undefined; // since it was looked at
}

export class List {
  readonly element = h('ul', { id: 'sessions', 'aria-label': 'Sessions' });
  private readonly rows = new Map<string, Row>();
  private readonly over = h('li', { class: 'over' }, h('h2', { text: 'Ended' }), h('button', { type: 'button', text: 'Forget all', onclick: () => this.hooks.forgetAll() }));
  private readonly none = h('li', { class: 'none', text: 'No sessions yet.' });

  constructor(private readonly hooks: Hooks) {
    this.element.addEventListener('keydown', (e) => {
      const all = [...this.element.querySelectorAll<HTMLElement>('.open')];
      const i = all.findIndex((b) => b.parentElement?.contains(document.activeElement));
      const to = { ArrowDown: Math.min(i + 1, all.length - 1), ArrowUp: Math.max(i - 1, 0), Home: 0, End: all.length - 1 }[e.key];
      if (to === undefined || i < 0) return;
      e.preventDefault();
      all[to]?.focus();
    });
  }

  // show brings the list up to date; ready says that it is known what there is.
  show(all: SessionInfo[], ready: boolean): void {
    const current = this.hooks.current();
    const wanted: HTMLElement[] = all.map((s) => {
      let row = this.rows.get(s.id);
      if (!row) this.rows.set(s.id, (row = this.row()));
      row.update(s, s.id === current, this.hooks.news(s));
      return row.element;
    });
    const over = all.findIndex((s) => ended(s));
    if (over >= 0) wanted.splice(over, 0, this.over);
    else this.over.remove();
    for (const [id, row] of this.rows) {
      if (all.some((s) => s.id === id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    this.none.textContent = ready ? 'No sessions yet.' : 'Loading…';
    if (wanted.length === 0) wanted.push(this.none);
    else this.none.remove();
    // An element that is in its place is not touched: moving one takes its focus.
    wanted.forEach((e, i) => {
      if (this.element.children[i] !== e) this.element.insertBefore(e, this.element.children[i] ?? null);
    });
  }

  focus(): void {
    (this.element.querySelector<HTMLElement>('.current .open') ?? this.element.querySelector<HTMLElement>('.open'))?.focus();
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
      const over = ended(s);
      const called = title(s);
      element.dataset.session = s.id;
      element.dataset.state = over ? (failed(s) ? 'failed' : 'ended') : says(s);
      element.classList.toggle('current', current);
      if (current) open.setAttribute('aria-current', 'true');
      else open.removeAttribute('aria-current');
      set(name, called);
      name.classList.toggle('news', news !== undefined);
      set(when, ago(over ? (s.exit?.exited_at ?? s.last_io_at) : s.last_io_at));
      set(cwd, [over, called === s.id ? '' : chosen(s), place(s)].filter(Boolean).join(' · '));
      set(about, [news ?? says(s), `${s.size.cols}×${s.size.rows}`, who(s)].filter(Boolean).join(' · '));
      about.hidden = over !== '';
      open.title = `${called}\n${s.id}`;
      more.setAttribute('aria-label', `Actions for ${called}`);
    };
    return { element, update };
  }
}

function set(e: HTMLElement, text: string): void {
  if (e.textContent !== text) e.textContent = text;
}
