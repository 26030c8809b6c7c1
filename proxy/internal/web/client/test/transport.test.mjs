import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHTTPServer } from 'node:http';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { Connection } from '../dist/dialer.js';
import * as frames from '../dist/frames.js';
import { HoldfastClient } from '../dist/index.js';
import { unixSocket } from '../dist/unix.js';

// listen starts a server of this computer, and returns its URL.
async function listen(t, server) {
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `ws://127.0.0.1:${server.address().port}/v1/api`;
}

test('a handshake without an answer ends the attempt in time', { timeout: 30_000 }, async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const server = createServer();
  const url = await listen(t, server);
  const attempt = HoldfastClient.connect({ url, WebSocket });
  attempt.catch(() => {});
  const [sock] = await once(server, 'connection');
  t.mock.timers.tick(5000);
  await assert.rejects(attempt, { code: 'connect', message: 'the WebSocket does not open within 5000 ms' });
  await once(sock.resume(), 'close');
});

test('a silent connection through one of several gates stays while pings are answered, and then ends', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let handler, pings = 0, answer = { type: 'ok' }, end;
  const conn = new Connection({
    open: (h) => { handler = h; },
    message: (s) => {
      const { type, request_id } = JSON.parse(s);
      assert.equal(type, 'ping');
      pings++;
      if (answer !== undefined) handler.message(JSON.stringify({ ...answer, request_id }));
    },
    close: () => {},
  });
  conn.begin({ message: (m) => assert.fail(`received ${m.type}`), closed: (err) => { end = err; } });
  conn.watch();
  for (let n = 1; n < 5; n++) {
    t.mock.timers.tick(15_000);
    t.mock.timers.tick(5000);
    assert.deepEqual([pings, end], [n, undefined]);
    answer = { type: 'error', code: 'unsupported', message: 'of an older proxy' };
  }
  answer = undefined;
  conn.pause(); // its reader is slow
  t.mock.timers.tick(100_000);
  conn.resume();
  assert.deepEqual([pings, end], [4, undefined]);
  t.mock.timers.tick(15_000);
  assert.deepEqual([pings, end], [5, undefined]);
  t.mock.timers.tick(5000);
  assert.equal(end?.code, 'lost');
  t.mock.timers.tick(100_000);
  assert.equal(pings, 5);
});

// On other systems, a full backlog refuses a connection as if no process listened.
test('a proxy whose backlog is full is connected when it accepts again', { skip: process.platform !== 'linux', timeout: 30_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'hf'));
  t.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'sock');
  const program = `
    import { writeSync } from 'node:fs';
    import { createServer } from 'node:net';
    const server = createServer((sock) => sock.on('error', () => {}).resume());
    server.listen({ path: ${JSON.stringify(path)}, backlog: 1 }, () => {
      writeSync(1, 'listening');
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    });`;
  const proxy = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  t.after(() => proxy.kill());
  await once(proxy.stdout, 'data');
  const others = [];
  t.after(() => others.forEach((sock) => sock.destroy()));
  for (let isFull = false; !isFull;) {
    const sock = connect(path);
    others.push(sock);
    isFull = await new Promise((done) => sock.on('connect', () => done(false)).on('error', (err) => done(err.code === 'EAGAIN')));
  }
  (await unixSocket(path, new AbortController().signal)).close();
});

test('close ends an attempt whose handshake has no answer', { timeout: 30_000 }, async (t) => {
  const proxy = new WebSocketServer({ noServer: true });
  let isSilent = false, heard;
  const silent = new Promise((done) => { heard = done; });
  proxy.on('connection', (ws) => ws.on('message', () => {
    ws.send(JSON.stringify({ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' }));
  }));
  const server = createHTTPServer().on('upgrade', (request, sock, head) => {
    if (isSilent) heard(sock);
    else proxy.handleUpgrade(request, sock, head, (ws) => proxy.emit('connection', ws));
  });
  const client = await HoldfastClient.connect({ url: await listen(t, server), WebSocket, redial: { min: 1 } });
  isSilent = true;
  for (const ws of proxy.clients) ws.terminate();
  const sock = await silent;
  await client.close();
  await once(sock.resume(), 'end');
});

test('close ends a WebSocket whose other side is stopped', { timeout: 30_000 }, async (t) => {
  let last;
  class Kept extends WebSocket {
    constructor(...args) {
      super(...args);
      last = this;
    }
  }
  const proxy = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  t.after(() => proxy.close());
  proxy.on('connection', (ws) => ws.once('message', () => {
    ws.send(JSON.stringify({ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' }));
    ws.pause(); // does not answer the close
  }));
  await once(proxy, 'listening');
  const client = await HoldfastClient.connect({ url: `ws://127.0.0.1:${proxy.address().port}`, WebSocket: Kept });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  await client.close();
  t.mock.timers.tick(1000);
  if (last.readyState !== WebSocket.CLOSED) await once(last, 'close');
  for (const ws of proxy.clients) ws.terminate();
});

test('few sizes and interrupts wait for a proxy that does not read, and the last size arrives', { timeout: 30_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'holdfast-'));
  t.after(() => rm(dir, { recursive: true }));
  const size = { cols: 80, rows: 24 }, count = 20_000, widest = 2000;
  let received, last, stuck;
  // answer plays a proxy that stops reading after the attach.
  const answer = (conn, send, text) => {
    const m = JSON.parse(text);
    if (m.type === 'hello') send({ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' });
    if (m.type === 'attach') {
      send({ type: 'attached', attachment: 1, session: { id: 's', instance: 'i', size }, replay: 'exact', offset: 0, input_offset: 0 });
      conn.pause();
      stuck = conn;
    }
    if (m.type === 'detach') send({ type: 'detached', attachment: 1 });
    if (m.type === 'interrupt' || m.type === 'resize') received++;
    if (m.type !== 'resize') return;
    send({ type: 'ok', request_id: m.request_id });
    if (m.cols === widest) last();
  };
  const path = process.platform === 'win32' ? '\\\\.\\pipe\\holdfast-stuck' : join(dir, 's');
  const server = createServer((sock) => {
    const reader = new frames.FrameReader(), send = (m) => sock.write(frames.frame(frames.CONTROL, new TextEncoder().encode(JSON.stringify(m))));
    sock.on('error', () => {}).on('data', (piece) => {
      sock.cork();
      reader.read(piece, (kind, payload) => kind === frames.CONTROL && answer(sock, send, new TextDecoder().decode(payload)));
      sock.uncork();
    });
  }).listen(path);
  const proxy = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  t.after(() => { server.close(); proxy.close(); });
  proxy.on('connection', (ws) => ws.on('message', (data, isBinary) => isBinary || answer(ws, (m) => ws.send(JSON.stringify(m)), data)));
  await Promise.all([once(server, 'listening'), once(proxy, 'listening')]);
  let isFull = true; // the buffers of TCP may hold all that this test sends
  class Full extends WebSocket {
    get bufferedAmount() {
      return isFull ? 4 << 20 : 0;
    }
  }
  for (const way of [{ socketPath: path }, { url: `ws://127.0.0.1:${proxy.address().port}`, WebSocket: Full }]) {
    received = 0;
    const client = await HoldfastClient.connect(way), a = await client.attach('s');
    a.write(new Uint8Array(1 << 20));
    for (let i = 1; i <= count; i++) {
      a.interrupt();
      a.resize(i % 1000 + 1, 24);
    }
    isFull = way.url === undefined;
    const arrived = new Promise((done) => { last = done; });
    a.resize(widest, 24);
    stuck.resume();
    await arrived;
    assert.ok(received < 1.5 * count, `${received} messages`);
    await client.close();
  }
});
