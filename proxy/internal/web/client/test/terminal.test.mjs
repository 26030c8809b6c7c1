import assert from 'node:assert/strict';
import { test } from 'node:test';
import xterm from '@xterm/headless';
import { attach, exitText, HoldfastClient } from '../dist/index.js';
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
  ];
  for (const [name, exit, want] of cases) assert.equal(exitText(exit), want, name);
});

for (const [name, last, old, want] of [
  ['B9: with its code', { exit_code: 3 }, false, ['hello', '[process exited with code 3]']], // demand: B9
  ['B9: timed out', { exit_code: 137, timed_out: true, last_lines: ['idle'] }, false, ['hello', '[process timed out and was killed]', 'idle']], // demand: B9
  ['B9: with the last of its last lines', { exit_code: 2, last_lines: ['one', 'two'] }, false, ['hello', '[process exited with code 2]', 'two']], // demand: B9
  ['B6: by the older frame', { exit_code: 5 }, true, ['hello', '[process exited with code 5]']], // demand: B6
]) {
  test(`the terminal shows behind all output that the session ended, ${name}`, async () => {
    const fake = new Fake();
    fake.old = old;
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
  assert.deepEqual(fake.asked.at(-1), { type: 'resize', attachment: 1, cols: 100, rows: 30 });
  await client.close();
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
