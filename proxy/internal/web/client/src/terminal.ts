import type { Attachment, Resync } from './attachment.js';
import type { HoldfastClient } from './client.js';
import { pasteText, receivePastes } from './paste.js';
import type { Appearance, AttachSpec, ExitInfo, SessionInfo, Size } from './types.js';

export interface Disposable { dispose(): void }

/** An xterm.js Terminal as far as it is needed: of `@xterm/xterm` or `@xterm/headless`. */
export interface TerminalLike {
  readonly cols: number;
  readonly rows: number;
  write(data: string | Uint8Array, done?: () => void): void;
  resize(cols: number, rows: number): void;
  onData(fn: (data: string) => void): Disposable;
  onBinary(fn: (data: string) => void): Disposable;
  onResize(fn: (size: Size) => void): Disposable;
  onTitleChange(fn: (title: string) => void): Disposable;
  readonly modes: { readonly bracketedPasteMode: boolean };
  /** In a browser, once the terminal is open. */
  readonly element?: EventTarget | undefined;
  paste?(text: string): void;
  focus?(): void;
}

/** xterm.js's FitAddon, or the like. */
export interface Fitter { fit(): void }

export interface TerminalOptions {
  /**
   * Whose size the terminal has. true, the default: its own. The session is told it, and
   * is shown at that size even while it has another. With a Fitter, that is asked to fit it
   * first. false: the session's, which this viewer has no say in.
   */
  fit?: boolean | Fitter;
  /** Looks, and types nothing. */
  readOnly?: boolean;
  /** Wants to be the only one that types. */
  exclusive?: boolean;
  /** Takes the place of whoever is in the way. */
  steal?: boolean;
  /** Lines above the screen to begin with; absent is 1000. */
  history?: number;
  appearance?: Appearance;
  onExit?: (exit: ExitInfo) => void;
  onTitle?: (title: string) => void;
  /** Is told that input was dropped: more than 64 KiB was typed before the session was attached. */
  onInputLost?: () => void;
}

/** A terminal that shows a session until it is detached, or the session ends. */
export interface AttachedTerminal extends Disposable {
  readonly attachment: Attachment;
  readonly session: SessionInfo;
  readonly exited: Promise<ExitInfo>;
  /** Resolved once what has come by now is shown. */
  shown(): Promise<void>;
  /** Pastes text, without its control characters, as one paste if the program takes pastes as such. */
  paste(text: string): void;
  detach(): Promise<void>;
}

/** Bytes that wait for the attachment: more than a person types in that time, and a paste of some size. */
const MAX_EARLY = 64 << 10;
/** Bytes that were typed and wait for room; beyond it nothing is typed. */
const MAX_TYPED = 16 << 20;

const encoder = new TextEncoder();

/** exitText is what a terminal prints when its session has ended. */
export function exitText(exit: ExitInfo): string {
  const what = exit.timed_out ? 'process timed out and was killed' : `process exited with code ${exit.exit_code}`;
  return `\r\n\x1b[2m[${what}]\x1b[0m\r\n${exit.last_lines.at(-1) ?? ''}`;
}

/**
 * attach shows a session in a terminal, and types what is typed there, from the call on:
 * input waits until the session is attached. The id may be promised, for a session that is
 * being started. When the session ends, exitText is printed.
 */
export async function attach(xterm: TerminalLike, client: HoldfastClient, id: string | Promise<string>, options: TerminalOptions = {}): Promise<AttachedTerminal> {
  const typing = options.readOnly === true ? undefined : new Typing(xterm, options.onInputLost);
  try {
    return await join(xterm, client, id, options, typing);
  } catch (err) {
    typing?.end();
    throw err;
  }
}

async function join(xterm: TerminalLike, client: HoldfastClient, id: string | Promise<string>, options: TerminalOptions, typing: Typing | undefined): Promise<AttachedTerminal> {
  const session = await id;
  const fit = options.fit ?? true;
  if (typeof fit === 'object') fit.fit();
  const own = fit !== false;
  const spec: AttachSpec = { answers: options.readOnly !== true, is_tty: true, term: 'xterm-256color' };
  if (options.readOnly === true) spec.mode = 'read_only';
  else if (options.exclusive === true) spec.mode = 'exclusive';
  if (options.steal !== undefined) spec.steal = options.steal;
  if (options.history !== undefined) spec.history = options.history;
  if (options.appearance !== undefined) spec.appearance = options.appearance;
  const told = own ? { cols: xterm.cols, rows: xterm.rows } : undefined;
  if (told !== undefined) Object.assign(spec, told, { view: 'own' });
  const a = await client.attach(session, spec);
  typing?.begin(a);
  return new Joined(xterm, a, told, options, typing);
}

class Joined implements AttachedTerminal {
  private readonly screen: Screen;
  private readonly off: (() => void)[] = [];

  constructor(xterm: TerminalLike, readonly attachment: Attachment, told: Size | undefined, o: TerminalOptions, private readonly typing: Typing | undefined) {
    const a = attachment, own = told !== undefined;
    const screen = (this.screen = new Screen(xterm));
    this.off.push(
      a.on('output', (data) => screen.write(data)),
      a.on('snapshot', (data) => screen.write(data)),
      a.on('view', (data) => screen.write(data)),
      a.on('resync', (what) => screen.clear(what)),
      a.on('exit', (exit) => {
        void screen.write(encoder.encode(exitText(exit)));
        o.onExit?.(exit);
      }),
    );
    const over = (): void => typing?.end();
    a.exited.then(over, over);
    const heard: Disposable[] = [];
    if (own) {
      heard.push(xterm.onResize((size) => a.resize(size.cols, size.rows)));
    } else {
      screen.resize(a.session.size);
      this.off.push(a.on('resized', (size) => screen.resize(size)));
    }
    if (o.onTitle !== undefined) heard.push(xterm.onTitleChange(o.onTitle));
    this.off.push(...heard.map((h) => () => h.dispose()));
    // The terminal may have been given another size while the answer was on its way.
    if (own && (xterm.cols !== told?.cols || xterm.rows !== told.rows)) a.resize(xterm.cols, xterm.rows);
  }

  get session(): SessionInfo {
    return this.attachment.session;
  }

  get exited(): Promise<ExitInfo> {
    return this.attachment.exited;
  }

  shown(): Promise<void> {
    return this.screen.shown();
  }

  paste(text: string): void {
    this.typing?.paste(text);
  }

  async detach(): Promise<void> {
    this.typing?.end();
    for (const off of this.off.splice(0)) off();
    await this.attachment.detach();
  }

  dispose(): void {
    void this.detach();
  }
}

// soft brings the terminal back to what a reset one has, but for its lines: a snapshot is
// for one that was just reset.
const soft = '\x1b[?1047l\x1b[!p\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1016l';

type Step = { data: Uint8Array; done: () => void } | { clear: true } | { size: Size };

/**
 * A Screen has a terminal show things in order: xterm.js writes later and resizes at
 * once, so a resize waits for what was written before. All is written as bytes: a
 * character that is cut is kept for bytes, and not for strings.
 */
class Screen {
  private writing = 0; // writes that the terminal is not done with
  private readonly steps: Step[] = []; // what waits for a resize

  constructor(private readonly xterm: TerminalLike) {}

  /** write is done when the terminal is. */
  write(data: Uint8Array): Promise<void> {
    return new Promise((done) => this.add({ data, done }));
  }

  resize(size: Size): void {
    this.add({ size });
  }

  /** shown resolves once all that was written before is shown. */
  shown(): Promise<void> {
    return this.write(new Uint8Array(0));
  }

  /** clear makes room for a snapshot: of everything, or of the screen alone. */
  clear(what: Resync): void {
    if (what.screenOnly) this.add({ clear: true });
    else void this.write(encoder.encode('\x1bc'));
  }

  private add(step: Step): void {
    this.steps.push(step);
    this.go();
  }

  private go(): void {
    for (let step = this.steps[0]; step !== undefined; step = this.steps[0]) {
      if ('size' in step && this.writing > 0) return;
      this.steps.shift();
      if ('size' in step) {
        if (this.xterm.cols !== step.size.cols || this.xterm.rows !== step.size.rows) this.xterm.resize(step.size.cols, step.size.rows);
      } else if ('clear' in step) {
        // Row by row: a screen that is erased at once goes into the history.
        this.put(encoder.encode(`${soft}\x1b[H${'\x1b[2K\x1b[B'.repeat(this.xterm.rows)}\x1b[H`));
      } else {
        this.put(step.data, step.done);
      }
    }
  }

  private put(data: Uint8Array, done?: () => void): void {
    this.writing++;
    this.xterm.write(data, () => {
      this.writing--;
      done?.();
      this.go();
    });
  }
}

/**
 * A Typing passes on what is typed and pasted. It keeps what comes before the attachment
 * stands, and a paste that is more than the attachment takes.
 */
class Typing {
  private a: Attachment | undefined;
  private readonly off: (() => void)[];
  private readonly parts: Uint8Array[] = [];
  private kept = 0;
  private waiting = false;
  private over = false;

  constructor(private readonly xterm: TerminalLike, private readonly lost: () => void = () => {}) {
    const heard = [
      xterm.onData((data) => this.type(encoder.encode(data))),
      xterm.onBinary((data) => this.type(Uint8Array.from(data, (c) => c.charCodeAt(0) & 0xff))),
    ];
    this.off = heard.map((h) => () => h.dispose());
    if (xterm.element !== undefined) {
      this.off.push(receivePastes(xterm.element, (text) => this.paste(text), () => xterm.focus?.()));
    }
  }

  /** begin types into the attachment from now on, what has come so far first. */
  begin(a: Attachment): void {
    this.a = a;
    if (this.parts.length > 0) void this.drain(a);
  }

  paste(text: string): void {
    const plain = pasteText(text);
    if (this.xterm.paste !== undefined) return this.xterm.paste(plain); // which comes to type
    const typed = plain.replaceAll(/\r?\n/g, '\r');
    this.type(encoder.encode(this.xterm.modes.bracketedPasteMode ? `\x1b[200~${typed}\x1b[201~` : typed));
  }

  private type(data: Uint8Array): void {
    const { a } = this;
    if (this.over) return;
    if (this.parts.length === 0 && a?.write(data)) return;
    if (this.kept + data.length > (a === undefined ? MAX_EARLY : MAX_TYPED)) {
      if (a === undefined) this.lost(); // else inputFull has told
      return;
    }
    this.parts.push(data);
    this.kept += data.length;
    if (a !== undefined && !this.waiting) void this.drain(a);
  }

  end(): void {
    this.over = true;
    this.parts.length = 0;
    for (const off of this.off.splice(0)) off();
  }

  private async drain(a: Attachment): Promise<void> {
    this.waiting = true;
    try {
      for (let part = this.parts[0]; part !== undefined; part = this.parts[0]) {
        await a.flush();
        if (this.over || !a.write(part)) break;
        this.parts.shift();
        this.kept -= part.length;
      }
    } catch {
      this.end(); // it has ended
    }
    this.waiting = false;
  }
}
