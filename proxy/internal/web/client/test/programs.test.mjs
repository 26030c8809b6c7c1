import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
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
