// How many columns a character takes, exactly as the terminal core of the supervisor has
// it (supervisor/internal/vt): as Unicode 11 says, each character for itself, or with
// mode 2027 as grapheme clusters. If the two did not agree, all that a program prints
// behind such a character would lie elsewhere here once the session is attached anew.

import { Unicode11Addon } from '@xterm/addon-unicode11';
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes';
import type { ITerminalAddon, IUnicodeHandling, IUnicodeVersionProvider, Terminal } from '@xterm/xterm';

import emoji from './emoji.json'; // made by scripts/oracle/widths.mjs, as the core's table is

const CLUSTERS = 2027;
const PLAIN = '11'; // names of providers
const CLUSTERED = '15-graphemes';

// What xterm.js calls properties of a character: bit 0 says that it joins the cell before
// it, bits 1 and 2 have the width, and above them is the provider's state. With clusters,
// and nothing before, the width class is at bit 4 of that state.
const WIDTH = 3 << 1;
const WIDE = 2 << 1;
const CLASS_WIDE = 3 << (4 + 3);

const first = emoji[0]![0]!;
const isNewEmoji = (code: number): boolean => code >= first && emoji.some(([from, to]) => code >= from! && code <= to!);

// withEmoji changes a provider so that it takes the emoji of Unicode 13 to 17 for two
// columns: they are newer than xterm.js's addons. scripts/oracle/emoji.mjs does the same
// to the providers that the core is compared with.
function withEmoji(provider: IUnicodeVersionProvider): IUnicodeVersionProvider {
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

export class Widths implements ITerminalAddon {
  private term: Terminal | undefined;

  // activate switches the provider where mode 2027 stands in the stream.
  activate(term: Terminal): void {
    this.term = term;
    const unicode: Partial<IUnicodeHandling> = { register: (provider) => term.unicode.register(withEmoji(provider)) };
    for (const addon of [new Unicode11Addon(), new UnicodeGraphemesAddon()]) addon.activate({ unicode } as Terminal);
    this.reset();
    const { parser } = term;
    const sets = (version: string) => (params: (number | number[])[]): boolean => {
      if (params.includes(CLUSTERS)) term.unicode.activeVersion = version;
      return false; // the other modes in it are xterm.js's
    };
    parser.registerCsiHandler({ prefix: '?', final: 'h' }, sets(CLUSTERED));
    parser.registerCsiHandler({ prefix: '?', final: 'l' }, sets(PLAIN));
    parser.registerEscHandler({ final: 'c' }, () => {
      this.reset();
      return false;
    });
  }

  // reset takes mode 2027 back, as the terminal's own reset does not.
  reset(): void {
    if (this.term) this.term.unicode.activeVersion = PLAIN;
  }

  dispose(): void {
    this.term = undefined;
  }
}
