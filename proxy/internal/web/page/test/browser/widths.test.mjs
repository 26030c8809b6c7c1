// The page and the terminal core agree on how wide each character is, with mode 2027 and
// without, and on where the mode is switched.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, open, rows, show, shows, spawn } from './world.mjs';

const characters = ['a', '⚠️', '👍🏽', '👩‍🚀', '👨‍👩‍👧', '🇩🇪', 'é', '日本', 'ก็', '❤️', '한', 'ａ', '½', '\u00ad', '🥲', '🫠', '🫩', '🫩🏽', '🫱🏽‍🫲🏿', '☕', 'क्षि', '1️⃣', '\u200d', '⌚︎'];

// A program that prints each of these and asks where the cursor is then, which the core
// answers, and not a viewer. A bar in the same column of the next row, which is empty, shows
// where the page has it. After each switch of the mode it waits for a line.
const switches = ['\\e[?2027l', '\\e[?2027h', '\\e[?7;2027;25l', '\\e[?2027;25h', '\\ec'];
const asks = `
stty -echo; echo ready; read go; n=0
for switch in ${switches.map((s) => `'${s}'`).join(' ')}; do
  printf "\\e[2J\\e[H$switch"; all=; n=$((n+1))
  for c in ${characters.map((c) => `'${c}'`).join(' ')}; do
    printf '%s' "$c"; IFS='[;' read -rsd R -p $'\\e[6n' _ _ column; all="$all $((column-1))"
    printf '\\eD|\\r\\n'
  done
  IFS='?' read -rsd y -p $'\\e[?2027$p' _ mode
  printf 'core %s:%s,%s' "$n" "$all" "$mode"
  read go
done`;

test('the page takes as many columns as the core', async () => {
  await cli('new', '--detach', '--id', 'columns', '--size', '150x60', '--', 'bash', '--norc', '--noprofile', '-c', asks);
  const c = await context({ viewport: { width: 1500, height: 1200 } });
  const page = await open(c);
  await show(page, 'columns');
  await shows(page, /^ready$/);
  const seen = [];
  for (const [i] of switches.entries()) {
    await page.keyboard.press('Enter');
    await shows(page, new RegExp(`^core ${i + 1}:`));
    const [core, mode] = (await rows(page)).find((r) => r.startsWith('core ')).split(':')[1].split(',');
    const want = core.trim().split(' ').map(Number);
    assert.equal(want.length, characters.length);
    const bars = (await rows(page)).filter((r) => /^ *\|$/.test(r)).map((r) => r.indexOf('|'));
    assert.deepEqual(Object.fromEntries(bars.map((x, j) => [characters[j], x])), Object.fromEntries(want.map((x, j) => [characters[j], x])), `after ${switches[i]}`);
    seen.push([core, mode]);
  }
  assert.deepEqual(seen.map(([, mode]) => mode), ['2027;2$', '2027;1$', '2027;2$', '2027;1$', '2027;2$']);
  assert.notEqual(seen[0][0], seen[1][0]);
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
