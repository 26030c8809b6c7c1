// A terminal: xterm.js with its addons, and its attachment to a session.
//
//	idle ──start──▶ joining ──▶ live ──▶ ended | stolen | failed ──start──▶ …
//
// In the phase joining, the client stores the input. It sends the input in the phase live, and drops it in any later
// phase.
//
// The terminal shows the session at its own size (view own), although the session may have another size. Both are equal
// after input in this terminal. The terminal therefore always fills its pane.

import { ClipboardAddon } from '@xterm/addon-clipboard';
import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { WebglAddon } from '@xterm/addon-webgl';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { attach, exitText, HoldfastError, pasteText, Widths, type AttachedTerminal, type ExitInfo, type SessionInfo, type TerminalOptions } from 'holdfast';

import type { Client } from './client.ts';
import { mayWrite, said } from './dialogs.ts';
import { h } from './dom.ts';
import { MATCHES } from './find.ts';
import { Marks } from './marks.ts';
import { Recording, save } from './record.ts';
import { isDark, onChange, settings } from './settings.ts';
import { dark, light } from './themes.ts';

const SCROLLBACK = 10_000; // lines that xterm.js keeps; the session's own history is longer, see searchHistory
const HISTORY = 1000; // lines of the session's history in the first snapshot

export type Phase = 'idle' | 'joining' | 'live' | 'ended' | 'stolen' | 'failed';

export interface Hooks {
  phase(phase: Phase, why?: string): void;
  replaced(): void; // the attachment has failed, because the session was started again meanwhile
  focused(): void;
  // clipboard asks the user whether the session may write to the clipboard, if that is not known.
  clipboard(write: () => Promise<void>): void;
  // inputLost is called when input was dropped, or a part of it was refused. Without why, too much input waits.
  inputLost(why?: string): void;
  recording(): void; // a recording has begun, is full, or was saved
}

export class TerminalView {
  readonly element = h('div', { class: 'screen' });
  readonly term: Terminal;
  readonly search = new SearchAddon({ highlightLimit: MATCHES });
  phase: Phase = 'idle';
  control = false; // the bar of keys adds Ctrl to the next character
  onControl: () => void = () => undefined;
  private readonly fitter = new FitAddon();
  private readonly widths = new Widths(new Unicode11Addon(), new UnicodeGraphemesAddon());
  readonly marks = new Marks();
  recording: Recording | undefined;
  private webgl: WebglAddon | undefined;
  private attached: AttachedTerminal | undefined;
  private attempt = 0;
  private readonly undo: (() => void)[] = [];
  private expected: ((session: SessionInfo) => void) | undefined; // set while the session is not known
  private opened = false;
  private pictures = false; // the terminal shows pictures
  private frame = 0;
  private dark = isDark();

  constructor(
    private readonly client: Client,
    private session: SessionInfo | undefined, // undefined until bind is called
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
    // A terminal that takes no input leaves Tab to the browser, which moves the focus, and Ctrl+C, which copies.
    this.term.attachCustomKeyEventHandler((e) => this.takesInput() || !(e.key === 'Tab' || (e.ctrlKey && e.key.toLowerCase() === 'c')));
    this.term.onResize(({ cols, rows }) => this.recording?.resized(cols, rows));
    this.term.loadAddon(new WebLinksAddon((_, uri) => follow(uri)));
    // Programs may write to the clipboard if the user permits it. They must not read it.
    this.term.loadAddon(new ClipboardAddon(undefined, { readText: () => '', writeText: (_, text) => this.copies(text) }));
    this.undo.push(onChange((now) => {
      if (this.dark !== isDark()) {
        this.dark = isDark();
        this.term.options.theme = this.dark ? dark : light;
        if (!this.readOnly && this.phase === 'live') this.attached?.setAppearance(this.appearance());
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

  // open makes the terminal accept input. It must be called when the element is visible.
  open(): void {
    if (!this.opened) {
      this.opened = true;
      this.term.open(this.element);
      this.term.textarea?.setAttribute('aria-description', 'Alt+Shift+L leaves the terminal for the list of sessions, Alt+Shift+/ lists all keys');
    }
    this.shown(true);
    this.fit();
  }

  // bind sets the session of a terminal that was made without one. If start was called before, it continues with this
  // session.
  bind(session: SessionInfo): void {
    this.session = session;
    this.expected?.(session);
    this.expected = undefined;
  }

  // showPictures loads the addon for pictures, which is not part of the page's first script. It returns false if
  // that fails; the terminal then works without pictures.
  private async showPictures(): Promise<boolean> {
    if (this.pictures) return true;
    try {
      const { ImageAddon } = await import('@xterm/addon-image');
      if (!this.pictures) this.term.loadAddon(new ImageAddon());
      this.pictures = true;
    } catch {
      return false;
    }
    return true;
  }

  // start attaches to the session, or waits for the session that is passed to bind. It must be called when the element
  // is visible.
  async start(steal = false): Promise<void> {
    if (this.phase === 'joining' || this.phase === 'live') return;
    const session = this.session ?? new Promise<SessionInfo>((bound) => (this.expected = bound));
    const mine = ++this.attempt;
    this.attached?.dispose();
    this.attached = undefined;
    this.is('joining');
    this.open();
    this.term.reset(); // the first snapshot requires an empty terminal
    this.widths.reset();
    try {
      const options: TerminalOptions = {
        fit: this.fitter, readOnly: this.readOnly, steal, history: HISTORY, appearance: this.appearance(),
        onInputLost: () => this.hooks.inputLost(),
        onExit: () => {
          if (mine === this.attempt) this.ends();
        },
      };
      const id = Promise.all([session, this.showPictures()]).then(([s, pictures]) => {
        options.pictures = pictures;
        return s.id;
      });
      const attached = await attach(this.terminal(), this.client, id, options);
      if (mine !== this.attempt) return attached.dispose();
      if (attached.session.instance !== this.session!.instance) { // an attach names no instance
        attached.dispose();
        return this.fails(new HoldfastError('instance_mismatch', 'The session was started again.'));
      }
      this.attached = attached;
      attached.attachment.on('stolen', (_, detached) => mine === this.attempt && this.is('stolen', detached ? 'Another client has detached this terminal.' : undefined));
      attached.attachment.on('error', (err) => queueMicrotask(() => { // the attachment has ended by then, unless it continues
        if (mine !== this.attempt || this.phase !== 'live') return;
        if (attached.attachment.state === 'closed') this.fails(err);
        else this.hooks.inputLost(said(err));
      }));
      if (!this.over()) this.is('live');
    } catch (err) {
      if (mine !== this.attempt) return;
      if (err instanceof HoldfastError && err.code === 'session_exited') return this.past();
      this.is('failed', said(err));
    }
  }

  private fails(err: HoldfastError): void {
    this.is('failed', said(err));
    if (err.code === 'instance_mismatch') this.hooks.replaced();
  }

  private ends(): void {
    this.term.write('\x1b[?25l'); // hides the cursor, because the session takes no more input
    this.is('ended');
  }

  // past shows the last screen of an exited session, and how the session ended.
  private async past(): Promise<void> {
    const mine = this.attempt;
    const { id } = this.session!;
    try {
      const [info, screen] = await Promise.all([this.client.info(id), this.client.screen({ session_id: id, format: 'ansi', scrollback: HISTORY, non_empty: true })]);
      if (mine !== this.attempt) return;
      if ([info, screen].some((of) => of.instance !== this.session!.instance)) return this.fails(new HoldfastError('instance_mismatch', 'The session was started again.'));
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

  // terminal returns xterm.js as the client uses it: the bar of keys may change the input, and a recording receives the
  // output.
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

  // controlled returns input with the Ctrl of the bar of keys.
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
    const write = async (): Promise<void> => navigator.clipboard.writeText(text);
    if (may === true) await write().catch(() => this.hooks.clipboard(write));
    else if (may === undefined) this.hooks.clipboard(write);
  }

  // paste pastes text without its control characters.
  paste(text: string): void {
    this.term.paste(pasteText(text));
  }

  // record starts a recording with the screen that the terminal shows. A screen of the session would not do: in a view of
  // its own size, the terminal receives changes to what it shows.
  async record(title: string): Promise<void> {
    const { SerializeAddon } = await import('@xterm/addon-serialize');
    const { cols, rows } = this.term;
    const screen = new SerializeAddon();
    this.term.loadAddon(screen);
    const recording = (this.recording = new Recording(cols, rows, title, () => this.hooks.recording()));
    this.term.write('', () => { // the terminal has processed the writes before this one, and none behind it
      recording.begin(screen.serialize({ scrollback: 0 }));
      screen.dispose();
    });
    this.hooks.recording();
  }

  // stopRecording saves the recording, if there is one.
  stopRecording(): void {
    if (!this.recording) return;
    save(`${this.session!.id}.cast`, this.recording.file());
    this.recording = undefined;
    this.hooks.recording();
  }

  // type sends input as if the user had pressed keys.
  type(data: string): void {
    this.term.input(data, true);
  }

  // arrow sends a cursor key in the mode that the program has set.
  arrow(letter: 'A' | 'B' | 'C' | 'D'): void {
    this.term.input(`\x1b${this.term.modes.applicationCursorKeysMode ? 'O' : '['}${letter}`, true);
  }

  private takesInput = (): boolean => !this.readOnly && ['joining', 'live'].includes(this.phase);

  // over reports whether the attachment has ended in the meantime.
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

  // shown sets whether the terminal is visible. A visible terminal has a WebGL context. An invisible one releases it,
  // because a browser has few. Without a context xterm.js draws the rows as elements.
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

  // covered sets whether the past lies over the terminal, which then takes no input and has no focus.
  covered(yes: boolean): void {
    if (this.term.element) this.term.element.inert = yes;
  }

  focus(): void {
    this.term.focus();
  }

  dispose(): void {
    this.stopRecording(); // nothing else has what was recorded
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

// follow opens a link of a program if it leads to a web page. It must not open any other scheme.
function follow(uri: string): void {
  if (/^https?:\/\//i.test(uri)) window.open(uri, '_blank', 'noopener,noreferrer');
}

// textOf returns the selection of a terminal, or the text of its screen if there is none.
export function textOf(term: Terminal): string {
  if (term.hasSelection()) return term.getSelection();
  const { active } = term.buffer;
  return Array.from({ length: term.rows }, (_, y) => active.getLine(active.baseY + y)?.translateToString(true) ?? '').join('\n').trimEnd();
}

// withControl returns the control character of a key with Ctrl.
function withControl(data: string): string {
  if (data === ' ') return '\0';
  if (data === '?') return '\x7f';
  return /^[a-z@[\\\]^_]$/i.test(data) ? String.fromCharCode(data.toUpperCase().charCodeAt(0) & 31) : data;
}
