// The older version of the app starts again, as a CommonJS module: it uses the newer programs that run. A version whose
// programs do not work leaves them running, too. Arguments: the directory of the app, and the newer version.

const assert = require('node:assert/strict');
const { mkdtempSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { start } = require('holdfast');

const [dir, newer] = process.argv.slice(2);

async function main() {
  const client = await start({ dir, onUpgrade: assert.fail });
  const { supervisor } = await client.status();
  assert.equal(supervisor.version, newer);
  assert.equal((await client.list()).length, 1);
  await client.close();

  const programs = mkdtempSync('broken-');
  const script = '#!/bin/sh\nif [ "$1" = --version ]; then echo proxy version v99.0.0; else echo it is broken >&2; exit 1; fi\n';
  for (const name of ['proxy', 'supervisor']) writeFileSync(join(programs, name), script, { mode: 0o700 });
  const upgrades = [];
  const third = await start({ dir, programs, onUpgrade: (upgrade) => upgrades.push(upgrade) });
  assert.deepEqual(upgrades.map(({ from, to, error }) => [from, to, error.code]), [[newer, 'v99.0.0', 'connect']]);
  assert.match(upgrades[0].error.message, /it is broken/);
  assert.equal((await third.list()).length, 1);
  process.kill((await third.status()).proxy.pid, 'SIGKILL'); // the programs of another version are started instead
  await third.list();
  assert.equal((await third.status()).supervisor.version, newer);
  await third.close();
}
main();
