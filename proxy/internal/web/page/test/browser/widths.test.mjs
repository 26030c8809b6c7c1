// The page and the terminal core agree on how wide each character is, with mode 2027 and
// without, and on where the mode is switched.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, open, rows, show, shows, spawn } from './world.mjs';

const characters = ['a', '⚠️', '👍🏽', '👩‍🚀', '👨‍👩‍👧', '🇩🇪', 'é', '日本', 'ก็', '❤️', '한', 'ａ', '½', '\u00ad', '🥲', '🫠', '🫩', '🫩🏽', '🫱🏽‍🫲🏿', '☕', 'क्षि', '1️⃣', '\u200d', '⌚︎'];

// A program that prints each of these and asks where the cursor is then: it is answered
// by a viewer that answers, or by the core if there is none.
const asks = `
stty -echo; echo ready; read go
columns() {
  IFS='[;' read -rsd R -p $'\\r'"$1"$'\\e[6n' _ _ column
  printf '\\r\\e[K'; all="$all $column"
}
for switch in '\\e[?2027l' '\\e[?2027h' '\\e[?7;2027;25l' '\\e[?2027;25h' '\\ec'; do
  printf "$switch"; all=
  for c in ${characters.map((c) => `'${c}'`).join(' ')}; do columns "$c"; done
  IFS='?' read -rsd y -p $'\\e[?2027$p' _ mode
  lines="$lines|$all $mode"
done
printf '%s\\r\\n' "\${lines//|/$'\\r\\n'}"; echo done; exec cat`;

const start = (id) => cli('new', '--detach', '--id', id, '--size', '200x30', '--', 'bash', '--norc', '--noprofile', '-c', asks);
const answers = (all) => all.filter((r) => /^ \d+ /.test(r) && /2027/.test(r));

test('the page takes as many columns as the core', async () => {
  await start('by-core');
  await cli('send', 'by-core', '--enter', 'go', '--wait-text', '^done$');
  const want = answers((await cli('screen', 'by-core')).split('\n').map((r) => r.trimEnd()));
  assert.equal(want.length, 5, `the core says ${want}`);
  assert.notEqual(want[0], want[1]);

  await start('by-page');
  const c = await context({ viewport: { width: 1500, height: 800 } });
  const page = await open(c);
  await show(page, 'by-page');
  await shows(page, /^ready$/);
  await page.keyboard.type('go\n');
  await shows(page, /^done$/);
  assert.deepEqual(answers(await rows(page)), want);
  assert.deepEqual(c.wrongs, []);
});

test('text behind a wide character stays where it is when attached anew', async () => {
  await spawn('anew', `stty -echo -icanon; printf 'plain > ⚠️ type'; read -r k; printf '\\033[3D[%s]'; read -r k; printf '\\033[2J\\033[H\\033[?2027hclusters > ⚠️ 👍🏽 type'; exec cat`);
  const c = await context();
  const page = await open(c);
  await show(page, 'anew');
  await shows(page, /^plain > ⚠️ type$/);
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await shows(page, /^plain > ⚠️ type$/);
  await page.keyboard.type('\n');
  await shows(page, /^plain > ⚠️ t\[\]e$/);
  await page.keyboard.type('\n');
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await shows(page, /^clusters > ⚠️ 👍🏽 type$/);
  await page.keyboard.type('d!');
  await shows(page, /^clusters > ⚠️ 👍🏽 typed!$/);
  const core = (await cli('screen', 'anew')).split('\n').map((r) => r.trimEnd()).filter(Boolean);
  assert.deepEqual((await rows(page)).filter(Boolean), core);
});
