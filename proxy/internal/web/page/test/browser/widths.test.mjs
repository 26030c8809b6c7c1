// The page and the terminal core agree on how wide each character is, with mode 2027 and
// without, and on where the mode is switched.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, eventually, open, rows, show, shows, spawn } from './world.mjs';

const characters = ['a', '⚠️', '👍🏽', '👩‍🚀', '👨‍👩‍👧', '🇩🇪', 'é', '日本', 'ก็', '❤️', '한', 'ａ', '½', '\u00ad', '🥲', '🫠', '🫩', '🫩🏽', '🫱🏽‍🫲🏿', '☕', 'क्षि', '1️⃣', '\u200d', '⌚︎'];

// A program that prints each of these, and a bar in the same column of the next row, which
// is empty. It also asks where the cursor is behind the character, which the page answers.
// Before each switch of the mode it waits for a line.
const switches = ['\\e[?2027l', '\\e[?2027h', '\\e[?7;2027;25l', '\\e[?2027;25h', '\\ec'];
const asks = `
stty -echo; echo ready; read go; echo raw; n=0
for switch in ${switches.map((s) => `'${s}'`).join(' ')}; do
  read go; printf "\\e[2J\\e[H$switch"; all=; n=$((n+1))
  for c in ${characters.map((c) => `'${c}'`).join(' ')}; do
    printf '%s' "$c"; IFS='[;' read -rsd R -p $'\\e[6n' _ _ column; all="$all $((column-1))"
    printf '\\eD|\\r\\n'
  done
  IFS='?' read -rsd y -p $'\\e[?2027$p' _ mode
  printf 'page %s:%s,%s' "$n" "$all" "$mode"
done
read go`;

// The page and the session come to have one size, so that the page gets what is printed. In
// a size of its own it gets what the core paints, which says where each text stands.
async function hasPageSize(page, id) {
  const { length } = await rows(page);
  await eventually('the session has the size of the page', async () => (await cli('ls', '--json').then(JSON.parse)).find((s) => s.id === id).size.rows === length);
}

const bars = (all) => all.map((r) => r.trimEnd()).filter((r) => /^ *\|$/.test(r)).map((r) => r.indexOf('|'));
const byCharacter = (columns) => Object.fromEntries(columns.map((x, i) => [characters[i], x]));

test('the page takes as many columns as the core', async () => {
  await cli('new', '--detach', '--id', 'columns', '--', 'bash', '--norc', '--noprofile', '-c', asks);
  const c = await context({ viewport: { width: 1500, height: 1200 } });
  const page = await open(c);
  await show(page, 'columns');
  await shows(page, /^ready$/);
  await page.keyboard.press('Enter');
  await hasPageSize(page, 'columns');
  await shows(page, /^raw$/);
  const seen = [];
  for (const [i] of switches.entries()) {
    await page.keyboard.press('Enter');
    await shows(page, new RegExp(`^page ${i + 1}:`));
    const [answers, mode] = (await rows(page)).find((r) => r.startsWith('page ')).split(':')[1].split(',');
    const core = bars((await cli('screen', 'columns')).split('\n'));
    assert.equal(core.length, characters.length);
    assert.deepEqual(byCharacter(bars(await rows(page))), byCharacter(core), `after ${switches[i]}`);
    assert.deepEqual(byCharacter(answers.trim().split(' ').map(Number)), byCharacter(core), `answered after ${switches[i]}`);
    seen.push([core, mode]);
  }
  assert.deepEqual(seen.map(([, mode]) => mode), ['2027;2$', '2027;1$', '2027;2$', '2027;1$', '2027;2$']);
  assert.notDeepEqual(seen[0][0], seen[1][0]);
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
  await shows(page, /^clusters > ⚠️ 👍🏽 type$/); // a page that is loaded again may lose input that it has not sent yet
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await shows(page, /^clusters > ⚠️ 👍🏽 type$/);
  await page.keyboard.type('d!');
  await shows(page, /^clusters > ⚠️ 👍🏽 typed!$/);
  const core = (await cli('screen', 'anew')).split('\n').map((r) => r.trimEnd()).filter(Boolean);
  assert.deepEqual((await rows(page)).filter(Boolean), core);
});

// Grapheme clusters are counted if the program has switched mode 2027 on, and only then,
// also by a page that comes later: mode 2027 is part of what it is shown first.
test('mode 2027 alone decides, and is there again when attached anew', async () => {
  await spawn('thumb');
  const c = await context();
  const page = await open(c);
  await show(page, 'thumb');
  await shows(page, /^\$$/);
  await page.keyboard.type('echo raw\n');
  await hasPageSize(page, 'thumb');
  await shows(page, /^raw$/);
  let n = 0;
  // thumb prints U+1F44D and U+1F3FD and returns the column of what stands behind them, in
  // the next row.
  const thumb = async (mode) => {
    const bar = new RegExp(`^ *\\|${++n}$`);
    await page.keyboard.type(`printf '${mode}\\xf0\\x9f\\x91\\x8d\\xf0\\x9f\\x8f\\xbd\\eD|${n}\\n'\n`);
    await shows(page, bar);
    const shown = (all) => all.find((r) => bar.test(r.trimEnd())).indexOf('|');
    assert.equal(shown(await rows(page)), shown((await cli('screen', 'thumb')).split('\n')), 'the column of the page, and of the core');
    return shown(await rows(page));
  };
  const anew = async () => {
    await page.reload();
    await page.waitForSelector('.pane.active[data-phase="live"]');
    await shows(page, new RegExp(`^ *\\|${n}$`));
  };
  const columns = { first: await thumb('') };
  await anew();
  columns['first, attached anew'] = await thumb('');
  columns.on = await thumb('\\e[?2027h');
  await anew();
  columns['on, attached anew'] = await thumb('');
  columns.off = await thumb('\\e[?2027l');
  await anew();
  columns['off, attached anew'] = await thumb('');
  assert.deepEqual(columns, { first: 4, 'first, attached anew': 4, on: 2, 'on, attached anew': 2, off: 4, 'off, attached anew': 4 });
  assert.deepEqual(c.wrongs, []);
});
