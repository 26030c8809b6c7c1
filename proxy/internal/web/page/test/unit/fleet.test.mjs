// The hosts of a gate, without a browser. The gate is one of this test, on a real socket.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import { Fleet } from '../../node_modules/.test/fleet.js';

const { WebSocket, WebSocketServer } = createRequire(new URL('../../../client/package.json', import.meta.url))('ws');

globalThis.WebSocket = WebSocket;

test('a host that the gate has refused for a while can be used again, and a new gate may not know its sessions', async (t) => {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  const entered = new Set();
  let isKnown = true;
  let sessions = 1;
  const answer = (m, ws) => {
    switch (m.type) {
      case 'hosts':
        return { type: 'host_list', hosts: [{ name: 'red', reachable: true, serving: true, sessions, running: sessions }] };
      case 'enter':
        if (!isKnown) return { type: 'refused', code: 'unknown_host', message: 'no host "red" has joined the gate' };
        entered.add(ws);
        return { type: 'entered' };
      case 'hello':
        return { type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' };
      case 'events':
        return { type: 'subscribed', instance: 'i', seq: 0 };
      case 'info':
        return { type: 'session', request_id: m.request_id, session: { id: m.session_id, instance: 'i' } };
    }
    throw new Error(`the gate is asked for ${m.type}`);
  };
  server.on('connection', (ws) => ws.on('message', (data) => ws.send(JSON.stringify(answer(JSON.parse(String(data)), ws)))));
  t.after(() => {
    for (const ws of server.clients) ws.terminate();
    server.close();
  });

  const connect = async () => {
    const fleet = await Fleet.connect(new URL(`ws://127.0.0.1:${server.address().port}/v1/gate`));
    t.after(() => fleet.close());
    return fleet;
  };
  const fleet = await connect();
  assert.equal((await fleet.info('red/s')).id, 'red/s');
  isKnown = false;
  for (const ws of entered) ws.terminate();
  await assert.rejects(fleet.info('red/s'), { code: 'unknown_host' });
  isKnown = true;
  assert.equal((await fleet.info('red/s')).id, 'red/s');

  // A session that is not listed has ended, unless the gate knows no session of its host yet.
  assert.equal(fleet.isUnknown('red/s'), false);
  sessions = 0;
  assert.equal((await connect()).isUnknown('red/s'), true);
});
