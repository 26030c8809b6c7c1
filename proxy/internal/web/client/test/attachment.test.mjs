import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { HoldfastClient } from '../dist/index.js';
import { Fake, random, seed, SESSION, Shown } from './fake.mjs';

const EXIT = {
  type: 'pty_exited', session_id: SESSION, pane_id: SESSION, exit_code: 2, last_lines: ['bye'], session_title: '', session_description: '',
  timed_out: false,
};
const redial = { min: 1, max: 2 };
const typed = ['one ', 'two ', 'a longer third ', 'é', ' end'];

/** converse types all, watches it come back, and sees the end; it returns what was shown. */
async function converse(fake, options = {}) {
  const client = await HoldfastClient.connect({ transport: fake.transport, redial, ...options });
  const a = await client.attach(SESSION, { cols: 80, rows: 24 });
  const shown = new Shown(a);
  for (const s of typed) a.write(s);
  await a.flush();
  fake.ends(EXIT);
  const exit = await a.exited;
  await client.close();
  return { shown, exit };
}

function check(fake, { shown, exit }) {
  assert.equal(fake.typed, typed.join(''));
  assert.equal(shown.text, fake.printed);
  assert.equal(exit.exit_code, 2);
  assert.deepEqual(exit.last_lines, ['bye']);
}

// ascii, since this world's offsets count characters.
typed[3] = 'e';

test('a conversation that is cut at any byte loses nothing and has nothing twice', async () => {
  let total = 0;
  {
    const fake = new Fake();
    fake.cut = () => 1e9;
    check(fake, await converse(fake));
    total = Math.max(...fake.connections.map((c) => 1e9 - c.left));
  }
  assert.ok(total > 500, `${total} bytes`);
  for (let at = 1; at <= total; at++) {
    const fake = new Fake();
    let cuts = 1;
    fake.cut = () => (fake.connections.length === 0 || cuts-- <= 0 ? 1e9 : at); // the attachment's first connection
    try {
      check(fake, await converse(fake));
    } catch (err) {
      err.message += `, cut at byte ${at}`;
      throw err;
    }
  }
});

test('the offset is never ahead of the output that was emitted', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const attaching = client.attach(SESSION, { cols: 80, rows: 24 });
  attaching.then(() => fake.print('early')); // before the first event can be emitted
  const a = await attaching;
  const seen = [];
  const emitted = new Promise((done) => a.on('output', (data, offset) => { seen.push(offset + data.length); done(); }));
  assert.equal(a.offset, 0);
  assert.equal(a.resume.offset, 0);
  await emitted;
  assert.deepEqual(seen, [5]);
  assert.equal(a.offset, 5);
  await client.close();
});

test(`a conversation goes on through whatever happens, seed ${seed}`, async () => {
  const next = random(seed), below = (n) => Math.floor(next() * n);
  for (let i = 0; i < 60; i++) {
    const fake = new Fake();
    let cuts = 6;
    fake.pausable = next() < 0.5;
    fake.cut = () => (fake.connections.length === 0 || cuts-- <= 0 ? 1e9 : 300 + below(1200));
    fake.pieces = (bytes) => {
      const at = below(bytes.length + 1);
      return next() < 0.5 ? [bytes] : [bytes.subarray(0, at), bytes.subarray(at)];
    };
    const client = await HoldfastClient.connect({ transport: fake.transport, redial });
    const a = await client.attach(SESSION);
    const shown = new Shown(a);
    let want = '';
    try {
      for (let k = 0; k < 30; k++) {
        const s = String.fromCharCode(97 + below(26)).repeat(1 + below(60));
        want += s;
        assert.equal(a.write(s), true);
        switch (below(8)) {
          case 0: fake.print('-'.repeat(below(100))); break;
          case 1: fake.forgotten = fake.printed.length; break;
          case 2: fake.full = below(3); break;
          case 3: for (const c of fake.viewers) c.resync(); break;
          case 4: for (const c of fake.live) c.tell({ type: 'goaway', retry_after_ms: below(3), reason: 'test' }); break;
          case 5: await a.flush(); break;
          case 6: for (const c of fake.viewers) c.breaks(); break;
        }
      }
      await a.flush();
      await shown.until(() => shown.text === fake.printed);
      fake.ends(EXIT);
      await a.exited;
      assert.equal(fake.typed, want);
      assert.equal(shown.text, fake.printed);
    } catch (err) {
      err.message += `, round ${i} of seed ${seed}`;
      throw err;
    }
    await client.close();
  }
});

test('a resumed attachment says where it stands', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION, { cols: 100, rows: 30, steal: true });
  const shown = new Shown(a), states = [];
  a.on('state', (s) => states.push(s));
  fake.print('hello');
  await shown.shows('hello');
  fake.viewers[0].breaks();
  a.write('x');
  await shown.shows('X');
  const [first, second] = fake.asked.filter((m) => m.type === 'attach');
  assert.deepEqual(second.resume, { instance: fake.instance, offset: 5 });
  assert.equal(second.writer, first.writer);
  assert.ok(second.attempt > first.attempt);
  assert.deepEqual([first.steal, second.steal, second.snapshot], [true, false, false]);
  assert.deepEqual(states, ['connected', 'reconnecting', 'connected']);
  assert.deepEqual(a.resume, { instance: fake.instance, offset: 6 });
  await a.detach();
  assert.equal(a.state, 'closed');
  await assert.rejects(a.exited, { code: 'client_closed' });
  const b = await client.attach(SESSION, { resume: a.resume, writer: a.writer });
  const rest = new Shown(b);
  rest.text = fake.printed; // what it shows already
  b.write('y');
  await rest.shows('Y');
  assert.equal(fake.typed, 'xy');
  await client.close();
});

test('half a snapshot is asked for anew', async () => {
  const fake = new Fake();
  fake.print('s'.repeat(1000));
  fake.cut = () => (fake.connections.length === 1 ? 1200 : 1e9);
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  const shown = new Shown(a);
  await shown.until(() => shown.text === fake.printed);
  const attaches = fake.asked.filter((m) => m.type === 'attach');
  assert.equal(attaches.length, 2);
  assert.deepEqual(attaches[1].resume, { instance: fake.instance, offset: 1000 }); // that of the first snapshot: no output was missed
  assert.deepEqual([attaches[1].snapshot, attaches[1].screen_only], [true, false]);
  await client.close();
});

test('a view is continued by a snapshot of the screen', async () => {
  const fake = new Fake();
  fake.answers.attach = (m, c) => {
    c.spec = m;
    return [{
      type: 'attached', attachment: 1, session: fake.info(), replay: 'snapshot', offset: 0, bytes_missed: 0, snapshot_bytes: 0, view: true,
      writer: m.writer, input_offset: 0,
    }];
  };
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION, { view: 'own', cols: 40, rows: 10 });
  const seen = [], resyncs = [];
  const saw = new Promise((done) => a.on('view', (data, offset) => done(seen.push([new TextDecoder().decode(data), offset]))));
  a.on('resync', (what) => resyncs.push(what.screenOnly));
  fake.viewers[0].data(4, 77, new TextEncoder().encode('look'));
  await saw;
  assert.deepEqual(seen, [['look', 77]]);
  a.resize(50, 12);
  fake.viewers[0].breaks();
  await new Promise((done) => a.on('state', (s) => s === 'connected' && done()));
  const again = fake.asked.filter((m) => m.type === 'attach')[1];
  assert.deepEqual([again.resume.offset, again.snapshot, again.screen_only, again.cols, again.rows], [77, true, true, 50, 12]);
  await client.close();
  assert.deepEqual(resyncs, [false, true]);
});

test('a viewer that does not keep up holds a bounded amount, and shows all in the end', async () => {
  for (const pausable of [true, false]) {
    const fake = new Fake();
    fake.pausable = pausable;
    const client = await HoldfastClient.connect({ transport: fake.transport, redial });
    const a = await client.attach(SESSION);
    let shown = '', held = 0, most = 0, waits = [];
    const take = (data) => {
      most = Math.max(most, held += data.length);
      return new Promise((done) => waits.push(() => {
        held -= data.length;
        shown += new TextDecoder().decode(data);
        done();
      }));
    };
    a.on('output', take);
    a.on('snapshot', take);
    a.on('resync', () => assert.equal(shown, '')); // the first
    await new Promise((done) => a.on('state', done));
    const line = 'x'.repeat(63) + '\n';
    for (let i = 0; i < 40; i++) fake.print(line.repeat(4096)); // 10 MiB
    while (shown.length < fake.printed.length) {
      await new Promise((done) => setImmediate(done));
      for (const done of waits.splice(0)) done();
    }
    assert.equal(shown, fake.printed);
    assert.ok(most <= (1 << 20) + 2 * 32768, `${most} bytes were held`);
    const attaches = fake.asked.filter((m) => m.type === 'attach').length;
    if (pausable) assert.equal(attaches, 1);
    else assert.ok(attaches >= 8, `${attaches} attaches`);
    await client.close();
  }
});

test('input that is not accepted is bounded', async () => {
  const fake = new Fake();
  fake.full = 1e9;
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  let full = 0;
  a.on('inputFull', () => full++);
  let taken = 0;
  while (a.write('z'.repeat(100_000))) taken++;
  assert.equal(taken, 11);
  fake.full = 0;
  await a.flush();
  assert.ok(full > 0);
  assert.equal(fake.typed.length, 1_100_000);
  assert.equal(a.write('z'), true);
  await client.close();
});

test('what ends an attachment is told, last', async () => {
  const cases = [
    ['pty_exited', { ...EXIT, attachment: 1, timed_out: true }, ['exit', 2, true, ['bye']]],
    ['terminal.exit', { type: 'terminal.exit', session_id: SESSION, exit_code: 9, reason: 'idle_timeout', attachment: 1 }, ['exit', 9, true, []]],
    ['stolen', { type: 'stolen', attachment: 1, stolen_by: 'page' }, ['stolen', 'page']],
    ['an error', { type: 'error', attachment: 1, code: 'session_not_found', message: 'gone' }, ['error', 'session_not_found']],
    ['what makes no sense', { type: 'resync', attachment: 1, offset: 'x' }, ['error', 'decode']],
  ];
  for (const [name, m, want] of cases) {
    const fake = new Fake();
    const client = await HoldfastClient.connect({ transport: fake.transport, redial });
    const a = await client.attach(SESSION), told = [];
    a.on('output', () => told.push(['output']));
    a.on('exit', (e) => told.push(['exit', e.exit_code, e.timed_out, e.last_lines]));
    a.on('stolen', (by) => told.push(['stolen', by]));
    a.on('error', (err) => told.push(['error', err.code]));
    const over = new Promise((done) => a.on('state', (s) => s === 'closed' && done()));
    fake.viewers[0].tell(m);
    await over;
    fake.print('more');
    assert.deepEqual(told, [want], name);
    if (want[0] === 'exit') assert.equal((await a.exited).exit_code, want[1]);
    else await assert.rejects(a.exited);
    await client.close();
  }
});

test('a session that has ended while nobody could see it still tells how', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  fake.answers.attach = () => [{
    type: 'error', attachment: 1, code: 'session_exited', message: 'over',
    exit: { exit_code: 143, signal: 'SIGTERM', timed_out: false, last_lines: ['x'], reason: 'exited', outcome: 'soft' },
  }];
  fake.viewers[0].breaks();
  const exit = await a.exited;
  assert.deepEqual([exit.exit_code, exit.signal, exit.last_lines], [143, 'SIGTERM', ['x']]);
  await assert.rejects(client.attach(SESSION), (err) => err.code === 'session_exited' && err.exit.exit_code === 143);
  await client.close();
});

test('a flush that is cut off fails with the reason', async () => {
  for (const [end, code] of [[EXIT, 'session_exited'], [{ type: 'stolen', stolen_by: 'x' }, 'stolen'], [undefined, 'client_closed']]) {
    const fake = new Fake();
    const client = await HoldfastClient.connect({ transport: fake.transport, redial });
    const a = await client.attach(SESSION);
    a.exited.catch(() => {});
    const [stream] = fake.viewers;
    stream.received = () => {}; // the input is not accepted
    a.write('x');
    const flushed = a.flush();
    if (end === undefined) await client.close();
    else stream.tell({ ...end, attachment: 1 });
    await assert.rejects(flushed, { code });
    await client.close();
  }
});

test('a surrogate pair may be cut, and half of one is typed as U+FFFD', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  for (const s of ['a\ud83d', '\ude00b', '\ude00\ud83d', '\u{1f600}', 'c\ud83d', new Uint8Array([100]), '\ud83d']) assert.equal(a.write(s), true);
  await a.flush();
  assert.equal(fake.typed, 'a\u{1f600}b\ufffd\ufffd\u{1f600}c\ufffdd');
  await client.close();
});

test('a read-only attachment does not type', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION, { mode: 'read_only', answers: true });
  assert.throws(() => a.write('x'), { code: 'permission_denied' });
  assert.equal(fake.asked.find((m) => m.type === 'attach').answers, false);
  await client.close();
});

test('small pieces of output that listeners process are bounded, too', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  let n = 0;
  a.on('output', () => { n++; return new Promise(() => {}); });
  while (!fake.viewers[0].paused && n < 10_000) {
    fake.print('x');
    await new Promise((done) => { setImmediate(done); });
  }
  assert.ok(fake.viewers[0].paused, 'the client reads although 10,000 pieces wait');
  await client.close();
});

test('a detach whose connection is lost is sent again', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  let detaches = 0;
  fake.answers.detach = (m, c) => (detaches++ === 0 ? void c.breaks() : [{ type: 'detached', attachment: 1 }]);
  await a.detach();
  assert.equal(detaches, 2);
  await client.close();
});

test('a size that the proxy has not confirmed is sent again over the next connection, and a confirmed one is not', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  const told = [];
  const resized = new Promise((done) => a.on('resized', (size) => size.cols === 50 && done()));
  fake.answers.resize = (m, c) => {
    told.push([m.request_id, m.cols, m.rows]);
    if (told.length === 1) return void c.breaks();
    return [{ type: 'ok', request_id: m.request_id }, { type: 'resized', attachment: 1, cols: m.cols, rows: m.rows }];
  };
  a.resize(50, 12);
  await resized;
  fake.viewers[0].breaks();
  await new Promise((done) => a.on('state', (s) => s === 'connected' && done()));
  await a.detach(); // is answered after everything that was sent before
  assert.deepEqual(told, [['size-1', 50, 12], ['size-2', 50, 12]]);
  await client.close();
});

test('an appearance that the proxy would refuse is refused, and does not end the attachment', async () => {
  const fake = new Fake();
  fake.answers.appearance = () => [{ type: 'error', code: 'invalid_argument', message: 'a colour must be #rrggbb' }];
  const client = await HoldfastClient.connect({ transport: fake.transport, redial });
  const a = await client.attach(SESSION);
  for (const looks of [{ background: '#fff' }, { cell_width: 8.5 }, { cell_height: 2000 }]) {
    assert.throws(() => a.setAppearance(looks), { code: 'invalid_argument' });
  }
  for (const size of [[-5, -5], [80.5, 24], [80, NaN]]) assert.throws(() => a.resize(...size), { code: 'invalid_argument' });
  a.write('x');
  await a.flush();
  await client.close();
});

/** severs makes the fake proxy's present connections lose everything in both directions, without notice. */
function severs(fake) {
  for (const c of fake.live) c.received = c.send = () => {};
}

test('input that is not accepted in time goes over another connection, once', async () => {
  const fake = new Fake();
  const client = await HoldfastClient.connect({ transport: fake.transport, redial: { ...redial, answer: 30 } });
  const a = await client.attach(SESSION), shown = new Shown(a);
  severs(fake);
  a.write('typed');
  await shown.shows('TYPED');
  assert.equal(fake.typed, 'typed');
  await client.close();
});

test('if a request finds its connection silent, attachments and subscriptions leave theirs', async () => {
  const fake = new Fake();
  fake.answers.events = (m) => [{ type: 'subscribed', instance: 'i', seq: m.after ?? 0 }];
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await HoldfastClient.connect({ transport: fake.transport, redial: { ...redial, answer: 30 } });
  const shown = new Shown(await client.attach(SESSION)), events = client.subscribe();
  await events.ready;
  severs(fake);
  await assert.rejects(client.list(), { code: 'timeout' });
  fake.answers.events = () => [{ type: 'subscribed', instance: 'i', seq: 0 }, { type: 'event', seq: 1, event: 'created', at: '' }];
  fake.print('after');
  await shown.shows('after');
  assert.equal((await events[Symbol.asyncIterator]().next()).value.seq, 1);
  await client.close();
});

test('an error of a listener is not swallowed, and stops no other listener', () => {
  const program = `
    import { HoldfastClient } from './dist/index.js';
    import { Fake, SESSION, Shown } from './test/fake.mjs';
    process.on('uncaughtException', (err) => console.log(err.message));
    const fake = new Fake(), client = await HoldfastClient.connect({ transport: fake.transport });
    const a = await client.attach(SESSION);
    a.on('output', () => { throw new Error('thrown'); });
    a.on('output', async () => { throw new Error('rejected'); });
    const shown = new Shown(a);
    fake.print('x');
    await shown.shows('x');
    await client.close();`;
  const ran = spawnSync(process.execPath, ['--input-type=module', '-e', program], { cwd: new URL('..', import.meta.url), encoding: 'utf8' });
  assert.deepEqual([ran.stdout, ran.stderr], ['thrown\nrejected\n', '']);
});
