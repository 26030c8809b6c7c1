import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import * as frames from '../dist/frames.js';
import { start } from '../dist/index.js';

test('a package.json names the version of the programs only if it is of their package', { skip: process.platform === 'win32' }, async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'holdfast-'));
  t.after(() => rm(root, { recursive: true }));
  for (const [description, want] of [
    ['{"name": "my-app", "version": "9.0.0"}', 'v1.2.3'], ['{"version": "9.0.0"}', 'v1.2.3'], ['no JSON', 'v1.2.3'], ['null', 'v1.2.3'],
    ['{"name": "@holdfast/linux-x64", "version": "1.3.0"}', 'v1.3.0'],
  ]) {
    const app = await mkdtemp(join(root, 'app-')), programs = join(app, 'bin'), dir = join(app, 'data');
    await mkdir(programs);
    await writeFile(join(app, 'package.json'), description);
    for (const program of ['proxy', 'supervisor']) {
      await writeFile(join(programs, program), `#!/bin/sh\n[ "$1" = --version ] && echo "${program} v1.2.3"\n`, { mode: 0o700 });
    }
    await assert.rejects(start({ dir, programs }), { code: 'connect' }); // these programs do not start
    assert.deepEqual(await readdir(join(dir, 'programs')), [want], description);
  }
});

test('an empty directory, as of a variable that is not set, is refused', async () => {
  await assert.rejects(start({ dir: '' }), { code: 'invalid_argument' });
});

test('all connections of a client start a proxy that has crashed once', { skip: process.platform === 'win32', timeout: 30_000 }, async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'holdfast-')), programs = join(root, 'bin'), dir = join(root, 'data'), log = join(root, 'log'), go = join(root, 'go');
  const socks = new Set(), servers = [];
  let client;
  t.after(async () => {
    await writeFile(go, '');
    await client?.close();
    for (const server of servers) server.close();
    for (const sock of socks) sock.destroy();
    await rm(root, { recursive: true });
  });
  await mkdir(programs);
  const script = `#!/bin/sh\nif [ "$1" = --version ]; then echo "proxy v1.2.3"; else echo "$1" >>'${log}'; while [ -e '${log}' ] && [ ! -e '${go}' ]; do sleep 0.02; done; fi\n`;
  for (const program of ['proxy', 'supervisor']) await writeFile(join(programs, program), script, { mode: 0o700 });
  const size = { cols: 80, rows: 24 }, answers = {
    hello: () => ({ type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: '', instance: '' }),
    status: () => ({ type: 'status_report', proxy: { version: 'v1.2.3' } }),
    attach: () => ({ type: 'attached', attachment: 1, session: { id: 's', instance: 'i', size }, replay: 'exact', offset: 0, input_offset: 0 }),
    detach: () => ({ type: 'detached', attachment: 1 }),
  };
  const serve = async () => {
    const server = createServer((sock) => {
      const reader = new frames.FrameReader();
      socks.add(sock.on('error', () => {}).on('close', () => socks.delete(sock)));
      sock.on('data', (piece) => reader.read(piece, (_, payload) => {
        const m = JSON.parse(new TextDecoder().decode(payload));
        sock.write(frames.frame(frames.CONTROL, new TextEncoder().encode(JSON.stringify({ ...answers[m.type](), request_id: m.request_id }))));
      }));
    }).listen(join(dir, 'proxy.sock'));
    servers.push(server);
    await once(server, 'listening');
  };
  await mkdir(dir);
  await serve();
  client = await start({ dir, programs, redial: { min: 1 } });
  const all = await Promise.all([1, 2, 3, 4].map(() => client.attach('s')));
  const reconnected = Promise.all([client, ...all].map((a) => new Promise((done) => a.on('state', (s) => s === 'connected' && done()))));
  servers[0].close();
  for (const sock of socks) sock.destroy();
  await once(servers[0], 'close');
  while (await readFile(log, 'utf8').catch(() => '') === '') await new Promise((done) => { setTimeout(done, 5); });
  await serve();
  await writeFile(go, '');
  await reconnected;
  assert.equal(await readFile(log, 'utf8'), 'start\n');
});
