import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HoldfastClient } from '../dist/index.js';
import { Fake, random, seed, SESSION, Shown } from './fake.mjs';

const redial = { min: 1, max: 2, giveUp: 60_000 };
const connect = (fake, more) => HoldfastClient.connect({ transport: fake.transport, redial, ...more });

/** pass lets the mocked time pass by one millisecond per turn, until is returns true. So a busy machine makes no answer late. */
async function pass(t, is) {
  while (!is()) {
    t.mock.timers.tick(1);
    await new Promise((done) => { setImmediate(done); });
  }
}

test('connect says what keeps it from a proxy', async () => {
  const fake = new Fake();
  fake.refuses = true;
  await assert.rejects(connect(fake), { name: 'HoldfastError', code: 'connect' });
  fake.refuses = false;
  fake.answers.hello = (m) => [{ type: 'error', code: 'unauthorized', message: `token ${m.token}` }];
  await assert.rejects(connect(fake, { token: 'wrong' }), { code: 'unauthorized', message: 'token wrong', retryable: false });
  fake.answers.hello = () => [{ type: 'welcome', protocol: { min: 2, max: 3 }, agreed: 2, pid: 1, version: '', instance: '' }];
  await assert.rejects(connect(fake), { code: 'protocol_mismatch' });
  fake.answers.hello = () => [{ type: 'ok' }];
  await assert.rejects(connect(fake), { code: 'decode' });
  let n = 0;
  fake.answers.hello = () => (n++ === 0
    ? [{ type: 'goaway', retry_after_ms: 1, reason: 'replaced' }]
    : [{ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 7, version: '', instance: '' }]);
  const client = await connect(fake);
  assert.equal(client.welcome.pid, 7);
  await client.close();
  assert.equal(client.state, 'closed');
  await assert.rejects(client.list(), { code: 'client_closed' });
  await assert.rejects(HoldfastClient.connect({ url: 'ws://x', socketPath: '/y' }), { code: 'invalid_argument' });
  await assert.rejects(HoldfastClient.connect({ socketPath: '/nowhere/proxy.sock' }), { code: 'connect' });
});

test('requests are what the protocol has', async () => {
  const fake = new Fake();
  const asked = [];
  const answer = (type, more = {}) => (m) => {
    const { request_id, ...rest } = m;
    asked.push(JSON.parse(JSON.stringify(rest)));
    return [{ type, request_id, ...more }];
  };
  for (const type of ['signal', 'terminate', 'forget', 'resize', 'size_policy', 'clear', 'interrupt']) fake.answers[type] = answer('ok');
  fake.answers.info = answer('session', { session: { id: SESSION } });
  fake.answers.rename = answer('session', { session: { id: SESSION, labels: { title: 'mine' } } });
  fake.answers.marked = undefined;
  fake.answers.mark = answer('marked', { instance: 'i', offset: 5, mark: 'AA==' });
  fake.answers.await = answer('awaited', { instance: 'i', offset: 6, line: 'x' });
  fake.answers.environment = answer('environment_content', { env: ['A=1'] });
  fake.answers.share = answer('shared', { url: 'http://x', expires_at: 't' });
  fake.answers.scrollback = answer('scrollback_data', { instance: 'i', offset: 1, end: 3, data_b64: '//4=' });
  const client = await connect(fake);
  await client.signal('s', 'USR1');
  await client.kill('s', { instance: 'i', graceMs: 5, reason: 'why' });
  await client.forget('s');
  await client.resize('s', 1, 2);
  await client.setSizePolicy('s', 'fixed', 3, 4);
  await client.clear('s', true);
  assert.deepEqual(await client.rename('s', 'mine'), { id: SESSION, labels: { title: 'mine' } });
  assert.equal((await client.info('s')).id, SESSION);
  assert.deepEqual(await client.mark('s'), { instance: 'i', offset: 5, mark: 'AA==' });
  assert.deepEqual(await client.await({ session_id: 's', text: 'x', since: 'AA==' }), { instance: 'i', offset: 6, line: 'x' });
  assert.deepEqual(await client.environment('s'), ['A=1']);
  assert.deepEqual(await client.share('s', 1000), { url: 'http://x', expires_at: 't' });
  assert.deepEqual(await client.scrollback('s', 1), { instance: 'i', offset: 1, end: 3, data: Uint8Array.of(255, 254) });
  const session_id = 's';
  assert.deepEqual(asked, [
    { type: 'signal', session_id, signal: 'USR1' },
    { type: 'terminate', session_id, instance: 'i', grace_ms: 5, reason: 'why' },
    { type: 'forget', session_id },
    { type: 'resize', session_id, cols: 1, rows: 2 },
    { type: 'size_policy', session_id, policy: 'fixed', cols: 3, rows: 4 },
    { type: 'clear', session_id, screen: true },
    { type: 'rename', session_id, title: 'mine' },
    { type: 'info', session_id },
    { type: 'mark', session_id },
    { type: 'await', session_id, text: 'x', since: 'AA==' },
    { type: 'environment', session_id },
    { type: 'share', session_id, ttl_ms: 1000 },
    { type: 'scrollback', session_id, offset: 1 },
  ]);
  await client.close();
});

test('an await for a text has the inclusive mark of its beginning, also after a lost connection', async () => {
  const fake = new Fake(), asked = [];
  let marks = 0;
  fake.answers.mark = (m) => [{ type: 'marked', request_id: m.request_id, instance: 'i', offset: 5, mark: 'AA==', inclusive: `${++marks}` }];
  fake.answers.await = (m, c) => {
    const { since, timeout_ms } = m;
    asked.push({ since, timed: timeout_ms !== undefined });
    if (asked.length === 1) return void c.breaks();
    return [{ type: 'awaited', request_id: m.request_id, instance: 'i', offset: 6, line: 'x' }];
  };
  const client = await connect(fake);
  assert.equal((await client.await({ session_id: 's', text: 'x', timeout_ms: 60_000 })).line, 'x');
  await client.await({ session_id: 's', text: 'x', since: 'own' });
  await client.await({ session_id: 's', prompt: true });
  assert.deepEqual(asked, [{ since: '1', timed: true }, { since: '1', timed: true }, { since: 'own', timed: false }, { since: undefined, timed: false }]);
  await client.close();
});

test('a request that is harmless is made again, another is not', async () => {
  const fake = new Fake();
  const spawns = [];
  let lost = 2;
  fake.answers.spawn = (m, c) => {
    spawns.push(m);
    if (lost-- > 0) return void c.breaks();
    return [{ type: 'spawned', request_id: m.request_id, session_id: m.session_id, pid: 5, created_at: 't', session: fake.info() }];
  };
  fake.answers.signal = (m, c) => void c.breaks();
  fake.answers.list = (m) => [
    { type: 'sessions', request_id: m.request_id, sessions: [{ id: 'a' }], more: true }, { type: 'sessions', request_id: m.request_id, sessions: [{ id: 'b' }] },
  ];
  const client = await connect(fake), states = [];
  client.on('state', (s) => states.push(s));
  assert.equal((await client.spawn({ argv: ['cat'] })).pid, 5);
  assert.equal(spawns.length, 3);
  assert.equal(new Set(spawns.map((m) => m.token)).size, 1);
  assert.match(spawns[0].token, /^[0-9a-f]{32}$/);
  assert.deepEqual((await client.list()).map((s) => s.id), ['a', 'b']);
  await assert.rejects(client.signal('s', 'HUP'), { code: 'lost', retryable: true });
  assert.deepEqual(states.slice(0, 4), ['reconnecting', 'connected', 'reconnecting', 'connected']);
  await client.close();
});

test('a request during which a supervisor has died is not made again', async () => {
  const fake = new Fake();
  let asked = 0;
  const die = (m) => (asked++ === 0
    ? [{ type: 'error', request_id: m.request_id, code: 'supervisor_unreachable', message: 'it died', attachment: m.attachment }]
    : [{ type: m.type === 'input' ? 'accepted' : 'awaited', request_id: m.request_id, offset: 1 }]);
  Object.assign(fake.answers, { input: die, await: die, attach: die });
  const client = await connect(fake);
  for (const request of [() => client.input('s', 'x'), () => client.await({ session_id: 's', text: 'x', timeout_ms: 100 }), () => client.attach('s')]) {
    asked = 0;
    await assert.rejects(request(), { code: 'supervisor_unreachable', retryable: false });
    assert.equal(asked, 1);
  }
  await client.close();
});

test('list selects by originator and labels', async () => {
  const fake = new Fake(), asked = [];
  const sessions = [{ id: 'a' }, { id: 'b' }, { id: 'c' }];
  fake.answers.list = (m) => {
    const { request_id, ...rest } = m;
    asked.push(rest);
    return [{ type: 'sessions', request_id, sessions: sessions.slice(0, 2), more: true }, { type: 'sessions', request_id, sessions: sessions.slice(2) }];
  };
  const client = await connect(fake), ids = async (which) => (await client.list(which)).map((s) => s.id);
  for (const which of [{ labels: { team: 'core' } }, { labels: { team: 'core', title: 'B' }, originator: 'me' }, { labels: {} }, 'me']) {
    assert.deepEqual(await ids(which), ['a', 'b', 'c']);
  }
  assert.deepEqual(asked, [
    { type: 'list', labels: { team: 'core' } }, { type: 'list', originator: 'me', labels: { team: 'core', title: 'B' } },
    { type: 'list' }, { type: 'list', originator: 'me' },
  ]);
  await client.close();
});

test('what the proxy does not take is not asked again', async () => {
  const fake = new Fake();
  let asked = 0;
  fake.answers.screen = (m, c) => {
    asked++;
    c.tell({ type: 'error', code: 'bad_frame', message: 'cols is no int' });
    c.breaks();
  };
  const client = await connect(fake);
  await assert.rejects(client.screen({ session_id: 's', cols: 'x' }), { code: 'bad_frame', retryable: false });
  assert.equal(asked, 1);
  await client.close();
});

test('a request whose reply is malformed is not made again', async () => {
  const fake = new Fake();
  let asked = 0, isMalformed = true;
  fake.answers.info = (m, c) => {
    asked++;
    if (isMalformed) return void c.tell('no object');
    return [{ type: 'session', request_id: m.request_id, session: { id: SESSION } }];
  };
  const client = await connect(fake);
  await assert.rejects(client.info('s'), { code: 'decode' });
  assert.equal(asked, 1);
  isMalformed = false;
  assert.equal((await client.info('s')).id, SESSION);
  await client.close();
});

test('a proxy that closes each connection after the hello is asked ever more rarely', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const turns = async () => { for (let i = 0; i < 20; i++) await new Promise((done) => setImmediate(done)); };
  const fake = new Fake();
  let isBroken = false;
  fake.answers.hello = (m, c) => {
    c.tell({ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' });
    if (isBroken) c.breaks();
  };
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await connect(fake, { redial: { min: 100, max: 60_000 } });
  await client.list();
  isBroken = true;
  fake.connections[0].breaks();
  await turns();
  t.mock.timers.tick(0);
  await turns();
  assert.equal(fake.connections.length, 2); // at once, because the first one has answered a request
  for (const [i, wait] of [100, 200, 400].entries()) {
    t.mock.timers.tick(wait - 1);
    await turns();
    assert.equal(fake.connections.length, 2 + i);
    t.mock.timers.tick(1);
    await turns();
    assert.equal(fake.connections.length, 3 + i);
  }
  isBroken = false;
  t.mock.timers.tick(800);
  await client.list();
  fake.connections.at(-1).breaks();
  await turns();
  t.mock.timers.tick(0);
  await turns();
  assert.equal(fake.connections.length, 7);
  await client.close();
});

test('a client that is closed meanwhile makes no connection', async () => {
  const fake = new Fake();
  const client = await connect(fake);
  const sub = client.subscribe();
  const attaching = client.attach(SESSION);
  fake.connections[0].breaks();
  await client.close();
  await attaching.then((a) => assert.equal(a.state, 'closed'), () => {});
  assert.equal((await sub[Symbol.asyncIterator]().next()).done, true);
  for (let i = 0; i < 20; i++) await new Promise((done) => setImmediate(done));
  assert.deepEqual(fake.live, []);
});

test('a transport that does not come is given up, and the next attempt is made', { timeout: 30_000 }, async (t) => {
  const fake = new Fake();
  let arrive; // of the transport that does not come
  const transport = () => (fake.refuses ? new Promise((done) => { arrive = done; }) : fake.transport());
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await connect(fake, { transport });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const until = async (is) => {
    while (!is()) {
      t.mock.timers.tick(1);
      await new Promise((done) => { setImmediate(done); });
    }
  };
  fake.refuses = true;
  fake.live[0].breaks();
  await until(() => arrive !== undefined);
  fake.refuses = false;
  t.mock.timers.tick(600_000);
  await until(() => client.state === 'connected');
  t.mock.timers.reset();
  arrive(await fake.transport());
  await client.list();
  assert.equal(fake.live.length, 1); // the transport that came later is closed
  await client.close();
});

test('close ends an attach that is under way', async () => {
  for (const kind of ['hello', 'attach']) { // the message that is not answered
    const fake = new Fake();
    const client = await connect(fake);
    const silent = new Promise((done) => { fake.answers[kind] = () => void done(); });
    const attaching = client.attach(SESSION, { steal: true });
    attaching.catch(() => {});
    await silent;
    await client.close();
    await assert.rejects(attaching, { code: 'client_closed' });
    assert.deepEqual(fake.live, []);
  }
});

test('a request gives up where there is no proxy, and the client goes on', async () => {
  const fake = new Fake();
  fake.answers.status = (m) => [{ type: 'status_report', request_id: m.request_id, proxy: { pid: 3 } }];
  const client = await connect(fake, { redial: { ...redial, giveUp: 200 } }), errors = [];
  client.on('error', (err) => errors.push(err.code));
  fake.refuses = true;
  fake.connections[0].breaks();
  await new Promise((done) => client.on('state', done));
  await assert.rejects(client.status(), { code: 'connect' });
  assert.ok(errors.includes('connect'));
  fake.refuses = false;
  while (client.state !== 'connected') await new Promise((done) => { setImmediate(done); });
  assert.equal((await client.status()).proxy.pid, 3);
  await client.close();
});

test('a request waits without a limit if giveUp is infinite', async () => {
  const fake = new Fake();
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await connect(fake, { redial: { min: 1, max: 5, giveUp: Infinity } });
  let attempts = 0;
  client.on('error', () => { if (++attempts === 5) fake.refuses = false; });
  fake.refuses = true;
  fake.connections[0].breaks();
  await new Promise((done) => client.on('state', done));
  assert.deepEqual(await client.list(), []);
  assert.equal(attempts, 5);
  await client.close();
});

test('goaway is told, and the client comes back', async () => {
  const fake = new Fake();
  fake.answers.status = (m) => [{ type: 'status_report', request_id: m.request_id, proxy: { pid: 3 } }];
  const client = await connect(fake), told = [];
  client.on('goaway', (what) => told.push(what));
  fake.connections[0].tell({ type: 'goaway', retry_after_ms: 1, reason: 'upgrade' });
  await client.status();
  assert.deepEqual(told, [{ retryAfterMs: 1, reason: 'upgrade' }]);
  assert.equal(fake.connections.length, 2);
  await client.close();
});

test(`input is typed once, whatever is cut, seed ${seed}`, async () => {
  const next = random(seed);
  for (let i = 0; i < 30; i++) {
    const fake = new Fake();
    let cuts = 5;
    fake.cut = () => (fake.connections.length === 0 || cuts-- <= 0 ? 1e9 : 200 + Math.floor(next() * 700_000));
    const client = await connect(fake, { redial: { min: 1, max: 2 } });
    const text = 'abcdefghij'.repeat(40_000);
    setImmediate(() => fake.connections[0].breaks());
    fake.full = 1;
    await client.input(SESSION, text);
    assert.equal(fake.typed, text, `round ${i} of seed ${seed}`);
    await client.close();
  }
});

test('paste is whole, and keys count one each', async () => {
  const fake = new Fake();
  const asked = [];
  fake.answers.input = (m, c) => {
    asked.push(m);
    if (asked.length === 1) return void c.breaks();
    if (asked.length === 2) return [{ type: 'error', request_id: m.request_id, code: 'input_full', message: 'full', retryable: true, offset: 0 }];
    const n = m.keys ? m.keys.length : 1; // a paste counts as what it became
    return [{ type: 'accepted', request_id: m.request_id, offset: m.offset + n }];
  };
  const client = await connect(fake);
  await client.paste('s', 'two\nlines');
  assert.equal(asked.length, 3);
  for (const m of asked) assert.deepEqual([m.paste, m.offset, m.writer, m.data_b64], [true, 0, asked[0].writer, btoa('two\nlines')]);
  await client.keys('s', Array.from({ length: 300 }, () => 'Up'));
  assert.deepEqual(asked.slice(3).map((m) => [m.offset, m.keys.length, m.data_b64]), [[0, 256, ''], [256, 44, '']]);
  await client.close();
});

test('input of which the proxy accepts nothing, or more than there is, fails', async () => {
  const fake = new Fake();
  const client = await connect(fake);
  for (const offset of [0, 4]) {
    for (const answer of [{ type: 'accepted', offset }, { type: 'error', code: 'line_too_long', message: 'long', offset }]) {
      let asked = 0;
      fake.answers.input = (m) => (asked++ === 0 ? [{ ...answer, request_id: m.request_id }] : [{ type: 'error', request_id: m.request_id, code: 'busy', message: 'again' }]);
      await assert.rejects(client.input(SESSION, 'abc'), { code: 'decode' });
    }
  }
  await client.close();
});

test('half of a surrogate pair is no input', async () => {
  const fake = new Fake();
  const client = await connect(fake);
  for (const text of ['a\ud83d', '\ude00b', '\ude00\ud83d']) {
    await assert.rejects(client.input(SESSION, text), { code: 'invalid_argument' });
    await assert.rejects(client.paste(SESSION, text), { code: 'invalid_argument' });
  }
  await client.input(SESSION, '\u{1f600}');
  assert.equal(fake.typed, '\u{1f600}');
  await client.close();
});

test('wait is asked again for what is left of its time', async () => {
  const fake = new Fake();
  const asked = [];
  fake.answers.wait = (m, c) => {
    asked.push(m);
    if (asked.length === 1) return void c.breaks();
    return [{ type: 'waited', request_id: m.request_id, session_id: 's', instance: 'i', exit: { exit_code: 4 } }];
  };
  const client = await connect(fake);
  assert.equal((await client.wait('s', { timeoutMs: 60_000 })).exit_code, 4);
  assert.ok(asked[1].timeout_ms < asked[0].timeout_ms && asked[1].timeout_ms > 50_000);
  await client.close();
});

test('a subscription goes on where it was', async () => {
  const fake = new Fake();
  let instance = 'sup-1';
  const asked = [];
  fake.answers.events = (m, c) => {
    asked.push(m);
    fake.stream = c;
    return [{ type: 'subscribed', instance, seq: m.after ?? 10 }];
  };
  const client = await connect(fake);
  const sub = client.subscribe();
  await sub.ready;
  const event = (seq, kind) => fake.stream.tell({ type: 'event', seq, event: kind, at: 't', session: { id: 'a' } });
  event(11, 'created');
  fake.stream.tell({ type: 'pty_exited', seq: 12, session_id: 'a', pane_id: 'a', exit_code: 0, last_lines: [], session_title: '', session_description: '', timed_out: false, exited_at: '2026-09-01T12:00:00Z' });
  const it = sub[Symbol.asyncIterator]();
  assert.deepEqual((await it.next()).value, { seq: 11, event: 'created', at: 't', session: { id: 'a' } });
  const exited = (await it.next()).value;
  assert.deepEqual([exited.event, exited.exit.exit_code, exited.at], ['exited', 0, '2026-09-01T12:00:00Z']);
  fake.stream.breaks();
  const bell = it.next();
  while (asked.length < 2) await new Promise((done) => setImmediate(done));
  event(13, 'bell');
  assert.equal((await bell).value.event, 'bell');
  assert.deepEqual([asked[1].instance, asked[1].after], ['sup-1', 12]);
  instance = 'sup-2';
  fake.stream.breaks();
  assert.deepEqual((await it.next()).value, { seq: 13, event: 'missed', missed: 0 });
  sub.close();
  assert.equal((await it.next()).done, true);
  const told = new Promise((done) => client.on('event', done));
  while (asked.length < 4) await new Promise((done) => setImmediate(done));
  event(20, 'title');
  assert.equal((await told).event, 'title');
  await client.close();
});

test('listeners of events get them after their subscription was refused', async () => {
  const fake = new Fake();
  let asked = 0;
  fake.answers.events = (m, c) => {
    if (asked++ < 2) return [{ type: 'error', code: 'permission_denied', message: 'not now' }];
    c.tell({ type: 'subscribed', instance: 'i', seq: 0 });
    c.tell({ type: 'event', seq: 1, event: 'bell', at: 't' });
  };
  const client = await connect(fake), errors = [];
  client.on('error', (err) => errors.push(err.code));
  const off = client.on('event', () => assert.fail('it was removed'));
  while (errors.length < 1) await new Promise((done) => setImmediate(done));
  off();
  assert.equal((await new Promise((done) => client.on('event', done))).event, 'bell');
  assert.deepEqual([asked, errors], [3, ['permission_denied', 'permission_denied']]);
  await client.close();
});

test('a subscription begins behind the event that it is given', async () => {
  const fake = new Fake(), asked = [];
  fake.answers.events = (m, c) => {
    const { request_id, ...rest } = m;
    asked.push(rest);
    const seq = rest.instance === 'sup-1' ? rest.after : 9;
    c.tell({ type: 'subscribed', instance: 'sup-1', seq });
    for (const n of [8, 9].filter((n) => n > seq)) c.tell({ type: 'event', seq: n, event: 'bell', at: 't' });
  };
  const client = await connect(fake);
  const first = async (after) => {
    const sub = client.subscribe({ after });
    const { value } = await sub[Symbol.asyncIterator]().next();
    sub.close();
    return value;
  };
  assert.deepEqual(await first({ instance: 'sup-1', seq: 7 }), { seq: 8, event: 'bell', at: 't' });
  assert.deepEqual(await first({ instance: 'sup-1', seq: 8 }), { seq: 9, event: 'bell', at: 't' });
  assert.deepEqual(await first({ instance: 'sup-0', seq: 7 }), { seq: 9, event: 'missed', missed: 0 }); // of another one
  assert.deepEqual(asked, [['sup-1', 7], ['sup-1', 8], ['sup-0', 7]].map(([instance, after]) => ({ type: 'events', instance, after })));
  await client.close();
});

test('a subscription that is not read holds a bounded number of events, and misses none', async () => {
  for (const pausable of [true, false]) {
    const fake = new Fake();
    fake.pausable = pausable;
    const happened = 5000;
    let streams = 0;
    fake.answers.events = (m, c) => {
      streams++;
      c.tell({ type: 'subscribed', instance: 'i', seq: m.after ?? 0 });
      for (let seq = (m.after ?? 0) + 1; seq <= happened && !c.over; seq++) c.tell({ type: 'event', seq, event: 'bell', at: 't' });
    };
    const client = await connect(fake);
    const sub = client.subscribe();
    let seq = 0, most = 0;
    for await (const e of sub) {
      assert.equal(e.seq, ++seq);
      most = Math.max(most, sub.queue.length);
      if (seq === happened) break;
    }
    assert.ok(most <= 1024, `${most} events were held`);
    assert.equal(streams > 1, !pausable);
    await client.close();
  }
});

test('a request that is not answered in time fails, and is not made again', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  const fake = new Fake();
  for (const type of ['info', 'signal', 'spawn', 'wait', 'mark', 'await', 'attach']) fake.answers[type] = () => [];
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await connect(fake, { redial: { ...redial, answer: 30 } });
  // late returns when a request has failed because its time has passed.
  const late = async (asked, retryable) => {
    let over = false;
    const failed = assert.rejects(asked, { name: 'HoldfastError', code: 'timeout', retryable }).finally(() => { over = true; });
    await pass(t, () => over);
    await failed;
  };
  await late(client.info('s'), true);
  await late(client.signal('s', 'INT'), false);
  await late(client.spawn({ early_exit_ms: 20 }), true);
  await late(client.wait('s', { timeoutMs: 10 }), true);
  await late(client.await({ session_id: 's', text: 'x', timeout_ms: 10 }), true);
  await late(client.attach('s'), true);
  assert.deepEqual(fake.asked.map((m) => m.type).filter((type) => type !== 'hello'), ['info', 'signal', 'spawn', 'wait', 'mark', 'await', 'attach']);
  await pass(t, () => client.state === 'connected');
  assert.deepEqual(await client.list(), []);
  assert.equal(fake.connections.length, 8, 'each of the seven connections was silent');
  assert.equal(fake.live.length, 1);
  await client.close();
});

test('if only one request is not answered, its connection continues, and so do the other requests', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  const fake = new Fake();
  fake.answers.info = fake.answers.wait = () => [];
  fake.answers.list = (m) => [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  const client = await connect(fake, { redial: { ...redial, answer: 30 } });
  let waits = true, slow = true;
  const waited = client.wait('s').catch((err) => { waits = false; return err.code; });
  const asked = assert.rejects(client.info('s'), { code: 'timeout' }).finally(() => { slow = false; });
  while (slow) {
    await client.list();
    t.mock.timers.tick(1);
  }
  await asked;
  assert.ok(waits, 'a wait may have no time limit');
  assert.equal(fake.connections.length, 1);
  await client.close();
  await waited;
});

test('a resumed attachment and a subscription that are not answered try another connection', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  const fake = new Fake();
  let silent = 0;
  fake.answers.events = () => (fake.silent-- > 0 ? [] : [{ type: 'subscribed', instance: 'i', seq: 0 }]);
  const client = await connect(fake, { redial: { ...redial, answer: 30 } });
  const attachment = await client.attach(SESSION), subscription = client.subscribe();
  await subscription.ready;
  const shown = new Shown(attachment);
  fake.answers.attach = (m, c) => (silent++ === 0 ? [] : void c.attach(m));
  fake.silent = 1;
  for (const c of fake.live) c.breaks();
  fake.print('after');
  await pass(t, () => shown.text.includes('after'));
  assert.equal(silent, 2);
  await pass(t, () => fake.asked.filter((m) => m.type === 'events').length >= 3);
  await client.close();
});

test('a request that is too large leaves no connection open', async () => {
  const fake = new Fake();
  const client = await connect(fake);
  await assert.rejects(client.attach(SESSION, { env: ['A=' + 'x'.repeat(1 << 20)] }), { code: 'frame_too_large' });
  assert.equal(fake.live.length, 1);
  await client.close();
  assert.equal(fake.live.length, 0);
});

test('a request that is refused at the limit leaves no timer', async () => {
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const fake = new Fake();
  const client = await connect(fake, { redial: { ...redial, giveUp: 30_000 } });
  const before = timers();
  fake.refuses = true;
  for (const c of fake.live) c.breaks();
  await new Promise((done) => { client.on('state', done); });
  const asked = Array.from({ length: 4097 }, () => client.list().catch((err) => err.code));
  assert.equal(await asked.pop(), 'limit_exceeded');
  await client.close();
  assert.deepEqual(new Set(await Promise.all(asked)), new Set(['client_closed']));
  assert.equal(timers(), before);
});

test('close fails the requests that are under way with client_closed', async () => {
  const fake = new Fake();
  fake.answers.info = () => [];
  const client = await connect(fake);
  const asked = assert.rejects(client.info('s'), { code: 'client_closed', retryable: false });
  await client.close();
  await asked;
});

test('null is an absent request_id', async () => {
  const fake = new Fake();
  fake.answers.info = (m, c) => {
    c.tell({ type: 'error', request_id: null, code: 'bad_frame', message: 'malformed' });
    c.breaks();
  };
  const client = await connect(fake);
  await assert.rejects(client.info('s'), { code: 'bad_frame' });
  await client.close();
});

test('half of a surrogate pair is no text of a request', async () => {
  const fake = new Fake();
  const client = await connect(fake);
  for (const argv of ['a\ud800', '\udc00', '\\\ud800', '\ud800\\ud800']) {
    await assert.rejects(client.spawn({ argv: [argv] }), { code: 'invalid_argument' });
  }
  fake.answers.spawn = (m) => [{ type: 'spawned', request_id: m.request_id, argv: m.argv }];
  const argv = ['\\ud800', '\\\\udc00', '😀', 'ud800'];
  assert.deepEqual((await client.spawn({ argv })).argv, argv);
  await client.close();
});
