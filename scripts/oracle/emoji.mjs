// The emoji of Unicode 13 to 17, which xterm.js's addons take for one column and
// the terminal core for two, as the Unicode data says. emoji.ts of the npm client has
// their ranges: widths.mjs makes it.

import { readFileSync } from 'node:fs';

const FILE = new URL('../../proxy/internal/web/client/src/emoji.ts', import.meta.url);

// read returns the ranges in a file of TypeScript whose last line is the list's end.
function read(text) {
  return JSON.parse(text.slice(text.indexOf(' = [') + 3, text.lastIndexOf(';')));
}

// What xterm.js's UnicodeService.createPropertyValue makes: the width is in bits
// 1 and 2, and a provider's state from bit 3 on, where 15-graphemes has the width
// class of its table from bit 4 of the state on, if nothing is before.
const WIDTH = 3 << 1, WIDE = 2 << 1, CLASS_WIDE = 3 << (4 + 3);

// withEmoji changes a provider of xterm.js so that it takes these emoji for two
// columns, and returns it.
export function withEmoji(provider, ranges = read(readFileSync(FILE, 'utf8'))) {
  const isEmoji = (code) => code >= ranges[0][0] && ranges.some(([first, last]) => code >= first && code <= last);
  const { wcwidth, charProperties } = provider;
  const clusters = provider.version.endsWith('graphemes');
  provider.wcwidth = (code) => (isEmoji(code) ? 2 : wcwidth.call(provider, code));
  provider.charProperties = (code, preceding) => {
    const value = charProperties.call(provider, code, preceding);
    if (!isEmoji(code)) {
      return value;
    }
    return (value & ~WIDTH) | WIDE | (clusters && preceding === 0 ? CLASS_WIDE : 0);
  };
  return provider;
}

// activate activates an addon whose providers are made withEmoji.
export function activate(terminal, addon) {
  const { unicode } = terminal;
  addon.activate({
    unicode: {
      register: (provider) => unicode.register(withEmoji(provider)),
      get activeVersion() { return unicode.activeVersion; },
      set activeVersion(version) { unicode.activeVersion = version; },
    },
  });
}
