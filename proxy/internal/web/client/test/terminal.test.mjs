import assert from 'node:assert/strict';
import { test } from 'node:test';
import xterm from '@xterm/headless';
import { attach, exitText, HoldfastClient, pasteText, Widths } from '../dist/index.js';
import { Fake, SESSION } from './fake.mjs';

const redial = { min: 1, max: 2 };
const EXIT = {
  type: 'pty_exited', session_id: SESSION, pane_id: SESSION, exit_code: 0, last_lines: [], session_title: '', session_description: '', timed_out: false,
};

/** look returns the terminal's lines, without the empty ones at the end. */
function look(term) {
  const lines = [], b = term.buffer.active;
  for (let i = 0; i < b.length; i++) lines.push(b.getLine(i).translateToString(true));
  while (lines.at(-1) === '') lines.pop();
  return lines;
}

async function open(fake, options, size = { cols: 80, rows: 24 }) {
  const term = new xterm.Terminal({ ...size, allowProposedApi: true, scrollback: 1000 });
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const shown = await attach(term, client, SESSION, options);
  return { term, client, shown };
}

/** typed waits until the fake was asked for something, or typed it. */
async function until(is) {
  while (!is()) await new Promise((done) => setImmediate(done));
}

// demand: B9
test('B9: how a session ended is printed to the byte', () => {
  const cases = [
    ['process exited with code N', { exit_code: 7, timed_out: false, last_lines: [] }, '\r\n\x1b[2m[process exited with code 7]\x1b[0m\r\n'],
    ['code -1', { exit_code: -1, timed_out: false, last_lines: [] }, '\r\n\x1b[2m[process exited with code -1]\x1b[0m\r\n'],
    ['process timed out and was killed', { exit_code: 137, timed_out: true, last_lines: [] }, '\r\n\x1b[2m[process timed out and was killed]\x1b[0m\r\n'],
    ['the last of last_lines as it is', { exit_code: 1, timed_out: false, last_lines: ['a', ' \x1b[1mb  '] },
      '\r\n\x1b[2m[process exited with code 1]\x1b[0m\r\n \x1b[1mb  '],
    ['timed out, with a last line', { exit_code: 137, timed_out: true, last_lines: ['z'] }, '\r\n\x1b[2m[process timed out and was killed]\x1b[0m\r\nz'],
    ['lost with the machine', { exit_code: -1, timed_out: false, reason: 'lost', last_lines: [] }, '\r\n\x1b[2m[lost with the machine]\x1b[0m\r\n'],
  ];
  for (const [name, exit, want] of cases) assert.equal(exitText(exit), want, name);
});

for (const [name, last, want] of [
  ['B9: with its code', { exit_code: 3 }, ['hello', '[process exited with code 3]']], // demand: B9
  ['B9: timed out', { exit_code: 137, timed_out: true, last_lines: ['idle'] }, ['hello', '[process timed out and was killed]', 'idle']], // demand: B9
  ['B9: with the last of its last lines', { exit_code: 2, last_lines: ['one', 'two'] }, ['hello', '[process exited with code 2]', 'two']], // demand: B9
]) {
  test(`the terminal shows behind all output that the session ended, ${name}`, async () => {
    const fake = new Fake();
    let told;
    const { term, client, shown } = await open(fake, { onExit: (e) => { told = e; } });
    fake.print('hello');
    fake.ends({ ...EXIT, ...last });
    assert.equal((await shown.exited).exit_code, last.exit_code);
    await shown.shown();
    assert.deepEqual(look(term), want);
    assert.equal(told.exit_code, last.exit_code);
    await client.close();
  });
}

test('what is typed goes to the session, bytes too', async () => {
  const fake = new Fake();
  const { term, client } = await open(fake, { history: 5, appearance: { foreground: '#ffffff' } });
  const asked = fake.asked.find((m) => m.type === 'attach');
  assert.deepEqual(
    [asked.cols, asked.rows, asked.view, asked.answers, asked.history, asked.appearance, asked.mode],
    [80, 24, 'own', true, 5, { foreground: '#ffffff' }, undefined],
  );
  term.input('ls\r');
  await until(() => fake.typed === 'ls\r');
  term._core.coreService.triggerBinaryEvent('\x1b[Mab');
  await until(() => fake.typed === 'ls\r\x1b[Mab');
  term.resize(100, 30);
  await until(() => fake.asked.some((m) => m.type === 'resize'));
  assert.deepEqual(fake.asked.at(-1), { type: 'resize', request_id: 'size-1', attachment: 1, cols: 100, rows: 30 });
  await client.close();
});

test('what is typed before the session is attached arrives, in order, up to a limit', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const term = new xterm.Terminal({ cols: 80, rows: 24, allowProposedApi: true });
  let start, lost = 0;
  const attached = attach(term, client, new Promise((started) => { start = started; }), { onInputLost: () => lost++ });
  term.input('one\r');
  term._core.coreService.triggerBinaryEvent('\xff');
  term.input('x'.repeat(65_536)); // beyond the limit
  assert.equal(lost, 1);
  const size = { cols: 90, rows: 20 };
  term.resize(size.cols, size.rows); // before the session knows any
  start(SESSION);
  term.input('two\r');
  const shown = await attached;
  term.input('three\r');
  await until(() => fake.typed.endsWith('three\r'));
  assert.equal(fake.typed.replace('\xff', '\ufffd'), 'one\r\ufffdtwo\rthree\r');
  const asked = fake.asked.find((m) => m.type === 'attach');
  assert.deepEqual({ cols: asked.cols, rows: asked.rows }, size);
  await shown.detach();
  term.input('four\r');
  await assert.rejects(attach(term, client, Promise.reject(new Error('not started'))), /not started/);
  term.input('five\r');
  assert.equal(fake.typed.includes('four') || fake.typed.includes('five'), false);
  await client.close();
});

test('a pasted text keeps tabs and line ends, and no other control character', () => {
  const all = Array.from({ length: 0xa1 }, (_, c) => String.fromCharCode(c)).join('');
  assert.equal(pasteText(all), `\t\n\r${all.slice(0x20, 0x7f)}\u00a0`);
  assert.equal(pasteText('a\x1b[201~\rb \u{1f469}\u200d\u{1f680} ö'), 'a[201~\rb \u{1f469}\u200d\u{1f680} ö');
});

test('a paste cannot end itself, by paste() and by the events of a browser', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const term = new xterm.Terminal({ cols: 80, rows: 24, allowProposedApi: true });
  term.element = new EventTarget();
  const focused = [];
  term.focus = () => focused.push(true);
  const shown = await attach(term, client, SESSION, {});
  fake.print('\x1b[?2004h');
  await until(() => shown.attachment.offset === fake.printed.length);
  await shown.shown();
  const evil = 'a\tb\x1b[201~\u009b201~\x7f\r\necho EXECUTED\r';
  const plain = '\x1b[200~a\tb[201~201~\recho EXECUTED\r\x1b[201~';
  const data = { getData: () => evil, types: ['text/plain'] };
  const fires = (type, fields) => {
    const e = Object.assign(new Event(type, { cancelable: true }), fields);
    term.element.dispatchEvent(e);
    return e.defaultPrevented;
  };
  const ways = {
    paste: () => shown.paste(evil),
    'an event paste': () => assert.ok(fires('paste', { clipboardData: data })),
    'an event drop': () => assert.ok(fires('drop', { dataTransfer: data })),
    'an event beforeinput': () => assert.ok(fires('beforeinput', { inputType: 'insertFromPaste', data: evil })),
  };
  for (const [name, way] of Object.entries(ways)) {
    fake.typed = '';
    way();
    await until(() => fake.typed.length >= plain.length);
    assert.equal(fake.typed, plain, name);
  }
  assert.equal(focused.length, 1);
  assert.equal(fires('beforeinput', { inputType: 'insertText', data: 'x' }), false);
  await shown.detach();
  assert.equal(fires('paste', { clipboardData: data }), false);
  await client.close();
});

// An addon of widths has a provider, here one that makes all characters this wide.
const provides = (version, width) => ({ activate: ({ unicode }) => unicode.register({ version, wcwidth: () => width, charProperties: () => width << 1 }) });

test('mode 2027 switches the widths, and is answered', async () => {
  const term = new xterm.Terminal({ cols: 80, rows: 24, allowProposedApi: true });
  const widths = new Widths(provides('11', 1), provides('15-graphemes', 2));
  term.loadAddon(widths);
  let answers = '';
  term.onData((data) => { answers += data; });
  const column = async (text) => {
    await new Promise((done) => term.write(`${text}\r\x1b[Kab\u{1fae0}`, done));
    return term.buffer.active.cursorX;
  };
  const columns = [await column(''), await column('\x1b[?25;2027h'), await column('\x1b[?25h'), await column('\x1b[?2027l'), await column('\x1b[?2027h\x1bc'), await column('\x1b[?2027h')];
  widths.reset();
  columns.push(await column(''));
  // U+1FAE0 is newer than the addons, and has two columns whatever they say.
  assert.deepEqual(columns, [4, 6, 6, 4, 4, 6, 4]);
  await column('\x1b[?2027$p\x1b[?2027h\x1b[?2027$p\x1b[?2004$p');
  assert.equal(answers, '\x1b[?2027;2$y\x1b[?2027;1$y\x1b[?2004;2$y');
});

test('a big paste waits for room, and arrives', async () => {
  const fake = new Fake();
  fake.full = 3;
  const { term, client } = await open(fake, {});
  const part = 'p'.repeat(700_000);
  for (let i = 0; i < 4; i++) term.input(part);
  await until(() => fake.typed.length === 4 * part.length);
  await client.close();
});

test('who looks only types nothing', async () => {
  const fake = new Fake();
  const { term, client, shown } = await open(fake, { readOnly: true });
  fake.print('\x1b[c'); // a question, which is answered by whoever decides
  term.input('no');
  fake.print('yes');
  await until(() => shown.attachment.offset === fake.printed.length);
  await shown.shown();
  assert.equal(fake.typed, '');
  assert.equal(fake.asked.find((m) => m.type === 'attach').mode, 'read_only');
  await client.close();
});

test('a terminal takes its session\'s size, between what was printed before and behind', async () => {
  const fake = new Fake();
  fake.size = { cols: 10, rows: 5 };
  fake.print('0123456789');
  const { term, client, shown } = await open(fake, { fit: false });
  assert.equal(fake.asked.find((m) => m.type === 'attach').cols, undefined);
  await until(() => shown.attachment.offset === 10);
  await shown.shown();
  assert.deepEqual([term.cols, term.rows], [10, 5]);
  const [viewer] = fake.viewers;
  fake.print('\r\n' + '='.repeat(10) + 'x\r\n'); // wraps at 10, and is one line again at 20
  viewer.tell({ type: 'resized', attachment: 1, cols: 20, rows: 6 });
  fake.print('='.repeat(20) + 'y');
  await until(() => shown.attachment.offset === fake.printed.length);
  await shown.shown();
  assert.deepEqual([term.cols, term.rows], [20, 6]);
  assert.deepEqual(look(term), ['0123456789', '==========x', '='.repeat(20), 'y']);
  await client.close();
});

test('a resize waits for what the terminal has not written', async () => {
  const done = [], order = [];
  const term = {
    cols: 80, rows: 24,
    write(data, fn) { done.push(() => { order.push(new TextDecoder().decode(data)); fn(); }); },
    resize(cols, rows) { Object.assign(this, { cols, rows }); order.push(`${cols}x${rows}`); },
  };
  term.modes = { bracketedPasteMode: false };
  for (const on of ['onData', 'onBinary', 'onResize', 'onTitleChange']) term[on] = () => ({ dispose() {} });
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const shown = await attach(term, client, SESSION, { fit: false });
  const [viewer] = fake.viewers;
  fake.print('a');
  viewer.tell({ type: 'resized', attachment: 1, cols: 20, rows: 6 });
  fake.print('b');
  viewer.tell({ type: 'resized', attachment: 1, cols: 30, rows: 7 });
  fake.print('c');
  await until(() => shown.attachment.offset === 3);
  await until(() => done.length > 0);
  while (done.length > 0) done.shift()();
  assert.deepEqual(order, ['\x1bc', 'a', '20x6', 'b', '30x7', 'c']);
  await client.close();
});

test('a snapshot begins with an empty terminal, or an empty screen', async () => {
  const fake = new Fake();
  const { term, client, shown } = await open(fake, {}, { cols: 20, rows: 3 });
  fake.print('one\r\ntwo\r\nthree\r\nfour\x1b[?2004h\x1b[2;3r\x1b[?1049halternate');
  await until(() => shown.attachment.offset === fake.printed.length);
  await shown.shown();
  assert.deepEqual(look(term)[0], 'alternate');
  const [viewer] = fake.viewers;
  const snapshot = new TextEncoder().encode('\x1b[Hnew\r\nscreen');
  viewer.tell({ type: 'resync', attachment: 1, offset: 99, bytes_missed: 0, snapshot_bytes: snapshot.length, screen_only: true });
  viewer.data(3, 99, snapshot);
  await until(() => shown.attachment.offset === 99);
  await shown.shown();
  assert.deepEqual(look(term), ['one', 'new', 'screen']); // "two" was on the screen
  assert.equal(term.modes.bracketedPasteMode, false);
  assert.equal(term.buffer.active.type, 'normal');
  viewer.tell({ type: 'resync', attachment: 1, offset: 200, bytes_missed: 101, snapshot_bytes: snapshot.length });
  viewer.data(3, 200, snapshot);
  await until(() => shown.attachment.offset === 200);
  await shown.shown();
  assert.deepEqual(look(term), ['new', 'screen']);
  await client.close();
});

test('what is printed faster than it is shown is bounded', async () => {
  const fake = new Fake();
  fake.pausable = false; // as in a browser
  const { term, client, shown } = await open(fake, {});
  let writing = 0, most = 0;
  const write = term.write.bind(term);
  term.write = (data, done) => {
    most = Math.max(most, writing += data.length);
    write(data, () => {
      writing -= data.length;
      done?.();
    });
  };
  const line = '0123456789abcdef'.repeat(4) + '\r\n';
  for (let i = 0; i < 16; i++) fake.print(line.repeat(8000));
  fake.print('the end');
  await until(() => shown.attachment.offset === fake.printed.length);
  await shown.shown();
  assert.equal(look(term).at(-1), 'the end');
  assert.ok(most <= (1 << 20) + 2 * 32768, `${most} bytes were with the terminal`);
  await client.close();
});
