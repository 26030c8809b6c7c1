// The past of a session: a slider over all moments that are kept, and a terminal that shows the screen of the chosen one.
// The terminal lies over the pane's own one. It takes no input, and the session is not told of its size.
//
// One request is under way at a time. The moment that was chosen last is requested next; moments between are skipped.

import { Terminal } from '@xterm/xterm';
import { HoldfastError, type PastContent, type SessionInfo } from 'holdfast';

import type { Client } from './client.ts';
import { said } from './dialogs.ts';
import { h, iconButton } from './dom.ts';
import { clamp, jump, labels, printed, says, step, withCommands } from './moments.ts';
import { isDark, onChange, settings } from './settings.ts';
import { dark, light } from './themes.ts';
import { ended } from './words.ts';

const HISTORY = 500; // lines above the screen of a moment
const LABELS = 5; // times below the slider
const REFRESH = 5000; // ms between descriptions of a session that prints
const PAGE = 10; // the keys PageUp and PageDown move by this part of the past
const SMALLEST = 4; // CSS pixels of the font
const ANOTHER = 'This session was started again; its past is that of the new one.';

export class PastView {
  readonly element: HTMLElement;
  private readonly screen = h('div', { class: 'past-screen' });
  private readonly text = h('span', { class: 'say' });
  private readonly warning = h('span', { class: 'warning', role: 'status' });
  private readonly slider = h('input', { type: 'range', min: 0, max: 0, step: 1, value: 0, 'aria-label': 'Moment of the past', 'aria-keyshortcuts': '[ ] Escape' });
  private readonly marks = h('div', { class: 'past-marks', 'aria-hidden': 'true' });
  private readonly times = h('div', { class: 'past-times', 'aria-hidden': 'true' });
  private readonly earlier: HTMLButtonElement;
  private readonly later: HTMLButtonElement;
  private readonly back: HTMLButtonElement;
  readonly term: Terminal;
  private readonly undo: (() => void)[] = [];
  private past: PastContent | undefined;
  private wanted = 0; // offset of the chosen moment
  private shown: { offset: number; time: number | undefined } | undefined;
  private busy = false;
  private described = 0; // time of the last description, in ms
  private over = false;

  constructor(
    private readonly client: Client,
    private session: SessionInfo,
    private readonly leave: () => void,
  ) {
    this.earlier = iconButton('before', 'Previous command', () => this.command(-1), '[');
    this.later = iconButton('after', 'Next command', () => this.command(1), ']');
    this.back = h('button', { type: 'button', class: 'action first', title: 'Escape', onclick: () => this.leave() });
    this.element = h('div', { class: 'past', role: 'group', 'aria-label': 'The past, read only' },
      this.screen,
      h('div', { class: 'past-bar' },
        h('div', { class: 'past-line' }, h('span', { class: 'badge', text: 'past' }), this.text, this.warning, this.earlier, this.later, this.back),
        h('div', { class: 'past-track' }, this.marks, this.slider),
        this.times));
    this.element.addEventListener('keydown', (e) => this.key(e));
    this.slider.addEventListener('input', () => this.choose(Number(this.slider.value)));
    this.term = new Terminal({
      allowProposedApi: true, cursorBlink: false, disableStdin: true, lineHeight: 1.15, minimumContrastRatio: 4.5, scrollback: HISTORY,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'), fontSize: settings().fontSize,
      screenReaderMode: settings().screenReader, theme: isDark() ? dark : light,
    });
    this.term.attachCustomKeyEventHandler(() => false); // all keys are the slider's
    this.undo.push(onChange(() => {
      this.term.options.theme = isDark() ? dark : light;
      this.fit();
    }));
    const seen = new ResizeObserver(() => this.fit());
    seen.observe(this.screen);
    this.undo.push(() => seen.disconnect());
    this.update(session);
  }

  // open shows the last moment that is kept, or the end of a command: 1 is the last one. It must be called when the
  // element is visible.
  async open(command = 0): Promise<void> {
    this.term.open(this.screen);
    this.term.textarea?.setAttribute('tabindex', '-1');
    this.term.textarea?.setAttribute('aria-label', 'Screen of the past');
    await this.describe();
    if (this.past) this.choose((command > 0 && this.past.commands?.at(-command)?.end) || this.past.end);
  }

  // update receives the present state of the session. If it has printed more, the slider grows.
  update(s: SessionInfo): void {
    this.session = s;
    this.back.textContent = ended(s) ? 'Last screen' : 'Live';
    if (this.past && s.output_offset > this.past.end && Date.now() - this.described > REFRESH) void this.describe();
  }

  focus(): void {
    this.slider.focus();
  }

  // command moves to the end of the next command in a direction.
  command(direction: 1 | -1): void {
    const to = this.past && jump(this.past, this.wanted, direction);
    if (to !== undefined) this.choose(to);
  }

  dispose(): void {
    this.over = true;
    for (const f of this.undo) f();
    this.term.dispose();
    this.element.remove();
  }

  private async describe(): Promise<void> {
    this.described = Date.now();
    try {
      const { id } = this.session;
      const [all, recent] = await Promise.all([this.client.past({ session_id: id }), this.client.commands(id).catch(none)]);
      if (this.over) return;
      const past = withCommands(all, recent?.instance === all.instance ? recent.commands : []);
      if (past.instance !== this.session.instance) return this.warn(ANOTHER);
      this.past = past;
      this.draw(past);
    } catch (err) {
      this.failed(err);
    }
  }

  // draw updates the slider, its marks and its times.
  private draw(past: PastContent): void {
    const { start, end } = past;
    Object.assign(this.slider, { min: String(start), max: String(end) });
    const place = (offset: number): number => (end > start ? ((clamp(past, offset) - start) / (end - start)) * 100 : 0);
    const mark = (name: string, from: number, to = from): HTMLElement => {
      const e = h('span', { class: name });
      e.style.left = `${place(from)}%`;
      if (to > from) e.style.width = `${place(to) - place(from)}%`;
      return e;
    };
    this.marks.replaceChildren(
      ...(past.gaps ?? []).map((g) => mark('gap', g.from, g.to)),
      ...(past.commands ?? []).filter((c) => c.end >= start).map((c) => mark(c.exit_code ? 'command failed' : 'command', c.end)));
    this.times.replaceChildren(...labels(past, LABELS).map((text) => h('span', { text })));
    this.tell();
  }

  private choose(offset: number): void {
    if (!this.past) return;
    this.wanted = clamp(this.past, offset);
    this.slider.value = String(this.wanted);
    this.tell();
    void this.show();
  }

  // tell describes the chosen moment.
  private tell(): void {
    const { past, shown } = this;
    if (!past) return;
    const exact = shown?.offset === this.wanted ? shown.time : undefined;
    const known = printed(past, this.wanted);
    const time = exact === undefined || known === undefined ? (exact ?? known) : Math.max(exact, known); // both may be too early
    const text = says(past, this.wanted, time);
    this.text.textContent = text;
    this.slider.setAttribute('aria-valuetext', text);
    const disable = (button: HTMLButtonElement, direction: 1 | -1): void => {
      const none = jump(past, this.wanted, direction) === undefined;
      if (none && document.activeElement === button) this.focus(); // a disabled button loses the keys
      button.disabled = none;
    };
    disable(this.earlier, -1);
    disable(this.later, 1);
  }

  // show requests the screen of the chosen moment, and again if another moment was chosen meanwhile.
  private async show(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    for (let asked = -1; asked !== this.wanted && !this.over;) {
      asked = this.wanted;
      await this.request(asked).catch((err: unknown) => this.failed(err));
    }
    this.busy = false;
  }

  private async request(offset: number): Promise<void> {
    const s = await this.client.screen({ session_id: this.session.id, format: 'state', scrollback: HISTORY, at: { offset } });
    if (this.over || offset !== this.wanted) return;
    if (s.instance !== this.session.instance) return this.warn(ANOTHER);
    await this.print(s, s.state ?? '');
    if (this.over) return;
    this.shown = { offset, time: s.printed_at === undefined ? undefined : Date.parse(s.printed_at) };
    const alone = this.past?.start === this.past?.end;
    this.warn(s.inexact ? 'Output before this moment is not kept, so the screen may have been another one.' : alone ? 'Only the last screen is kept.' : '');
    this.tell();
  }

  // print shows a state, which is in base64. The terminal must have processed all earlier writes.
  private print(size: { cols: number; rows: number }, state: string): Promise<void> {
    const { term } = this;
    if (term.cols !== size.cols || term.rows !== size.rows) {
      term.resize(size.cols, size.rows);
      this.fit();
    }
    const bytes = Uint8Array.from(atob(state), (c) => c.charCodeAt(0));
    const reset = new TextEncoder().encode('\x1bc'); // in the same write, so that no empty screen is drawn between
    const all = new Uint8Array(reset.length + bytes.length);
    all.set(reset);
    all.set(bytes, reset.length);
    return new Promise((done) => term.write(all, done));
  }

  private failed(err: unknown): void {
    if (this.over) return;
    if (!(err instanceof HoldfastError)) throw err;
    this.warn(said(err));
  }

  private warn(text: string): void {
    if (this.warning.textContent !== text) this.warning.textContent = text;
  }

  // fit chooses the font with which the screen of that time fits the pane, at most the one of the settings.
  private fit(): void {
    const drawn = this.term.element?.querySelector<HTMLElement>('.xterm-screen');
    const font = this.term.options.fontSize!;
    if (!drawn || drawn.offsetWidth === 0 || this.screen.clientWidth === 0) return;
    const style = getComputedStyle(this.term.element!);
    const room = { w: this.screen.clientWidth - Number.parseFloat(style.paddingLeft) * 2, h: this.screen.clientHeight - Number.parseFloat(style.paddingTop) * 2 };
    const best = font * Math.min(room.w / drawn.offsetWidth, room.h / drawn.offsetHeight);
    const wanted = Math.max(SMALLEST, Math.min(settings().fontSize, Math.floor(best * 2) / 2));
    if (wanted !== font) this.term.options.fontSize = wanted;
  }

  private key(e: KeyboardEvent): void {
    const { past, wanted } = this;
    const to = past && !e.altKey && !e.ctrlKey && !e.metaKey ? moved(past, wanted, e.key) : undefined;
    if (e.key === 'Escape') this.leave();
    else if (e.key === '[' || e.key === ']') this.command(e.key === ']' ? 1 : -1); // some keyboards need AltGr for them
    else if (to !== undefined) this.choose(to);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
}

// none is the result of a request that an older proxy does not know.
function none(err: unknown): undefined {
  if (!(err instanceof HoldfastError)) throw err;
}

// moved returns the offset to which a key moves, or undefined if the key does not move.
function moved(past: PastContent, offset: number, key: string): number | undefined {
  const part = Math.max(1, (past.end - past.start) / PAGE);
  switch (key) {
    case 'ArrowLeft': case 'ArrowDown': return step(past, offset, -1);
    case 'ArrowRight': case 'ArrowUp': return step(past, offset, 1);
    case 'PageDown': return offset - part;
    case 'PageUp': return offset + part;
    case 'Home': return past.start;
    case 'End': return past.end;
    default: return undefined;
  }
}
