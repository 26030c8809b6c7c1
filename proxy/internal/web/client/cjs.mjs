// Makes dist/cjs, which tsc has compiled for require(), a directory of CommonJS modules.

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const dir = join('dist', 'cjs');

// A CommonJS module has no import.meta. createRequire accepts a path as well.
const programs = join(dir, 'programs.js');
await writeFile(programs, (await readFile(programs, 'utf8')).replaceAll('import.meta.url', '__filename'));
await writeFile(join(dir, 'package.json'), JSON.stringify({
  type: 'commonjs',
  imports: Object.fromEntries(['unix', 'programs'].map((name) => [`#${name}`, { node: `./${name}.js`, default: `./no${name}.js` }])),
}, undefined, 2) + '\n');
