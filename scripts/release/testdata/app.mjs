// Version 1 of an app: it starts the programs and types into a shell, while version 2 of the app, in another process,
// starts and replaces the programs. Arguments: the directory of the app, both versions, and the project of version 2.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import * as Holdfast from 'holdfast';

const [dir, version, newer, project] = process.argv.slice(2);
const upgrades = [];
const client = await Holdfast.start({ dir, app: version, onUpgrade: (upgrade) => upgrades.push(upgrade) });

if (project === undefined) { // this is version 2
  assert.deepEqual(upgrades, [{ from: version, to: newer }]);
  await client.close();
  process.exit();
}

assert.deepEqual(upgrades, []);
const { session } = await client.spawn({ argv: ['/bin/sh', '-c', 'stty -echo; while read line; do echo "got $line"; done'], cols: 80, rows: 24 });
const attachment = await client.attach(session.id, { cols: 80, rows: 24 });
let shown = '';
attachment.on('output', (bytes) => { shown += Buffer.from(bytes); });

let isOver = false, typed = 0;
const typing = (async () => {
  while (!isOver || typed < 100) {
    attachment.write(`${++typed}\n`);
    await new Promise((done) => { setTimeout(done, 5); });
  }
})();
await promisify(execFile)(process.execPath, ['app.mjs', dir, version, newer], { cwd: project });
isOver = true;
await typing;
const all = Array.from({ length: typed }, (_, i) => `got ${i + 1}\r\n`).join('');
while (shown.length < all.length) await new Promise((done) => { setTimeout(done, 10); });
assert.equal(shown, all);

const { proxy, supervisor } = await client.status();
assert.deepEqual([proxy.version, supervisor.version], [newer, newer]);
assert.equal((await client.info(session.id)).pid, session.pid);
assert.deepEqual((await readdir(join(dir, 'programs'))).sort(), [newer, version].sort());
process.kill(proxy.pid, 'SIGKILL'); // the client starts the newer one again
attachment.write('last\n');
while (!shown.endsWith('got last\r\n')) await new Promise((done) => { setTimeout(done, 10); });
assert.equal((await client.status()).proxy.version, newer);
await client.close();
console.log(`${typed} lines typed during the upgrade`);
