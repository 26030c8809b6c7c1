import type { Attachment, Resync } from './attachment.js';
import type { HoldfastClient } from './client.js';
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
}

/** A terminal that shows a session until it is detached, or the session ends. */
export interface AttachedTerminal extends Disposable {
  readonly attachment: Attachment;
  readonly session: SessionInfo;
  readonly exited: Promise<ExitInfo>;
  /** Resolved once what has come by now is shown. */
  shown(): Promise<void>;
  detach(): Promise<void>;
}

/** Bytes that were typed and wait for room; beyond it nothing is typed. */
const MAX_TYPED = 16 << 20;

const encoder = new TextEncoder();

/** exitText is what a terminal prints when its session has ended. */
export function exitText(exit: ExitInfo): string {
  const what = exit.timed_out ? 'process timed out and was killed' : `process exited with code ${exit.exit_code}`;
  return `\r\n\x1b[2m[${what}]\x1b[0m\r\n${exit.last_lines.at(-1) ?? ''}`;
}

/**
 * attach shows a session in a terminal, and types what is typed there. When it ends,
 * exitText is printed.
 */
export async function attach(xterm: TerminalLike, client: HoldfastClient, id: string, options: TerminalOptions = {}): Promise<AttachedTerminal> {
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
  const a = await client.attach(id, spec);
  return new Joined(xterm, a, told, options);
}

class Joined implements AttachedTerminal {
  private readonly screen: Screen;
  private readonly typing: Typing | undefined;
  private readonly off: (() => void)[] = [];

  constructor(xterm: TerminalLike, readonly attachment: Attachment, told: Size | undefined, o: TerminalOptions) {
    const a = attachment, own = told !== undefined;
    const screen = (this.screen = new Screen(xterm));
    this.off.push(
      a.on('output', (data) => screen.write(data)),
      a.on('snapshot', (data) => screen.write(data)),
      a.on('view', (data) => screen.write(data)),
      a.on('resync', (what) => screen.clear(what)),
      a.on('exit', (exit) => {
        void screen.write(encoder.encode(exitText(exit)));
        this.typing?.end();
        o.onExit?.(exit);
      }),
    );
    const heard: Disposable[] = [];
    if (o.readOnly !== true) {
      const typing = (this.typing = new Typing(a));
      heard.push(
        xterm.onData((data) => typing.type(encoder.encode(data))),
        xterm.onBinary((data) => typing.type(Uint8Array.from(data, (c) => c.charCodeAt(0) & 0xff))),
      );
    }
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

/** A Typing passes on what is typed, and keeps a paste that is more than the attachment takes. */
class Typing {
  private readonly parts: Uint8Array[] = [];
  private kept = 0;
  private waiting = false;
  private over = false;

  constructor(private readonly a: Attachment) {}

  type(data: Uint8Array): void {
    if (this.over) return;
    if (this.parts.length === 0 && this.a.write(data)) return;
    if (this.kept + data.length > MAX_TYPED) return; // inputFull has told
    this.parts.push(data);
    this.kept += data.length;
    if (!this.waiting) void this.drain();
  }

  end(): void {
    this.over = true;
    this.parts.length = 0;
  }

  private async drain(): Promise<void> {
    this.waiting = true;
    try {
      for (let part = this.parts[0]; part !== undefined; part = this.parts[0]) {
        await this.a.flush();
        if (this.over || !this.a.write(part)) break;
        this.parts.shift();
        this.kept -= part.length;
      }
    } catch {
      this.end(); // it has ended
    }
    this.waiting = false;
  }
}
