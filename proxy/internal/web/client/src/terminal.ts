import type { Attachment, Resync } from './attachment.js';
import type { HoldfastClient } from './client.js';
import { pasteText, receivePastes } from './paste.js';
import type { Appearance, AttachSpec, ExitInfo, Pictures, SessionInfo, Size } from './types.js';

export interface Disposable { dispose(): void }

/** The members of an xterm.js Terminal (`@xterm/xterm` or `@xterm/headless`) that are used here. */
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
  /** Set in a browser after the terminal was opened. */
  readonly element?: EventTarget | undefined;
  paste?(text: string): void;
  focus?(): void;
}

/** An addon such as xterm.js's FitAddon. */
export interface Fitter { fit(): void }

export interface TerminalOptions {
  /**
   * The size of the terminal. true, the default: the terminal keeps its own size, sends it to the session, and shows
   * the session at this size, also while the session has another size. A Fitter fits the terminal first. false: the
   * terminal takes the session's size, and does not influence it.
   */
  fit?: boolean | Fitter;
  /** Send no input. */
  readOnly?: boolean;
  /** Be the only writer. */
  exclusive?: boolean;
  /** Take the place of other viewers. */
  steal?: boolean;
  /** Lines above the screen at the start; absent: 1000. */
  history?: number;
  appearance?: Appearance;
  /** The terminal has xterm.js's image addon, so it shows pictures. */
  pictures?: boolean;
  onExit?: (exit: ExitInfo) => void;
  onTitle?: (title: string) => void;
  /** Called if input was dropped because more than 64 KiB was written before the session was attached. */
  onInputLost?: () => void;
}

/** A terminal that shows a session until the terminal is detached or the session ends. */
export interface AttachedTerminal extends Disposable {
  readonly attachment: Attachment;
  readonly session: SessionInfo;
  readonly exited: Promise<ExitInfo>;
  /** Resolves when the output that was received so far is shown. */
  shown(): Promise<void>;
  /** Sends other properties of the terminal, which replace all earlier ones except for the pictures. */
  setAppearance(appearance: Appearance): void;
  /** Pastes text without its control characters, framed if the program has enabled that. */
  paste(text: string): void;
  detach(): Promise<void>;
}

/** Bytes of input that may wait for the attachment: more than a person types in that time, or a paste. */
const MAX_EARLY = 64 << 10;
/** Bytes of input that may wait for room in the attachment. If there are more, input is dropped. */
const MAX_TYPED = 16 << 20;

const encoder = new TextEncoder();

/** exitText returns the text that a terminal shows when its session has ended. */
export function exitText(exit: ExitInfo): string {
  const what = exit.reason === 'lost' ? 'lost with the machine' : exit.timed_out ? 'process timed out and was killed' : `process exited with code ${exit.exit_code}`;
  return `\r\n\x1b[2m[${what}]\x1b[0m\r\n${exit.last_lines.at(-1) ?? ''}`;
}

/**
 * attach shows a session in a terminal, and sends the terminal's input to the session. Input after the call waits until
 * the session is attached. The id may be a promise, if the session is still being started. When the session ends,
 * attach shows exitText.
 */
export async function attach(xterm: TerminalLike, client: Pick<HoldfastClient, 'attach'>, id: string | Promise<string>, options: TerminalOptions = {}): Promise<AttachedTerminal> {
  const typing = options.readOnly === true ? undefined : new Typing(xterm, options.onInputLost);
  try {
    return await join(xterm, client, id, options, typing);
  } catch (err) {
    typing?.end();
    throw err;
  }
}

async function join(xterm: TerminalLike, client: Pick<HoldfastClient, 'attach'>, id: string | Promise<string>, options: TerminalOptions, typing: Typing | undefined): Promise<AttachedTerminal> {
  const session = await id;
  const fit = options.fit ?? true;
  if (typeof fit === 'object') fit.fit();
  const own = fit !== false;
  const spec: AttachSpec = { answers: options.readOnly !== true, is_tty: true, term: 'xterm-256color' };
  if (options.readOnly === true) spec.mode = 'read_only';
  else if (options.exclusive === true) spec.mode = 'exclusive';
  if (options.steal !== undefined) spec.steal = options.steal;
  if (options.history !== undefined) spec.history = options.history;
  const appearance = withPictures(xterm, options, options.appearance);
  if (appearance !== undefined) spec.appearance = appearance;
  const told = own ? { cols: xterm.cols, rows: xterm.rows } : undefined;
  if (told !== undefined) Object.assign(spec, told, { view: 'own' });
  const a = await client.attach(session, spec);
  typing?.begin(a);
  return new Joined(xterm, a, told, options, typing);
}

/** withPictures adds the pictures that the terminal shows to an appearance. */
function withPictures(xterm: TerminalLike, o: TerminalOptions, appearance: Appearance | undefined): Appearance | undefined {
  return o.pictures === true ? { ...appearance, pictures: picturesOf(xterm) } : appearance;
}

/**
 * picturesOf returns the pictures that a terminal with the image addon shows. xterm.js publishes the size of its cells
 * nowhere; the addon reads it at the same place.
 */
function picturesOf(xterm: TerminalLike): Pictures {
  const core = (xterm as { _core?: { _renderService?: { dimensions?: { css?: { cell?: { width?: number; height?: number } } } } } })._core;
  const cell = core?._renderService?.dimensions?.css?.cell;
  if (!cell?.width || !cell.height) return {}; // before the terminal is open
  return { sixel: true, iterm2: true, cell_width: cell.width, cell_height: cell.height };
}

class Joined implements AttachedTerminal {
  private readonly screen: Screen;
  private readonly off: (() => void)[] = [];
  private looks: Appearance | undefined;
  private sent: string | undefined; // the appearance that was sent last

  constructor(private readonly xterm: TerminalLike, readonly attachment: Attachment, told: Size | undefined, private readonly options: TerminalOptions, private readonly typing: Typing | undefined) {
    const a = attachment, o = options, own = told !== undefined;
    this.looks = o.appearance;
    this.sent = JSON.stringify(withPictures(xterm, o, o.appearance));
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
      heard.push(xterm.onResize((size) => {
        const now = withPictures(xterm, o, this.looks); // a cell of another size changes the number of cells, too
        if (JSON.stringify(now) !== this.sent && now !== undefined) this.send(now);
        a.resize(size.cols, size.rows);
      }));
    } else {
      screen.resize(a.session.size);
      this.off.push(a.on('resized', (size) => screen.resize(size)));
    }
    if (o.onTitle !== undefined) heard.push(xterm.onTitleChange(o.onTitle));
    this.off.push(...heard.map((h) => () => h.dispose()));
    // The terminal may have been resized while the reply was on its way.
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

  setAppearance(appearance: Appearance): void {
    this.send(withPictures(this.xterm, this.options, appearance)!); // throws if the appearance is invalid
    this.looks = appearance;
  }

  private send(appearance: Appearance): void {
    this.sent = JSON.stringify(appearance);
    this.attachment.setAppearance(appearance);
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

// soft resets the terminal except its lines, because a snapshot requires a terminal that was just reset.
const soft = '\x1b[?1047l\x1b[!p\x1b[?9l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1016l';

type Step = { data: Uint8Array; done: () => void } | { clear: true } | { size: Size };

/**
 * A Screen keeps writes and resizes of a terminal in order. xterm.js writes later but resizes at once, so a resize waits
 * until the writes before it are done. It writes bytes and not strings, because xterm.js joins a character that two
 * pieces contain in part only if both are bytes.
 */
class Screen {
  private writing = 0; // writes that the terminal has not finished
  private readonly steps: Step[] = []; // writes and resizes that wait for an earlier resize

  constructor(private readonly xterm: TerminalLike) {}

  /** write resolves when the terminal has processed the data. */
  write(data: Uint8Array): Promise<void> {
    return new Promise((done) => this.add({ data, done }));
  }

  resize(size: Size): void {
    this.add({ size });
  }

  /** shown resolves when all earlier writes are shown. */
  shown(): Promise<void> {
    return this.write(new Uint8Array(0));
  }

  /** clear prepares the terminal for a snapshot of the screen and its history, or of the screen alone. */
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
 * A Typing sends the terminal's input and pastes to the attachment. It stores input before the session is attached, and
 * a paste for which the attachment has no room yet.
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

  /** begin sends the stored input to the attachment, and all later input. */
  begin(a: Attachment): void {
    this.a = a;
    if (this.parts.length > 0) void this.drain(a);
  }

  paste(text: string): void {
    const plain = pasteText(text);
    if (this.xterm.paste !== undefined) return this.xterm.paste(plain); // xterm.js then emits it as input
    const typed = plain.replaceAll(/\r?\n/g, '\r');
    this.type(encoder.encode(this.xterm.modes.bracketedPasteMode ? `\x1b[200~${typed}\x1b[201~` : typed));
  }

  private type(data: Uint8Array): void {
    const { a } = this;
    if (this.over) return;
    if (this.parts.length === 0 && a?.write(data)) return;
    if (this.kept + data.length > (a === undefined ? MAX_EARLY : MAX_TYPED)) {
      if (a === undefined) this.lost(); // the attachment reports it by inputFull
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
      this.end(); // the attachment has ended
    }
    this.waiting = false;
  }
}
