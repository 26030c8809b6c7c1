// One terminal: xterm.js with its addons, and what joins it to a session.
//
//	idle ──start──▶ joining ──▶ live ──▶ ended | stolen | failed ──start──▶ …
//
// While it is joining, the client keeps the input; it is sent when the terminal is
// live, and dropped by what comes behind that.
//
// The session is shown at this terminal's size (view own), whatever size it has itself:
// the two are equal once somebody has typed here. So nothing is letterboxed.

import { ClipboardAddon } from '@xterm/addon-clipboard';
import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { WebglAddon } from '@xterm/addon-webgl';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { attach, exitText, HoldfastError, pasteText, Widths, type AttachedTerminal, type ExitInfo, type HoldfastClient, type SessionInfo } from 'holdfast-client';

import { mayWrite, said } from './dialogs.ts';
import { h } from './dom.ts';
import { Marks } from './marks.ts';
import { Recording } from './record.ts';
import { isDark, onChange, settings } from './settings.ts';
import { dark, light } from './themes.ts';

const SCROLLBACK = 10_000; // lines kept here; the session's own history is longer, see searchHistory
const HISTORY = 1000; // lines of it that are fetched when we attach

export type Phase = 'idle' | 'joining' | 'live' | 'ended' | 'stolen' | 'failed';

export interface Hooks {
  phase(phase: Phase, why?: string): void;
  title(title: string): void;
  focused(): void;
  // clipboard is asked where the user has not said yet whether the session may write there.
  clipboard(write: () => Promise<void>): void;
  // inputLost is told when input was dropped because more of it waits than may.
  inputLost(): void;
}

export class TerminalView {
  readonly element = h('div', { class: 'screen' });
  readonly term: Terminal;
  readonly search = new SearchAddon({ highlightLimit: 1000 });
  phase: Phase = 'idle';
  control = false; // the next character is typed with Ctrl, see the bar of keys
  onControl: () => void = () => undefined;
  private readonly fitter = new FitAddon();
  private readonly widths = new Widths(new Unicode11Addon(), new UnicodeGraphemesAddon());
  readonly marks = new Marks();
  recording: Recording | undefined;
  private webgl: WebglAddon | undefined;
  private attached: AttachedTerminal | undefined;
  private attempt = 0;
  private readonly undo: (() => void)[] = [];
  private expected: ((session: SessionInfo) => void) | undefined; // while there is none yet
  private opened = false;
  private frame = 0;
  private dark = isDark();

  constructor(
    private readonly client: HoldfastClient,
    private session: SessionInfo | undefined, // none yet: see bind
    private readonly hooks: Hooks,
    private readonly readOnly = false,
  ) {
    const s = settings();
    this.term = new Terminal({
      allowProposedApi: true, // for the widths of characters
      cursorBlink: false,
      disableStdin: readOnly,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
      fontSize: s.fontSize,
      lineHeight: 1.15,
      linkHandler: { activate: (_, uri) => follow(uri), hover: (_, uri) => (this.element.title = uri), leave: () => this.element.removeAttribute('title') },
      macOptionIsMeta: true,
      minimumContrastRatio: 4.5,
      rightClickSelectsWord: false,
      screenReaderMode: s.screenReader,
      scrollback: SCROLLBACK,
      theme: this.dark ? dark : light,
    });
    this.term.loadAddon(this.fitter);
    this.term.loadAddon(this.search);
    this.term.loadAddon(this.widths);
    this.term.loadAddon(this.marks);
    this.term.onResize(({ cols, rows }) => this.recording?.resized(cols, rows));
    this.term.loadAddon(new WebLinksAddon((_, uri) => follow(uri)));
    // Programs may write to the clipboard by the user's leave, and never read it.
    this.term.loadAddon(new ClipboardAddon(undefined, { readText: () => '', writeText: (_, text) => this.copies(text) }));
    this.term.onTitleChange((t) => hooks.title(t));
    this.undo.push(onChange((now) => {
      if (this.dark !== isDark()) {
        this.dark = isDark();
        this.term.options.theme = this.dark ? dark : light;
        if (!this.readOnly && this.phase === 'live') this.attached?.attachment.setAppearance(this.appearance());
      }
      this.term.options.screenReaderMode = now.screenReader;
      if (this.term.options.fontSize !== now.fontSize) {
        this.term.options.fontSize = now.fontSize;
        this.fitSoon();
      }
    }));
    const seen = new ResizeObserver(() => this.fitSoon());
    seen.observe(this.element);
    this.undo.push(() => seen.disconnect());
    this.element.addEventListener('focusin', () => hooks.focused());
  }

  // open makes the terminal ready to be typed into; call it once the element can be seen.
  open(): void {
    if (!this.opened) {
      this.opened = true;
      this.term.open(this.element);
      this.term.textarea?.setAttribute('aria-description', 'Alt+Shift+L leaves the terminal for the list of sessions, Alt+Shift+/ lists all keys');
    }
    this.shown(true);
    this.fit();
  }

  // bind gives the session to a terminal that was made before there was one. If it was
  // started, it goes on with this session.
  bind(session: SessionInfo): void {
    this.session = session;
    this.expected?.(session);
    this.expected = undefined;
  }

  // start shows the session, or the one that is given to bind; call it once the element
  // can be seen.
  async start(steal = false): Promise<void> {
    if (this.phase === 'joining' || this.phase === 'live') return;
    const session = this.session ?? new Promise<SessionInfo>((bound) => (this.expected = bound));
    const mine = ++this.attempt;
    this.attached?.dispose();
    this.attached = undefined;
    this.is('joining');
    this.open();
    this.term.reset(); // what comes first is for an empty terminal
    this.widths.reset();
    try {
      const attached = await attach(this.terminal(), this.client, Promise.resolve(session).then((s) => s.id), {
        fit: this.fitter, readOnly: this.readOnly, steal, history: HISTORY, appearance: this.appearance(),
        onInputLost: () => this.hooks.inputLost(),
        onExit: () => {
          if (mine === this.attempt) this.ends();
        },
      });
      if (mine !== this.attempt) return attached.dispose();
      this.attached = attached;
      attached.attachment.on('stolen', () => mine === this.attempt && this.is('stolen'));
      attached.attachment.on('error', (err) => mine === this.attempt && this.phase === 'live' && this.is('failed', said(err)));
      if (!this.over()) this.is('live');
    } catch (err) {
      if (mine !== this.attempt) return;
      if (err instanceof HoldfastError && err.code === 'session_exited') return this.past();
      this.is('failed', said(err));
    }
  }

  private ends(): void {
    this.term.write('\x1b[?25l'); // nobody waits for what is typed
    this.is('ended');
  }

  // past shows a session that has ended: its last screen, and how it ended.
  private async past(): Promise<void> {
    const mine = this.attempt;
    const { id } = this.session!;
    try {
      const [info, screen] = await Promise.all([this.client.info(id), this.client.screen({ session_id: id, format: 'ansi', scrollback: HISTORY, non_empty: true })]);
      if (mine !== this.attempt) return;
      this.term.write((screen.ansi ?? '').replaceAll(/\r?\n/g, '\r\n'));
      const e = info.exit;
      const exit: ExitInfo = {
        session_id: id, pane_id: id, session_title: '', session_description: '', exit_code: e?.exit_code ?? info.exit_code ?? -1,
        last_lines: e?.last_lines ?? [], timed_out: e?.timed_out ?? false,
      };
      this.term.write(exitText(exit));
      this.ends();
    } catch (err) {
      if (mine === this.attempt) this.is('failed', said(err));
    }
  }

  // terminal is what the client is given: xterm.js, but for its input, which the bar of
  // keys may change, and its output, which a recording hears.
  private terminal(): Terminal {
    const { term } = this;
    return new Proxy(term, {
      get: (_, name) => {
        if (name === 'onData') return (f: (data: string) => void) => term.onData((data) => f(this.controlled(data)));
        if (name === 'write') {
          return (data: string | Uint8Array, done?: () => void) => {
            this.recording?.wrote(data);
            term.write(data, done);
          };
        }
        const value: unknown = Reflect.get(term, name, term);
        return typeof value === 'function' ? (value as (...a: unknown[]) => unknown).bind(term) : value;
      },
    });
  }

  // controlled is what is typed, with Ctrl of the bar of keys.
  private controlled(data: string): string {
    if (!this.control) return data;
    this.control = false;
    this.onControl();
    return withControl(data);
  }

  private appearance(): { foreground: string; background: string; cursor: string } {
    const t = this.dark ? dark : light;
    return { foreground: t.foreground!, background: t.background!, cursor: t.cursor! };
  }

  private async copies(text: string): Promise<void> {
    const may = this.session && mayWrite(this.session.instance);
    const write = (): Promise<void> => navigator.clipboard.writeText(text);
    if (may === true) await write().catch(() => this.hooks.clipboard(write));
    else if (may === undefined) this.hooks.clipboard(write);
  }

  // paste pastes text, without the control characters in it.
  paste(text: string): void {
    this.term.paste(pasteText(text));
  }

  // text is what is selected, or else what the screen shows.
  text(): string {
    if (this.term.hasSelection()) return this.term.getSelection();
    const { active } = this.term.buffer;
    const lines = Array.from({ length: this.term.rows }, (_, y) => active.getLine(active.baseY + y)?.translateToString(true) ?? '');
    return lines.join('\n').trimEnd();
  }

  // record begins a recording, with what the screen shows now.
  async record(title: string): Promise<void> {
    const { id } = this.session!;
    const { cols, rows } = this.term;
    const screen = await this.client.screen({ session_id: id, format: 'ansi', cols, rows });
    this.recording = new Recording(cols, rows, title, `${(screen.ansi ?? '').replaceAll(/\r?\n/g, '\r\n')}\x1b[${screen.cursor.y + 1};${screen.cursor.x + 1}H`);
  }

  // type types as if by a key.
  type(data: string): void {
    this.term.input(data, true);
  }

  // arrow is a cursor key, as the program wants it.
  arrow(letter: 'A' | 'B' | 'C' | 'D'): void {
    this.term.input(`\x1b${this.term.modes.applicationCursorKeysMode ? 'O' : '['}${letter}`, true);
  }

  // over says whether it has ended meanwhile.
  private over = (): boolean => this.phase !== 'joining';

  private is(phase: Phase, why?: string): void {
    this.phase = phase;
    this.hooks.phase(phase, why);
  }

  fit(): void {
    if (this.element.offsetWidth > 0 && this.opened) this.fitter.fit();
  }

  private fitSoon(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.fit();
    });
  }

  // shown takes a WebGL context while the terminal can be seen, and no longer: there
  // are few. Without one the rows are elements.
  shown(yes: boolean): void {
    if (!yes || !this.opened) {
      this.webgl?.dispose();
      this.webgl = undefined;
      return;
    }
    this.fitSoon();
    if (this.webgl || !webglWorks) return;
    try {
      const webgl = new WebglAddon();
      webgl.onContextLoss(() => {
        webgl.dispose();
        if (this.webgl === webgl) this.webgl = undefined;
      });
      this.term.loadAddon(webgl);
      this.webgl = webgl;
    } catch {
      webglWorks = false;
    }
  }

  focus(): void {
    this.term.focus();
  }

  dispose(): void {
    this.attempt++;
    cancelAnimationFrame(this.frame);
    for (const f of this.undo) f();
    this.attached?.dispose();
    this.webgl?.dispose();
    this.term.dispose();
    this.element.remove();
  }
}

let webglWorks = true;

// follow opens what a program shows as a link: a page, and nothing else.
function follow(uri: string): void {
  if (/^https?:\/\//i.test(uri)) window.open(uri, '_blank', 'noopener,noreferrer');
}

// withControl is a character as Ctrl makes it.
function withControl(data: string): string {
  if (data === ' ') return '\0';
  if (data === '?') return '\x7f';
  return /^[a-z@[\\\]^_]$/i.test(data) ? String.fromCharCode(data.toUpperCase().charCodeAt(0) & 31) : data;
}
