// The number of columns of a character, as the terminal core of the supervisor counts it (supervisor/internal/vt): for
// each character by Unicode 11, or in mode 2027 for each grapheme cluster. Both must count the same; otherwise the text
// after such a character moves when the session is attached again.

import { emoji } from './emoji.js';

/** The interface IUnicodeVersionProvider of xterm.js. */
interface Provider {
  readonly version: string;
  wcwidth(code: number): 0 | 1 | 2;
  charProperties(code: number, before: number): number;
}

/** The members that Widths needs of an xterm.js Terminal with `allowProposedApi`. */
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

// The properties of a character in xterm.js: bit 0 tells that the character joins the cell before it, bits 1 and 2
// contain the width, and the higher bits contain the provider's state. If the provider counts clusters, and no character
// precedes, bit 4 of that state begins the class of the width.
const WIDTH = 3 << 1;
const WIDE = 2 << 1;
const CLASS_WIDE = 3 << (4 + 3);

const first = emoji[0]![0];
const isNewEmoji = (code: number): boolean => code >= first && emoji.some(([from, to]) => code >= from && code <= to);

// withEmoji changes a provider so that the emoji of Unicode 13 to 17 have two columns, because xterm.js's addons are
// older. scripts/oracle/emoji.mjs changes the providers with which the core is compared in the same way.
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
 * Widths is an addon of xterm.js that makes a terminal count columns as the session does. Its arguments are new
 * Unicode11Addon() and new UnicodeGraphemesAddon() of the packages @xterm/addon-unicode11 and
 * @xterm/addon-unicode-graphemes.
 */
export class Widths {
  private term: WidthsTerminal | undefined;
  private readonly addons: readonly Addon[];

  constructor(...addons: [plain: Addon, clusters: Addon]) {
    this.addons = addons;
  }

  // activate adds handlers that switch the provider when the session sets or resets mode 2027.
  activate(term: WidthsTerminal): void {
    this.term = term;
    const unicode = { register: (provider: Provider) => term.unicode.register(withEmoji(provider)), activeVersion: PLAIN };
    for (const addon of this.addons) addon.activate({ unicode } as never);
    this.reset();
    const { parser } = term;
    const sets = (version: string) => (params: (number | number[])[]): boolean => {
      if (params.includes(CLUSTERS)) term.unicode.activeVersion = version;
      return false; // xterm.js handles the other modes of the sequence
    };
    parser.registerCsiHandler({ prefix: '?', final: 'h' }, sets(CLUSTERED));
    parser.registerCsiHandler({ prefix: '?', final: 'l' }, sets(PLAIN));
    // xterm.js would report that it does not know this mode, and programs would not use it.
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

  /** reset resets mode 2027, which the terminal's own reset() does not. */
  reset(): void {
    if (this.term) this.term.unicode.activeVersion = PLAIN;
  }

  dispose(): void {
    this.term = undefined;
  }
}
