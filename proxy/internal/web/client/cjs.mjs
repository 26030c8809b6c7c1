// Makes dist/cjs, the same modules for require(), from the sources. tsc must have made dist before.

import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ts from 'typescript';

const compilerOptions = { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 };
const to = join('dist', 'cjs');

await rm(to, { recursive: true, force: true });
await mkdir(to, { recursive: true });
for (const name of await readdir('src')) {
  const source = await readFile(join('src', name), 'utf8');
  const { outputText } = ts.transpileModule(source, { compilerOptions });
  // A CommonJS module has no import.meta. createRequire accepts a path as well.
  await writeFile(join(to, name.replace(/\.ts$/, '.js')), outputText.replaceAll('import.meta.url', '__filename'));
}
for (const name of await readdir('dist')) {
  if (name.endsWith('.d.ts')) await copyFile(join('dist', name), join(to, name));
}
await writeFile(join(to, 'package.json'), JSON.stringify({
  type: 'commonjs',
  imports: Object.fromEntries(['unix', 'programs'].map((name) => [`#${name}`, { node: `./${name}.js`, default: `./no${name}.js` }])),
}, undefined, 2) + '\n');
