// A pane: a terminal with its title and notices, or the choice of sessions.

import type { SessionInfo } from 'holdfast';

import type { Client } from './client.ts';
import { h, iconButton, setText } from './dom.ts';
import { Find } from './find.ts';
import { PastView } from './past.ts';
import { clipboard } from './settings.ts';
import { TerminalView, type Phase } from './terminal.ts';
import { ended, loss, revival, title } from './words.ts';

export interface Hooks {
  activate(): void;
  close(): void;
  start(): void; // starts a new session in this pane
  show(s: SessionInfo): void; // shows this session in this pane
  reopen(s: SessionInfo): void;
  forget(s: SessionInfo): void;
  history(s: SessionInfo, text: string): void;
  copy(write: () => Promise<void>): void; // writes to the clipboard, and tells if the browser refuses it
  hasPast(): boolean; // the proxy can show the past of sessions
  changed(): void; // the past was opened or closed, or a recording has begun or was saved
  choices(): SessionInfo[];
}

export class PaneView {
  readonly element: HTMLElement;
  terminal: TerminalView | undefined;
  past: PastView | undefined; // lies over the terminal
  private newer: SessionInfo | undefined; // the session, if it was started again as another instance
  private session: SessionInfo | undefined;
  private readonly name = h('span', { class: 'name' });
  private readonly notices = h('div', { role: 'status' });
  private finding: Find | undefined;
  private seen = false;
  private said = ''; // the notice of the session's end, and whether it offers the past
  private asks: string | undefined; // the instances of the choice that is shown

  constructor(
    private readonly client: Client,
    private readonly hooks: Hooks,
  ) {
    const head = h('div', { class: 'pane-head' }, this.name, iconButton('close', 'Close pane', () => hooks.close(), 'Alt+Shift+W'));
    this.element = h('section', { class: 'pane', onpointerdown: () => hooks.activate() }, head, this.notices);
    this.wait();
  }

  // wait shows the choice of sessions. If it is shown already, its elements stay, because one may have the focus or the
  // pointer.
  wait(): void {
    const choices = this.hooks.choices().slice(0, 12);
    const asks = choices.map((s) => s.instance).join();
    if (this.asks !== asks) this.ask(choices, asks);
    const titles = choices.map(title);
    this.element.querySelectorAll<HTMLElement>('.choices .action:not(.first)').forEach((b, i) => {
      const isUnique = titles.indexOf(titles[i]!) === titles.lastIndexOf(titles[i]!);
      setText(b, (b.title = isUnique ? titles[i]! : `${choices[i]!.id} · ${titles[i]}`));
    });
  }

  private ask(choices: SessionInfo[], asks: string): void {
    const focused = this.element.querySelector('.empty')?.contains(document.activeElement);
    this.clear();
    this.asks = asks;
    this.name.textContent = 'No session';
    this.element.setAttribute('aria-label', 'No session');
    this.notices.before(h('div', { class: 'empty' },
      h('h2', { text: choices.length ? 'Which session?' : 'No session here' }),
      h('p', { text: choices.length ? 'Choose one, here or in the list, or start another.' : 'A session continues when this page is closed, and when the programs around it are replaced.' }),
      h('div', { class: 'choices' },
        ...choices.map((s) => h('button', { type: 'button', class: 'action', onclick: () => this.hooks.show(s) })),
        h('button', { type: 'button', class: 'action first', text: 'New session', onclick: () => this.hooks.start() }))));
    if (focused) this.focus();
  }

  // show shows a session. The terminal attaches when the pane is visible.
  show(session: SessionInfo): void {
    this.clear();
    this.session = session;
    this.make(session);
    this.update(session);
    this.join();
  }

  // expect shows an empty terminal for a session that is being started. The caller must pass the session to the function
  // that expect returns; the session then receives the input of the meantime. The function returns false if the pane
  // shows another terminal, or none, by then.
  expect(): (session: SessionInfo) => boolean {
    this.clear();
    const terminal = this.make(undefined);
    this.name.textContent = 'New session';
    this.element.setAttribute('aria-label', 'New session');
    this.join();
    return (session) => {
      if (this.terminal !== terminal) return false;
      this.session = session;
      this.update(session);
      terminal.bind(session);
      return true;
    };
  }

  // size returns the size of the terminal, or undefined if no terminal is visible.
  get size(): { cols: number; rows: number } | undefined {
    return this.terminal && this.seen ? { cols: this.terminal.term.cols, rows: this.terminal.term.rows } : undefined;
  }

  private make(session: SessionInfo | undefined): TerminalView {
    this.terminal = new TerminalView(this.client, session, {
      phase: (phase, why) => this.phase(phase, why),
      replaced: () => void this.findNewer(),
      focused: () => this.hooks.activate(),
      clipboard: (write) => this.mayCopy(write),
      inputLost: (why = 'More was typed than can wait until the session is there: the last of it is lost.') => this.say('input', why,
        h('button', { type: 'button', class: 'action', text: 'Close', onclick: (e: Event) => {
          (e.target as HTMLElement).parentElement?.remove();
          this.focus();
        } })),
      recording: () => this.recording(),
    });
    this.notices.before(this.terminal.element);
    return this.terminal;
  }

  private join(): void {
    if (this.seen) void this.terminal?.start();
  }

  // update shows the present state of the session.
  update(s: SessionInfo): void {
    if (s.id === this.session?.id && s.instance !== this.session.instance) return this.startedAgain(s);
    if (s.instance !== this.session?.instance) return;
    this.session = s;
    this.past?.update(s);
    const called = title(s);
    this.name.textContent = called;
    this.element.setAttribute('aria-label', `Terminal of ${called}`);
    this.frozen(s);
    if (this.terminal?.phase === 'ended' && this.said !== this.end(s)) this.phase('ended'); // the exit record arrives after the exit
  }

  // forgotten tells that the session does not exist any more, because another client has forgotten it, or exit_keep is over.
  forgotten(): void {
    this.newer = undefined;
    if (this.session) this.update({ ...this.session, state: 'forgotten' });
  }

  // startedAgain remembers a new instance of the session. When the terminal of the old one has ended, or if it was never
  // attached, the pane offers the new one.
  private startedAgain(s: SessionInfo): void {
    if (this.terminal?.phase === 'idle') return this.replaced(s);
    if (this.newer?.instance === s.instance) return;
    this.newer = s;
    if (this.terminal && ['ended', 'failed'].includes(this.terminal.phase)) this.phase(this.terminal.phase);
  }

  // findNewer requests the new instance of a session that was started again.
  private async findNewer(): Promise<void> {
    const old = this.session;
    const s = old && await this.client.info(old.id).catch(() => undefined);
    if (s && s.id === this.session?.id && s.instance !== this.session.instance) this.startedAgain(s);
  }

  // replaced shows that the session has another instance than the one that was shown here, and offers that.
  replaced(s: SessionInfo): void {
    if (this.newer?.instance === s.instance) return;
    this.clear();
    this.session = s;
    this.newer = s;
    this.name.textContent = title(s);
    this.element.setAttribute('aria-label', `Terminal of ${title(s)}`);
    this.offer();
  }

  // offer tells that the session was started again, and offers its new instance.
  private offer(): void {
    const s = this.newer!;
    this.say('end', 'The session that was shown here has ended, and was started again.',
      h('button', { type: 'button', class: 'action first', text: 'Show the new one', onclick: () => this.hooks.show(s) }));
  }

  // openPast shows a slider over the past of the session, above its terminal. It begins at the end of the output, or at
  // that of a command: 1 is the last one.
  openPast(command = 0): void {
    const { terminal: t, session: s } = this;
    if (!t || !s || this.past || !this.hooks.hasPast()) return;
    this.finding?.close();
    this.past = new PastView(this.client, s, () => this.closePast());
    t.covered(true);
    t.element.append(this.past.element);
    void this.past.open(command);
    this.past.focus();
    this.hooks.changed();
  }

  // closePast returns to the terminal.
  closePast(): void {
    this.past?.dispose();
    this.past = undefined;
    this.terminal?.covered(false);
    this.focus();
    this.hooks.changed();
  }

  // frozen shows a notice with a button while all processes of the session are frozen.
  private frozen(s: SessionInfo): void {
    const told = this.notices.querySelector('[data-kind="frozen"]');
    if (!s.frozen || ended(s)) told?.remove();
    else if (!told) this.say('frozen', 'All processes of this session are frozen.', h('button', { type: 'button', class: 'action first', text: 'Thaw', onclick: () => this.thaw(s) }));
  }

  private thaw(s: SessionInfo): void {
    this.client.thaw(s.id).catch((err: unknown) => this.say('frozen', `The session was not thawed: ${err instanceof Error ? err.message : String(err)}`));
  }

  // shown sets whether the pane is visible.
  shown(yes: boolean): void {
    this.seen = yes;
    this.terminal?.shown(yes);
    if (this.terminal?.phase === 'idle') this.join();
  }

  focus(): void {
    if (this.past) this.past.focus();
    else if (this.terminal) this.terminal.focus();
    else this.element.querySelector<HTMLElement>('.empty button, .notice button')?.focus();
  }

  find(): void {
    const t = this.terminal;
    const s = this.session;
    if (!t || !s || this.past) return;
    this.finding ??= new Find(t.search, () => {
      this.finding = undefined;
      t.focus();
    }, (text) => this.hooks.history(s, text));
    t.element.append(this.finding.element);
    this.finding.focus();
  }

  dispose(): void {
    this.clear();
    this.element.remove();
  }

  private clear(): void {
    this.finding = undefined;
    this.past?.dispose();
    this.past = undefined;
    this.terminal?.dispose();
    this.terminal = undefined;
    this.session = undefined;
    this.newer = undefined;
    this.asks = undefined;
    this.notices.replaceChildren();
    this.element.querySelector('.empty')?.remove();
  }

  private phase(phase: Phase, why?: string): void {
    const s = this.session;
    if (!s) return;
    this.element.dataset.phase = phase;
    const again = (label: string, steal = false): HTMLElement => h('button', { type: 'button', class: 'action first', text: label, onclick: () => void this.terminal?.start(steal).then(() => this.focus()) });
    if (this.newer && (phase === 'ended' || phase === 'failed')) return this.offer();
    switch (phase) {
      case 'ended':
        this.said = this.end(s);
        if (s.state === 'lost') return this.lost(s);
        if (s.state === 'forgotten') {
          return this.say('end', 'The session was forgotten. This is its last screen.', h('button', { type: 'button', class: 'action first', text: 'Close the pane', onclick: () => this.hooks.close() }));
        }
        return this.say('end', ended(s) ? `${ended(s).replace(/^./, (c) => c.toUpperCase())}.` : 'The session has ended.',
          h('button', { type: 'button', class: 'action first', text: 'Start again', onclick: () => this.hooks.reopen(s) }),
          h('button', { type: 'button', class: 'action', text: 'Forget', onclick: () => this.hooks.forget(s) }));
      case 'stolen':
        return this.say('end', why ?? 'Another client has taken this terminal for itself.', again('Take it back', true));
      case 'failed':
        return this.say('end', why ?? 'The session cannot be shown.', again('Try again'));
      default:
        for (const kind of ['end', 'input']) this.unsay(kind);
    }
  }

  private end = (s: SessionInfo): string => `${s.state} ${ended(s)} ${this.hooks.hasPast()}`;

  // lost tells what is known of a lost session. It is started again only if the user asks for that.
  private lost(s: SessionInfo): void {
    const next = revival(s);
    const start = next instanceof Error ? undefined : h('button', { type: 'button', class: 'action first', text: 'Start again', title: `Start again ${next.says}, below the old screen`, onclick: () => this.hooks.reopen(s) });
    const text = next instanceof Error ? next.message : `“Start again” ${next.says}.`;
    this.say('end', `${loss(s)} ${text}`,
      ...(start ? [start] : []),
      ...(this.hooks.hasPast() ? [h('button', { type: 'button', class: 'action', text: 'The past', onclick: () => this.openPast() })] : []),
      h('button', { type: 'button', class: 'action', text: 'Forget…', onclick: () => this.hooks.forget(s) }));
  }

  private mayCopy(write: () => Promise<void>): void {
    const s = this.session;
    if (!s) return;
    const answer = (yes: boolean) => () => {
      clipboard.set(s.instance, yes);
      this.unsay('clipboard');
      this.focus();
      if (yes) this.hooks.copy(write);
    };
    this.say('clipboard', 'This program wants to copy something to the clipboard.',
      h('button', { type: 'button', class: 'action first', text: 'Allow', onclick: answer(true) }),
      h('button', { type: 'button', class: 'action', text: 'Never for this session', onclick: answer(false) }));
  }

  // recording tells that a recording is full, until it is saved.
  private recording(): void {
    this.unsay('recording');
    if (this.terminal?.recording?.full) {
      this.say('recording', 'The recording has reached 64 MiB, and has ended there.', h('button', { type: 'button', class: 'action first', text: 'Save', onclick: () => {
        this.terminal?.stopRecording();
        this.focus();
      } }));
    }
    this.hooks.changed();
  }

  // failed tells why something that the user asked for did not happen.
  failed(text: string): void {
    this.say('failed', text);
  }

  // say shows a notice under the terminal. It replaces an earlier notice of the same kind.
  private say(kind: string, text: string, ...actions: HTMLElement[]): void {
    this.unsay(kind);
    this.notices.append(h('div', { class: 'notice', 'data-kind': kind }, h('span', { class: 'say', text }), ...actions));
  }

  private unsay(kind: string): void {
    this.notices.querySelector(`[data-kind="${kind}"]`)?.remove();
  }
}
