// The real xterm.js as an oracle: it is told what to write to terminals and
// answers with their states, in the JSON form of vt.State.
//
// stdin carries commands and stdout one answer for each, in order. Both are
// frames: a length of four bytes, big endian, of what follows it. A command is
// a letter, the number of a terminal, and the letter's arguments; an answer is
// 0 and a result, or 1 and what went wrong.
//
//   N  JSON {cols, rows, scrollback, unicode}: a new terminal of this number
//   W  chunks, each with a length as above: writes each by itself
//   R  JSON {cols, rows}: resizes
//   S  answers with the state
//   A  answers with what the terminal has said since last asked
//   D  answers with the names of the defects of xterm.js that were met so far
//   C  closes the terminal
//   B  JSON {file, times, cols, rows, scrollback, unicode}: a benchmark of a
//      terminal of its own; answers with JSON {bytes, cpu_seconds}
//
// Invariant: nothing but the commands changes a terminal. Writes are finished
// before they are answered.
//
// Not here: what states mean, and which differences count (package vttest).

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import headless from '@xterm/headless';
import unicode11 from '@xterm/addon-unicode11';
import { activate } from './emoji.mjs';

// Loaded without a Buffer, as in a browser: with one, the addon reads its table
// at the wrong end of Buffer's pool, and all above U+FFFF is narrow.
const { Buffer } = globalThis;
delete globalThis.Buffer;
const graphemes = createRequire(import.meta.url)('@xterm/addon-unicode-graphemes');
globalThis.Buffer = Buffer;

// As in buffer/Constants.ts.
const PALETTE16 = 0x1000000, PALETTE256 = 0x2000000, COLOR = 0x3ffffff;
const FG = { bold: 0x8000000, blink: 0x20000000, inverse: 0x4000000, invisible: 0x40000000, strike: 0x80000000, underline: 0x10000000 };
const BG = { dim: 0x8000000, italic: 0x4000000, overline: 0x40000000, protected: 0x20000000, extended: 0x10000000 };
// MAX_COUNT is far above what a screen can use, and still quick.
const MAX_COUNT = 5000;
const COMBINED = 0x200000, CODE_POINT = 0x1fffff;

function create({ cols, rows, scrollback, unicode }) {
  const term = new headless.Terminal({
    cols, rows, scrollback,
    allowProposedApi: true,
    logLevel: 'off',
    windowOptions: { pushTitle: true, popTitle: true, getWinSizeChars: true },
  });
  if (unicode !== '15-graphemes') activate(term, new unicode11.Unicode11Addon());
  if (unicode !== '11') activate(term, new graphemes.UnicodeGraphemesAddon());
  term.unicode.activeVersion = unicode === '2027' ? '11' : unicode;
  if (unicode === '2027') switches(term);
  return term;
}

// switches makes mode 2027 switch between the two, as on the page
// (Widths of proxy/internal/web/client).
function switches(term) {
  const sets = version => params => {
    if (params.includes(2027)) term.unicode.activeVersion = version;
    return false;
  };
  term.parser.registerCsiHandler({ prefix: '?', final: 'h' }, sets('15-graphemes'));
  term.parser.registerCsiHandler({ prefix: '?', final: 'l' }, sets('11'));
  term.parser.registerEscHandler({ final: 'c' }, () => {
    term.unicode.activeVersion = '11';
    return false;
  });
}

// The designators of charsets by the object that xterm.js uses for each. Some
// are other names of one set: the first counts.
const designators = new Map();
{
  const term = create({ cols: 2, rows: 1, scrollback: 0, unicode: '11' });
  for (const designator of '0A4CRQKYEZH=567') {
    term._core.writeSync(Buffer.from(`\x1b(${designator}`));
    const charset = term._core._charsetService.charset;
    if (!charset) throw new Error(`no charset ${designator}`);
    if (!designators.has(charset)) designators.set(charset, designator);
  }
  term.dispose();
}
const designator = charset => (charset ? designators.get(charset) : '');

// widens tells whether a character can make the narrow one before it wide: a variation selector, and the second letter
// of a flag.
const widens = code => code === 0xfe0f || code >= 0x1f1e6 && code <= 0x1f1ff;

// atWork are the defects that the screen has met to which something is done.
let atWork;

class Screen {
  constructor(config) {
    this.term = create(config);
    this.core = this.term._core;
    this.input = this.core._inputHandler;
    this.replies = '';
    this.defects = new Set();
    this.links = new Map();
    this.term.onData(data => { this.replies += data; });
    this.rememberLinks();
    this.watch();
    if (!atWork) this.watchLines();
    atWork = this.defects;
  }

  // rememberLinks keeps what links were: xterm.js forgets it once the lines on
  // which a link was printed first are gone, though others still show it.
  rememberLinks() {
    const service = this.core._oscLinkService;
    const register = service.registerLink.bind(service);
    service.registerLink = data => {
      const id = register(data);
      this.links.set(id, data);
      return id;
    };
  }

  // watch notes what xterm.js gets plainly wrong, as states after that are
  // nothing to compare with. It changes no behaviour, but for counts that would
  // take xterm.js minutes: those are left out.
  watch() {
    const { input, core, defects } = this;
    const buffer = () => core._bufferService.buffer;
    const shown = () => core._bufferService;
    input._parser.setPrintHandler((data, start, end) => {
      input.print(data, start, end);
      // A wide character without room is dropped, and what joins it joins another.
      const wide = () => data.subarray(start, end).some(code => code > 0xff && (core.unicodeService.wcwidth(code) === 2 || widens(code)));
      const wraps = core.coreService.decPrivateModes.wraparound;
      if (!wraps && buffer().x >= shown().cols - 1 && wide()) defects.add('no-room');
      // Where there is one line in all, a wide character that wraps early empties
      // a column of the new line instead of the old one.
      if (buffer().lines.maxLength === 1 && wide()) defects.add('one-line');
    });
    // ED 1 in the last column clears the wrap of a line of the history, and
    // throws if there is none.
    const erase = params => {
      if (params[0] === 1 && buffer().x + 1 >= shown().cols) defects.add('erase-above');
      return false;
    };
    this.term.parser.registerCsiHandler({ final: 'J' }, erase);
    this.term.parser.registerCsiHandler({ prefix: '?', final: 'J' }, erase);
    // DECALN counts rows from the region's top under DECOM, and so fills lines
    // that lie behind the screen.
    this.term.parser.registerEscHandler({ intermediates: '#', final: '8' }, () => {
      if (core.coreService.decPrivateModes.origin && buffer().scrollTop > 0) defects.add('align-below');
      return false;
    });
    // An alternate buffer that was hidden while the screen lost rows keeps room
    // for them, and so gets a history.
    shown().onScroll(() => {
      const { active, alt } = shown().buffers;
      if (active === alt && alt.ybase > 0) defects.add('alternate-history');
    });
    for (const final of 'STLM@PbIZ') {
      this.term.parser.registerCsiHandler({ final }, params => {
        const huge = params[0] > MAX_COUNT;
        if (huge) defects.add('huge-count');
        return huge;
      });
    }
  }

  // watchLines notes, for whichever screen is at work, what goes wrong within
  // lines: a character behind a line's end, and a reflow that takes a text along
  // that belongs to others.
  watchLines() {
    const list = Object.getPrototypeOf(this.core.buffer.lines);
    const line = Object.getPrototypeOf(this.core.buffer.lines.get(0));
    // Rows that a line is split into and that have no room may replace others.
    const set = list.set;
    list.set = function (index, value) {
      if (index < 0 && (this._startIndex + index) % this._maxLength >= 0) atWork.add('line-before-first');
      set.call(this, index, value);
    };
    // A character without width after a pending wrap, with nothing to join, is
    // put behind the line's end.
    const put = line.setCellFromCodepoint;
    line.setCellFromCodepoint = function (x, ...args) {
      if (x >= this.length) atWork.add('cursor-outside');
      put.call(this, x, ...args);
    };
    // xterm.js moves the texts of several characters that stand behind the moved
    // ones too, and those that cells have had.
    const copy = line.copyCellsFrom;
    line.copyCellsFrom = function (src, srcCol, destCol, length, inReverse) {
      const before = { ...this._combined };
      const from = { ...src._combined };
      copy.call(this, src, srcCol, destCol, length, inReverse);
      for (let x = 0; x < this.length; x++) {
        const moved = x >= destCol && x < destCol + length;
        const text = moved ? from[x - destCol + srcCol] : before[x];
        if (this.isCombined(x) && this._combined[x] !== text) atWork.add('text-moved');
      }
    };
  }

  // Synchronous, as an error then belongs to its command. It does what write
  // does, less the waiting.
  write(chunk) {
    atWork = this.defects;
    this.core.writeSync(chunk);
  }

  resize(cols, rows) {
    const { normal, alt } = this.core._bufferService.buffers;
    atWork = this.defects;
    this.term.resize(cols, rows);
    for (const b of [normal, alt]) this.checkPlace(b);
  }

  // A resize without a history to take the lines leaves the screen beyond them.
  checkPlace(b) {
    if (b.lines.length && b.ybase + this.term.rows !== b.lines.length) this.defects.add('screen-outside');
  }

  close() { this.term.dispose(); }

  takeReplies() {
    const replies = this.replies;
    this.replies = '';
    return replies;
  }

  state() {
    const { core, input } = this;
    const service = core._bufferService;
    const { decPrivateModes: dec, modes, isCursorHidden } = core.coreService;
    const options = core.optionsService.rawOptions;
    const charsets = core._charsetService;
    const attrs = new Attrs(this.links, this.defects);
    const pen = input._curAttrData;
    const { normal, alt, active } = service.buffers;
    const parts = {
      cols: service.cols,
      rows: service.rows,
      pen: attrs.of(pen.fg, pen.bg, pen.extended),
      title: input._windowTitle,
      icon_name: input._iconName,
      title_stack: input._windowTitleStack,
      icon_stack: input._iconNameStack,
      modes: {
        application_cursor: dec.applicationCursorKeys,
        application_keypad: dec.applicationKeypad,
        origin: dec.origin,
        wraparound: dec.wraparound,
        reverse_wrap: dec.reverseWraparound,
        insert: modes.insertMode,
        new_line: options.convertEol,
        bracketed_paste: dec.bracketedPasteMode,
        focus: dec.sendFocus,
        synchronized: dec.synchronizedOutput,
        cursor_hidden: isCursorHidden,
        cursor_blink: options.cursorBlink,
        cursor_style: cursorStyle(dec),
        mouse: core.coreMouseService.activeProtocol,
        mouse_encoding: core.coreMouseService.activeEncoding,
      },
      charset: designator(charsets.charset),
      charsets: [0, 1, 2, 3].map(g => designator(charsets._charsets[g])),
      gl: charsets.glevel,
    };
    let json = JSON.stringify(parts).slice(0, -1);
    json += `,"normal":${this.buffer(normal, attrs)}`;
    if (active === alt) json += `,"alternate":${this.buffer(alt, attrs)}`;
    return `${json},"attrs":[${attrs.list.join(',')}]}`;
  }

  buffer(b, attrs) {
    const { cols, rows } = this.core._bufferService;
    const first = b === this.core._bufferService.buffers.alt ? b.ybase : 0;
    this.checkPlace(b);
    const parts = {
      history: b.ybase - first,
      x: b.x,
      y: b.y,
      scroll_top: b.scrollTop,
      scroll_bottom: b.scrollBottom,
      tabs: Object.keys(b.tabs).map(Number).filter(x => b.tabs[x] && x < cols).sort((x, y) => x - y),
      saved_x: Math.min(b.savedX, cols - 1),
      saved_y: Math.min(Math.max(0, b.savedY - b.ybase), rows - 1),
      // Of an underline, that there is one is saved and not what it looks like.
      saved_pen: attrs.of(b.savedCurAttrData.fg, b.savedCurAttrData.bg & ~BG.extended),
      saved_charset: designator(b.savedCharset),
    };
    const lines = [];
    for (let i = first; i < b.lines.length; i++) lines.push(this.line(b.lines.get(i), cols, attrs));
    return `${JSON.stringify(parts).slice(0, -1)},"lines":[${lines.join(',')}]}`;
  }

  line(line, cols, attrs) {
    if (!line) {
      this.defects.add('line-missing');
      return '{"cells":[]}';
    }
    const cells = [];
    let used = 0;
    // The alternate buffer's lines stay longer than a screen that has shrunk.
    for (let x = 0; x < Math.min(cols, line.length); x++) {
      const content = line._data[3 * x], fg = line._data[3 * x + 1], bg = line._data[3 * x + 2];
      const width = content >>> 22 & 3;
      const attr = attrs.of(fg, bg, line._extendedAttrs[x]);
      let text = '""';
      if (content & COMBINED) {
        text = JSON.stringify(line._combined[x] ?? '');
        if (line._combined[x] === undefined) this.defects.add('text-missing');
      } else if (content & CODE_POINT) {
        text = quoted(content & CODE_POINT);
      }
      cells.push(`{"t":${text},"w":${width},"a":${attr}}`);
      if (text !== '""' || width !== 1 || attr !== 0) used = cells.length;
    }
    cells.length = used;
    return `{${line.isWrapped ? '"wrapped":true,' : ''}"cells":[${cells.join(',')}]}`;
  }
}

const quotes = new Map();
function quoted(codePoint) {
  let q = quotes.get(codePoint);
  if (q === undefined) {
    q = JSON.stringify(String.fromCodePoint(codePoint));
    quotes.set(codePoint, q);
  }
  return q;
}

function cursorStyle({ cursorStyle, cursorBlink }) {
  const steady = { block: 2, underline: 4, bar: 6 }[cursorStyle];
  return steady === undefined ? 0 : steady - (cursorBlink ? 1 : 0);
}

// Attrs are the looks of one state, each once. What cannot be seen, such as the
// colour of no underline, does not make a difference.
class Attrs {
  constructor(links, defects) {
    this.links = links;
    this.defects = defects;
    this.list = [];
    this.indices = new Map();
    this.plain = new Map(); // fg to bg to index, of those without extended attributes
    this.of(0, 0);
  }

  of(fg, bg, extended) {
    fg >>>= 0;
    bg >>>= 0;
    if (bg & BG.extended) {
      if (!extended) this.defects.add('attributes-missing');
      return this.index(fg, bg, extended ?? { _ext: 0, urlId: 0 });
    }
    let row = this.plain.get(fg);
    if (!row) this.plain.set(fg, row = new Map());
    let index = row.get(bg);
    if (index === undefined) row.set(bg, index = this.index(fg, bg));
    return index;
  }

  index(fg, bg, extended) {
    const link = extended?.urlId ? this.links.get(extended.urlId) : undefined;
    const json = JSON.stringify({
      fg: color(fg),
      bg: color(bg),
      flags: flags(fg, bg),
      ul: fg & FG.underline ? (extended ? extended._ext >>> 26 & 7 : 1) : 0,
      ulc: extended ? color(extended._ext) : 0,
      uri: link?.uri ?? '',
      link_id: link?.id ?? '',
    });
    let index = this.indices.get(json);
    if (index === undefined) {
      index = this.list.push(json) - 1;
      this.indices.set(json, index);
    }
    return index;
  }
}

function color(value) {
  value &= COLOR;
  const mode = value & 0x3000000;
  if (mode === 0) return 0;
  return mode === PALETTE16 || mode === PALETTE256 ? mode | value & 0xff : value;
}

// In the order of vt.Flags.
function flags(fg, bg) {
  const on = [
    fg & FG.bold, bg & BG.dim, bg & BG.italic, fg & FG.blink, fg & FG.inverse,
    fg & FG.invisible, fg & FG.strike, bg & BG.overline, bg & BG.protected,
  ];
  return on.reduce((sum, bit, i) => sum | (bit ? 1 << i : 0), 0);
}

// bench measures what a browser would do: write, with the callback of every
// 64th chunk awaited so that nothing is thrown away.
async function bench({ file, times, ...config }) {
  const data = readFileSync(file);
  const term = create({ cols: 80, rows: 24, scrollback: 10000, unicode: '11', ...config });
  const written = bytes => new Promise(resolve => { term.write(bytes, resolve); });
  const lines = term.rows + term.options.scrollback;
  for (let i = 0; i < lines; i += 1000) {
    await written(Buffer.from(Array.from({ length: 1000 }, (_, k) => `line ${i + k} of those that fill the history\r\n`).join('')));
  }
  const before = process.cpuUsage();
  let bytes = 0;
  for (let i = 0, chunks = 0; i < times; i++) {
    for (let at = 0; at < data.length; at += 4096, chunks++) {
      const chunk = data.subarray(at, at + 4096);
      bytes += chunk.length;
      if (chunks % 64 === 63) await written(chunk);
      else term.write(chunk);
    }
  }
  await written('');
  const used = process.cpuUsage(before);
  term.dispose();
  return { bytes, cpu_seconds: (used.user + used.system) / 1e6 };
}

function* chunksOf(body) {
  for (let at = 0; at < body.length;) {
    const end = at + 4 + body.readUInt32BE(at);
    yield body.subarray(at + 4, end);
    at = end;
  }
}

const screens = new Map();

function screen(number) {
  const found = screens.get(number);
  if (!found) throw new Error(`no terminal ${number}`);
  return found;
}

function close(number) {
  screens.get(number)?.close();
  screens.delete(number);
}

const commands = {
  N(number, body) {
    close(number);
    screens.set(number, new Screen(JSON.parse(body)));
  },
  W(number, body) {
    for (const chunk of chunksOf(body)) screen(number).write(chunk);
  },
  R(number, body) {
    const { cols, rows } = JSON.parse(body);
    screen(number).resize(cols, rows);
  },
  S: number => screen(number).state(),
  A: number => screen(number).takeReplies(),
  D: number => [...screen(number).defects].sort().join(' '),
  C: close,
  B: async (number, body) => JSON.stringify(await bench(JSON.parse(body))),
};

function answer(status, text) {
  const body = Buffer.from(text ?? '');
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length + 1);
  head[4] = status;
  process.stdout.write(Buffer.concat([head, body]));
}

async function obey(frame) {
  try {
    const letter = String.fromCharCode(frame[0]);
    if (!commands[letter]) throw new Error(`no command ${letter}`);
    answer(0, await commands[letter](frame[1], frame.subarray(2)));
  } catch (error) {
    answer(1, error?.stack ?? String(error));
  }
}

let pending = Buffer.alloc(0);
for await (const data of process.stdin) {
  pending = pending.length ? Buffer.concat([pending, data]) : data;
  while (pending.length >= 4 && pending.length >= 4 + pending.readUInt32BE(0)) {
    const end = 4 + pending.readUInt32BE(0);
    await obey(pending.subarray(4, end));
    pending = pending.subarray(end);
  }
}
process.exit(0);
