import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import * as frames from '../dist/frames.js';
import { GateDirectory, HoldfastClient } from '../dist/index.js';
import { Fake } from './fake.mjs';

const redial = { min: 1, max: 2, giveUp: 60_000 };

/** gate starts a gate in front of a fake proxy. answer returns its answer to a message. */
async function gate(t, fake, answer = () => ({ type: 'entered' })) {
  const g = { asked: [], sockets: new Set(), protocols: new Set() };
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  server.on('connection', (ws) => {
    g.sockets.add(ws);
    g.protocols.add(ws.protocol);
    ws.on('close', () => g.sockets.delete(ws));
    let proxy;
    ws.on('message', async (data, isBinary) => {
      if (proxy !== undefined) {
        const p = await proxy;
        if (isBinary) p.data(data[0], data.subarray(1));
        else p.message(String(data));
        return;
      }
      const m = JSON.parse(String(data));
      g.asked.push(m);
      const reply = answer(m, ws);
      if (reply === undefined) return;
      ws.send(JSON.stringify(reply));
      if (reply.type !== 'entered') return;
      proxy = fake.transport().then((p) => {
        p.open({ message: (s) => ws.send(s), data: (k, d) => ws.send(frames.message(k, d)), closed: () => ws.terminate() });
        return p;
      });
    });
  });
  await once(server, 'listening');
  t.after(() => {
    for (const ws of g.sockets) ws.terminate();
    server.close();
  });
  g.url = `ws://127.0.0.1:${server.address().port}/v1/gate`;
  return g;
}

test('a client enters a host over a WebSocket, and again after each lost connection', async (t) => {
  const fake = new Fake();
  const g = await gate(t, fake);
  const c = await HoldfastClient.connect({ gate: { url: g.url, host: 'red', start: true, token: 'T' }, WebSocket, redial });
  t.after(() => c.close());
  assert.deepEqual(g.asked, [{ type: 'enter', token: 'T', host: 'red', start: true }]);
  assert.deepEqual([...g.protocols], ['holdfast.gate.v1']);
  await assert.rejects(c.share('s'), { code: 'unsupported' });
  for (const ws of g.sockets) ws.terminate();
  await new Promise((done) => {
    c.on('state', (state) => state === 'connected' && done());
  });
  assert.deepEqual(g.asked.at(-1), { type: 'enter', token: 'T', host: 'red', again: true });
});

test('refusals have the codes of a gate over TLS', async (t) => {
  for (const [code, want] of [['unauthorized', 'unauthorized'], ['unknown_host', 'unknown_host'], ['host_unreachable', 'connect'], ['busy', 'connect'], ['invalid', 'invalid_argument'], ['later', 'connect']]) {
    const g = await gate(t, new Fake(), () => ({ type: 'refused', code, message: 'why' }));
    await assert.rejects(HoldfastClient.connect({ gate: { url: g.url, host: 'red' }, WebSocket, redial }), { code: want, message: 'gate: why' });
    await assert.rejects(new GateDirectory({ url: g.url, WebSocket }).hosts(), { code: want });
  }
  await assert.rejects(HoldfastClient.connect({ gate: { url: 'ws://127.0.0.1:1/', host: 'a/b' }, WebSocket }), { code: 'invalid_argument' });
  for (const answer of [() => ({ type: 'welcome' }), (_, ws) => void ws.send(Buffer.from([1, 2])), (_, ws) => void ws.send('no JSON')]) {
    const g = await gate(t, new Fake(), answer);
    await assert.rejects(HoldfastClient.connect({ gate: { url: g.url, host: 'red' }, WebSocket, redial: { ...redial, giveUp: 1 } }), { code: 'decode' });
  }
  const g = await gate(t, new Fake(), (_, ws) => void ws.terminate());
  await assert.rejects(HoldfastClient.connect({ gate: { url: g.url, host: 'red' }, WebSocket, redial }), { code: 'connect' });
});

test('the directory has all pages, answers one question after the other, and connects again', async (t) => {
  let answers = 0;
  const g = await gate(t, new Fake(), (m) => {
    answers++;
    if (m.type === 'hosts') return { type: 'host_list', hosts: [{ name: m.after === 'a' ? 'b' : 'a' }], ...(m.after !== 'a' && { next: 'a' }) };
    return { type: 'session_list', sessions: [{ host: 'a', id: 's' }] };
  });
  const d = new GateDirectory({ url: g.url, token: 'T', WebSocket });
  t.after(() => d.close());
  const [hosts, sessions] = await Promise.all([d.hosts(), d.sessions({ host: 'a', command: 'make' })]);
  assert.deepEqual([hosts.map((h) => h.name), sessions.map((s) => s.id), answers], [['a', 'b'], ['s'], 3]);
  assert.equal(g.sockets.size, 1);
  assert.deepEqual(g.asked.find((m) => m.type === 'sessions'), { host: 'a', command: 'make', type: 'sessions', token: 'T' });
  for (const ws of g.sockets) ws.terminate(); // as the gate does if the directory asks nothing for a while
  assert.equal((await d.hosts()).length, 2);
});
