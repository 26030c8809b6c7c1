// How many columns a character takes, exactly as the terminal core of the supervisor counts
// them (supervisor/internal/vt): as Unicode 11 says, each character for itself, or with
// mode 2027 as grapheme clusters. If the two did not agree, all that a program prints
// behind such a character would lie elsewhere here once the session is attached anew.

import { emoji } from './emoji.js';

/** A provider of widths of xterm.js, an IUnicodeVersionProvider. */
interface Provider {
  readonly version: string;
  wcwidth(code: number): 0 | 1 | 2;
  charProperties(code: number, before: number): number;
}

/** An xterm.js Terminal with `allowProposedApi`, as far as Widths needs it. */
export interface WidthsTerminal {
  readonly unicode: { register(provider: Provider): void; activeVersion: string };
  readonly parser: {
    registerCsiHandler(id: { prefix?: string; intermediates?: string; final: string }, fn: (params: (number | number[])[]) => boolean): unknown;
    registerEscHandler(id: { final: string }, fn: () => boolean): unknown;
  };
  input(data: string, wasUserInput?: boolean): void;
}

/** An addon of xterm.js. */
interface Addon { activate(terminal: never): void }

const CLUSTERS = 2027;
const PLAIN = '11'; // names of providers
const CLUSTERED = '15-graphemes';

// What xterm.js calls properties of a character: bit 0 says that it joins the cell before
// it, bits 1 and 2 have the width, and above them is the provider's state. With clusters,
// and nothing before, the width class is at bit 4 of that state.
const WIDTH = 3 << 1;
const WIDE = 2 << 1;
const CLASS_WIDE = 3 << (4 + 3);

const first = emoji[0]![0];
const isNewEmoji = (code: number): boolean => code >= first && emoji.some(([from, to]) => code >= from && code <= to);

// withEmoji changes a provider so that it takes the emoji of Unicode 13 to 17 for two
// columns: they are newer than xterm.js's addons. scripts/oracle/emoji.mjs does the same
// to the providers that the core is compared with.
function withEmoji(provider: Provider): Provider {
  const wcwidth = provider.wcwidth.bind(provider);
  const charProperties = provider.charProperties.bind(provider);
  provider.wcwidth = (code) => (isNewEmoji(code) ? 2 : wcwidth(code));
  provider.charProperties = (code, before) => {
    const value = charProperties(code, before);
    if (!isNewEmoji(code)) return value;
    return (value & ~WIDTH) | WIDE | (provider.version === CLUSTERED && before === 0 ? CLASS_WIDE : 0);
  };
  return provider;
}

/**
 * Widths is an addon of xterm.js that has a terminal count columns as the session does.
 * Load it with new Unicode11Addon() and new UnicodeGraphemesAddon() of the packages
 * @xterm/addon-unicode11 and @xterm/addon-unicode-graphemes.
 */
export class Widths {
  private term: WidthsTerminal | undefined;
  private readonly addons: readonly Addon[];

  constructor(...addons: [plain: Addon, clusters: Addon]) {
    this.addons = addons;
  }

  // activate switches the provider where mode 2027 stands in the stream.
  activate(term: WidthsTerminal): void {
    this.term = term;
    const unicode = { register: (provider: Provider) => term.unicode.register(withEmoji(provider)), activeVersion: PLAIN };
    for (const addon of this.addons) addon.activate({ unicode } as never);
    this.reset();
    const { parser } = term;
    const sets = (version: string) => (params: (number | number[])[]): boolean => {
      if (params.includes(CLUSTERS)) term.unicode.activeVersion = version;
      return false; // the other modes in it are xterm.js's
    };
    parser.registerCsiHandler({ prefix: '?', final: 'h' }, sets(CLUSTERED));
    parser.registerCsiHandler({ prefix: '?', final: 'l' }, sets(PLAIN));
    // xterm.js would say that it does not know this mode, and programs would not use it.
    parser.registerCsiHandler({ prefix: '?', intermediates: '$', final: 'p' }, ([mode]) => {
      if (mode !== CLUSTERS) return false;
      term.input(`\x1b[?${CLUSTERS};${term.unicode.activeVersion === CLUSTERED ? 1 : 2}$y`, false);
      return true;
    });
    parser.registerEscHandler({ final: 'c' }, () => {
      this.reset();
      return false;
    });
  }

  /** reset takes mode 2027 back, which the terminal's own reset() does not. */
  reset(): void {
    if (this.term) this.term.unicode.activeVersion = PLAIN;
  }

  dispose(): void {
    this.term = undefined;
  }
}
