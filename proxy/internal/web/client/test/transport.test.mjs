import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHTTPServer } from 'node:http';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { WebSocket, WebSocketServer } from 'ws';
import { HoldfastClient } from '../dist/index.js';

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
