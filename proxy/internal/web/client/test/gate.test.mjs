import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { createServer as createServerOfTCP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createServer } from 'node:tls';
import * as frames from '../dist/frames.js';
import { HoldfastClient, parseGate } from '../dist/index.js';
import * as noPrograms from '../dist/noprograms.js';
import * as browser from '../dist/nounix.js';
import { ssh } from '../dist/unix.js';
import { Fake, SESSION, Shown } from './fake.mjs';

// A certificate for tests alone. It has expired and names no address, because neither counts.
const CERTIFICATE = `-----BEGIN CERTIFICATE-----
MIIBBTCBuKADAgECAgEBMAUGAytlcDAYMRYwFAYDVQQDEw1ob2xkZmFzdCBnYXRl
MB4XDTIwMDEwMTAwMDAwMFoXDTIwMDEwMjAwMDAwMFowGDEWMBQGA1UEAxMNaG9s
ZGZhc3QgZ2F0ZTAqMAUGAytlcAMhAAhtoNnUaOTrRO/cNB4mcopWyINqsFJP4r8H
txDC41rsoycwJTAOBgNVHQ8BAf8EBAMCB4AwEwYDVR0lBAwwCgYIKwYBBQUHAwEw
BQYDK2VwA0EA7lCS6PP7gFajhyawjVaS8tsMQ6Y8m3YYq1wkWyc5YYYp2PtGsgz0
ByunuFrMzaSbgDvUOaPVf44yKOMVZq/9DQ==
-----END CERTIFICATE-----
`;
const KEY = `-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEINOYR+O/YWQpLWvN+FV94R7eJOFnxyP4vTnailngwWv/
-----END PRIVATE KEY-----
`;
const FINGERPRINT = new X509Certificate(CERTIFICATE).fingerprint256.replaceAll(':', '').toLowerCase();
const TOKEN = '0f'.repeat(32);
const redial = { min: 1, max: 2, giveUp: 60_000 };
const encode = (m) => Buffer.from(frames.frame(frames.CONTROL, new TextEncoder().encode(JSON.stringify(m))));

/** gate starts a gate in front of a fake proxy. answer returns the bytes of its answer to an enter, or a promise of them. */
async function gate(t, fake, answer = () => encode({ type: 'entered' }), more = {}) {
  const g = { entered: [], sockets: new Set(), received: 0, server: undefined };
  const server = createServer({ key: KEY, cert: CERTIFICATE, ...more }, (sock) => {
    g.sockets.add(sock);
    sock.on('error', () => {}).on('close', () => g.sockets.delete(sock));
    const reader = new frames.FrameReader();
    let proxy;
    sock.on('data', (piece) => {
      g.received += piece.length;
      reader.read(piece, (kind, payload) => {
        if (proxy !== undefined) {
          if (kind === frames.CONTROL) proxy.then((p) => p.message(new TextDecoder().decode(payload)));
          else proxy.then((p) => p.data(kind, payload));
          return;
        }
        const m = JSON.parse(new TextDecoder().decode(payload));
        g.entered.push(m);
        Promise.resolve(answer(m)).then((bytes) => sock.write(bytes));
        proxy = fake.transport().then((p) => {
          p.open({
            message: (s) => sock.write(frames.frame(frames.CONTROL, new TextEncoder().encode(s))),
            data: (k, data) => sock.write(frames.frame(k, data)), closed: () => sock.destroy(),
          });
          return p;
        });
      });
    });
  });
  g.server = server;
  server.on('tlsClientError', () => {}); // a client that refuses the gate
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  g.options = { ...parseGate(`holdfast-client/127.0.0.1:${server.address().port}/${FINGERPRINT}/${TOKEN}\n`), host: 'build-1' };
  g.cut = () => { for (const sock of g.sockets) sock.destroy(); };
  t.after(() => { server.close(); g.cut(); });
  return g;
}

test('a client enters a host, and only its first connection may start a proxy there', { timeout: 120_000 }, async (t) => {
  const fake = new Fake(), g = await gate(t, fake);
  const client = await HoldfastClient.connect({ gate: { ...g.options, start: true }, redial });
  const a = await client.attach(SESSION), shown = new Shown(a);
  for (let n = 0; n < 3; n++) {
    a.write(`line ${n}\n`);
    await shown.shows(`LINE ${n}`);
    const before = g.entered.length;
    g.cut();
    a.write('after a cut\n');
    await shown.until(() => g.entered.length > before && shown.text.endsWith('AFTER A CUT\n'));
  }
  assert.equal(shown.text, fake.typed.toUpperCase());
  await client.close();
  const [first, ...others] = g.entered;
  assert.deepEqual(first, { type: 'enter', token: TOKEN, host: 'build-1', start: true });
  for (const m of others) assert.deepEqual(m, { type: 'enter', token: TOKEN, host: 'build-1', again: true });
});

test('a refusal has its code, and one that a further attempt would meet again ends the attempts', { timeout: 120_000 }, async (t) => {
  const fake = new Fake();
  let refusals = [];
  const g = await gate(t, fake, () => {
    const code = refusals.shift();
    return encode(code === undefined ? { type: 'entered' } : { type: 'refused', code, message: `it is ${code}` });
  });
  for (const [refusal, code] of [['unauthorized', 'unauthorized'], ['unknown_host', 'unknown_host'], ['invalid', 'invalid_argument']]) {
    refusals = [refusal];
    await assert.rejects(HoldfastClient.connect({ gate: g.options, redial }), { code, retryable: false, message: `gate: it is ${refusal}` });
  }
  for (const refusal of ['host_unreachable', 'busy', 'of_a_later_release']) {
    refusals = [refusal];
    await assert.rejects(HoldfastClient.connect({ gate: g.options, redial }), { code: 'connect', retryable: true });
  }
  const client = await HoldfastClient.connect({ gate: g.options, redial });
  const a = await client.attach(SESSION), errors = [];
  a.on('error', (err) => errors.push(err.code));
  client.on('error', (err) => errors.push(err.code));
  refusals = ['host_unreachable', 'busy', 'unknown_host'];
  const before = g.entered.length;
  for (const sock of [...g.sockets].slice(-1)) sock.destroy(); // that of the attachment
  await assert.rejects(a.exited, { code: 'unknown_host' });
  assert.equal(g.entered.length - before, 3);
  assert.deepEqual(errors.at(-1), 'unknown_host');
  await client.close();
});

test('of several gates, any that serves suffices', { timeout: 120_000 }, async (t) => {
  const fake = new Fake(), dead = await gate(t, fake), first = await gate(t, fake), second = await gate(t, fake);
  dead.server.close();
  const both = (...gates) => ({ ...first.options, addresses: gates.flatMap((g) => g.options.addresses) });
  const client = await HoldfastClient.connect({ gate: both(dead, first, second), redial });
  const a = await client.attach(SESSION), shown = new Shown(a);
  const [served] = [first, second].filter((g) => g.entered.length > 0);
  served.server.close();
  served.cut();
  a.write('through the other\n');
  await shown.shows('THROUGH THE OTHER');
  await client.close();
  for (const [refusal, want] of [['unauthorized', 'unauthorized'], ['unknown_host', 'unknown_host'], ['host_unreachable', 'connect']]) {
    const g = await gate(t, fake, () => encode({ type: 'refused', code: refusal, message: refusal }));
    await assert.rejects(HoldfastClient.connect({ gate: both(dead, g), redial }), { code: want }); // the dead one does not hide it
  }
});

test('a gate that accepts connections and is silent does not hold up the next one', { timeout: 120_000 }, async (t) => {
  const silent = createServerOfTCP(() => {}).listen(0, '127.0.0.1');
  t.after(() => silent.close());
  await once(silent, 'listening');
  const g = await gate(t, new Fake());
  const addresses = [`127.0.0.1:${silent.address().port}`, ...g.options.addresses];
  for (let isTried = false; !isTried;) { // the order is random
    const closed = new Promise((done) => { silent.once('connection', (sock) => { isTried = true; sock.on('error', () => {}).once('close', done).resume(); }); });
    const client = await HoldfastClient.connect({ gate: { ...g.options, addresses }, redial });
    await client.close();
    if (isTried) await closed; // the attempt ends, so that it keeps no program running
    silent.removeAllListeners('connection');
  }
});

test('a client that a gate asks to leave makes the next connection first', { timeout: 120_000 }, async (t) => {
  const fake = new Fake();
  let open, hold;
  const g = await gate(t, fake, async () => {
    await hold;
    return encode({ type: 'entered' });
  });
  const client = await HoldfastClient.connect({ gate: g.options, redial });
  t.after(() => client.close());
  const a = await client.attach(SESSION), shown = new Shown(a), states = [];
  a.on('state', (s) => states.push(s));
  client.on('state', (s) => states.push(s));
  for (let n = 0; n < 3; n++) {
    hold = new Promise((done) => { open = done; });
    const old = [...g.sockets], before = g.entered.length;
    for (const sock of old) sock.write(encode({ type: 'goaway', reason: 'the gate is replaced' }));
    while (g.entered.length < before + old.length) await new Promise((done) => { setImmediate(done); });
    a.write(`over the old one ${n}\n`);
    await shown.shows(`OVER THE OLD ONE ${n}`);
    await assert.rejects(client.list(), { code: 'unsupported' }); // of the fake proxy, and not lost
    open();
    await Promise.all(old.map((sock) => sock.destroyed || once(sock, 'close')));
    a.write(`over the next one ${n}\n`);
    await shown.shows(`OVER THE NEXT ONE ${n}`);
    await assert.rejects(client.list(), { code: 'unsupported' }); // of the fake proxy, and not lost
  }
  assert.equal(shown.text, fake.typed.toUpperCase());
  assert.ok(!states.includes('reconnecting'), `${states}`);
});

test('a server with another certificate receives nothing', async (t) => {
  const g = await gate(t, new Fake());
  await assert.rejects(
    HoldfastClient.connect({ gate: { ...g.options, fingerprint: '0'.repeat(64) }, redial }),
    { code: 'unauthorized', retryable: false, message: /another fingerprint/ },
  );
  assert.equal(g.received, 0);
});

test('answers that no gate gives end the attempt', { timeout: 120_000 }, async (t) => {
  let answer;
  const g = await gate(t, new Fake(), () => answer);
  for (const [bytes, code] of [
    [Buffer.from([0, 0, 0, 0]), 'decode'],
    [Buffer.from([0, 1, 0, 1]), 'decode'],
    [Buffer.from(frames.frame(frames.OUTPUT, new TextEncoder().encode('{"type":"entered"}'))), 'decode'],
    [encode({ type: 'host_list', hosts: [] }), 'decode'],
    [Buffer.from(frames.frame(frames.CONTROL, new TextEncoder().encode('{'))), 'decode'],
  ]) {
    answer = bytes;
    await assert.rejects(HoldfastClient.connect({ gate: g.options, redial }), { code, retryable: false });
  }
  const old = await gate(t, new Fake(), undefined, { maxVersion: 'TLSv1.2' });
  await assert.rejects(HoldfastClient.connect({ gate: old.options, redial }), { code: 'connect' });
  assert.equal(old.received, 0);
});

test('the answer may come with the frames that follow it, and in pieces', { timeout: 120_000 }, async (t) => {
  const fake = new Fake();
  const goaway = encode({ type: 'goaway', retry_after_ms: 1, reason: 'replaced' });
  const together = await gate(t, fake, () => Buffer.concat([encode({ type: 'entered' }), goaway]));
  await assert.rejects(HoldfastClient.connect({ gate: together.options, redial: { ...redial, giveUp: 0 } }), { code: 'lost', message: /replaced/ });
  const [first, ...bytes] = encode({ type: 'entered' });
  const g = await gate(t, fake, () => Buffer.from([first]));
  const connecting = HoldfastClient.connect({ gate: g.options, redial });
  while (g.entered.length === 0) await new Promise((done) => { setImmediate(done); });
  for (const byte of bytes) {
    for (const sock of g.sockets) sock.write(Buffer.from([byte]));
    await new Promise((done) => { setImmediate(done); });
  }
  await (await connecting).close();
});

test('texts and options that name no gate are refused', async () => {
  const good = `holdfast-client/[::1]:7684/${FINGERPRINT}/${TOKEN}`;
  assert.deepEqual(parseGate(good), { addresses: ['[::1]:7684'], fingerprint: FINGERPRINT, token: TOKEN });
  assert.equal(parseGate(good.replace(TOKEN, 'none')).token, '');
  assert.deepEqual(parseGate(good.replace('[::1]', 'a:1,b')).addresses, ['a:1', 'b:7684']);
  for (const text of [
    '', good.replace('[::1]', 'a,b'), good.replace('[::1]', ',b'), good.replace('client', 'join'), good.replace(':7684', ''), good.replace('[::1]', ''), good.slice(0, -1), good.replace(TOKEN, TOKEN.toUpperCase()), `${good}/x`,
  ]) {
    assert.throws(() => parseGate(text), (err) => err.code === 'invalid_argument' && !err.message.includes(TOKEN));
  }
  const gate = { ...parseGate(good), host: 'red' };
  for (const wrong of [{ host: 'user@red' }, { host: '' }, { host: 'a'.repeat(65) }, { addresses: ['red'] }, { addresses: ['red:0'] }, { addresses: [] }]) {
    await assert.rejects(HoldfastClient.connect({ gate: { ...gate, ...wrong } }), { code: 'invalid_argument' });
  }
});

test('a browser gets an error, and no module of Node', async () => {
  assert.throws(() => browser.gate({ host: 'red' }), { code: 'connect', retryable: false });
  await assert.rejects(noPrograms.start({ dir: '/' }), { code: 'programs_missing', retryable: false });
  // unix.js and programs.js import the others, and a browser gets nounix.js and noprograms.js in their place.
  const ofNode = ['gate.js', 'programs.js', 'stream.js', 'unix.js'];
  for (const name of (await readdir(new URL('../dist/', import.meta.url))).filter((n) => n.endsWith('.js') && !ofNode.includes(n))) {
    const code = await readFile(new URL(`../dist/${name}`, import.meta.url), 'utf8');
    assert.doesNotMatch(code, /from '(node:|\.\/(gate|programs|stream|unix)\.js)/, name);
  }
});

test('close ends an attempt through a gate that does not answer', { timeout: 120_000 }, async (t) => {
  let isSilent = false;
  const g = await gate(t, new Fake(), () => (isSilent ? new Promise(() => {}) : encode({ type: 'entered' })));
  const client = await HoldfastClient.connect({ gate: g.options, redial });
  isSilent = true;
  const before = g.entered.length;
  g.cut();
  const waited = client.list().catch((err) => err.code);
  while (g.entered.length === before) await new Promise((done) => { setTimeout(done, 5); });
  const [sock] = g.sockets, ended = new Promise((done) => { sock.once('close', done); }), begun = Date.now(); // the end may be a reset
  await client.close();
  assert.equal(await waited, 'client_closed');
  await ended;
  assert.ok(Date.now() - begun < 5000, 'the attempt waits for an answer, which may take 10 s');
});

test('close ends an attempt through ssh that does not answer', { timeout: 120_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'holdfast-ssh-')), file = join(dir, 'pid');
  t.after(() => rm(dir, { recursive: true }));
  const reach = ssh({ host: 'h', command: ['sh', '-c', `echo $$ >'${file}.new'; mv '${file}.new' '${file}'; exec sleep 1000`] });
  const stop = new AbortController(), attempt = assert.rejects(reach(stop.signal), { code: 'connect' });
  let pid;
  while (!(pid = await readFile(file, 'utf8').catch(() => ''))) await new Promise((done) => { setTimeout(done, 5); });
  stop.abort();
  await attempt;
  for (let runs = true; runs;) { // until the process has ended
    await new Promise((done) => { setTimeout(done, 5); });
    try {
      process.kill(Number(pid), 0);
    } catch {
      runs = false;
    }
  }
  const again = assert.rejects(reach(stop.signal), { code: 'connect' }); // while it waits before the next attempt
  await again;
});

test('close ends a request on a connection that a gate has asked to leave', { timeout: 120_000 }, async (t) => {
  const fake = new Fake();
  const asked = new Promise((done) => { fake.answers.wait = () => void done(); });
  const g = await gate(t, fake);
  const client = await HoldfastClient.connect({ gate: g.options, redial });
  const waited = client.wait('s').catch((err) => err.code);
  await asked;
  for (const sock of g.sockets) sock.write(encode({ type: 'goaway', reason: 'the gate is replaced' }));
  let last;
  fake.answers.list = (m, c) => {
    last = c;
    return [{ type: 'sessions', request_id: m.request_id, sessions: [] }];
  };
  while (last === undefined || last === fake.connections[0]) await client.list(); // until there is the next connection
  await client.close();
  assert.equal(await waited, 'client_closed');
});
