// A link to look at one session.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { choose, cli, context, eventually, open, picture, rows, show, shows, spawn } from './world.mjs';

const ROWS = '.shared .xterm-rows';

test('who has the link sees the terminal, and cannot type', async () => {
  await spawn('shown', 'stty -echo; echo hello; while read -r l; do echo "got $l"; done');
  await spawn('hidden');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const mine = await open(c);
  await show(mine, 'shown');
  await shows(mine, /^hello$/);
  await choose(mine, 'Share to look…', 'shown');
  await mine.getByRole('button', { name: 'Make a link' }).click();
  await mine.getByText('Copied.').waitFor();
  const url = await mine.locator('dialog input').inputValue();
  assert.equal(await mine.evaluate(() => navigator.clipboard.readText()), url);
  await picture(mine, 'share');
  await mine.keyboard.press('Escape');

  const theirs = await context();
  const page = await theirs.newPage();
  await page.goto(url);
  await shows(page, /^hello$/, ROWS);
  assert.equal(new URL(page.url()).search, '');
  await page.getByText('read only').waitFor();
  assert.equal(await page.locator('.list, .tabs, .keys').count(), 0);
  assert.equal(await page.locator('button').count(), 0);

  await page.click('.shared .screen');
  await page.keyboard.type('not-typed\n');
  await mine.bringToFront();
  await mine.click('.pane.active .screen');
  await mine.keyboard.type('typed\n');
  await shows(mine, /^got typed$/);
  await shows(page, /^got typed$/, ROWS);
  assert.ok(!(await rows(page, ROWS)).some((r) => r.includes('not-typed')));
  await picture(page, 'shared');

  // It may be opened again, and through what happens to the proxy.
  await cli('--handoff');
  await mine.keyboard.type('again\n');
  await shows(page, /^got again$/, ROWS);
  await page.reload();
  await shows(page, /^got again$/, ROWS);

  await cli('kill', 'shown');
  await page.getByText('The session has ended.').waitFor();
  assert.deepEqual([...c.wrongs, ...theirs.wrongs], []);
});

test('a link that has expired says so', async () => {
  await spawn('brief', 'echo here; exec cat');
  // The page must have shown the session before the link expires; on a busy machine a browser takes some seconds to start.
  const url = (await cli('share', 'brief', '--ttl', '15s')).trim().split('\n').find((l) => l.startsWith('http'));
  const c = await context();
  const page = await c.newPage();
  await page.goto(url);
  await shows(page, /^here$/, ROWS);
  await page.getByText('This link is not good any more').first().waitFor();
  await picture(page, 'share-expired');
  const late = await (await context()).newPage();
  const answer = await late.goto(url);
  assert.ok(answer.status() >= 400, `status ${answer.status()}`);
});

test('the page of a link is named by the title that the user has set', async () => {
  await spawn('titled', `read x; printf '\\033]0;of its program\\007'; echo ready; exec cat`);
  await cli('rename', 'titled', 'Release');
  const c = await context();
  const page = await c.newPage();
  await page.goto((await cli('share', 'titled')).trim().split('\n').pop());
  await page.waitForSelector('.shared .xterm-rows');
  await cli('send', 'titled', '--enter', 'x');
  await shows(page, /^ready$/, ROWS); // the title came before it
  assert.equal(await page.locator('h1').innerText(), 'Release');
  assert.match(await page.title(), /^Release/);
  await cli('rename', 'titled', '');
  await page.reload();
  await page.getByRole('heading', { name: 'of its program' }).waitFor();
  assert.deepEqual(c.wrongs, []);
});

test('the page of a link follows the title', async () => {
  await spawn('renamed', `read x; printf '\\033]0;of its program\\007'; exec cat`);
  await spawn('unrelated', 'exec cat');
  const c = await context();
  const page = await c.newPage();
  await page.goto((await cli('share', 'renamed')).trim().split('\n').pop());
  await page.waitForSelector('.shared .xterm-rows');
  await cli('rename', 'unrelated', 'Unrelated');
  await cli('rename', 'renamed', 'Release 2');
  await page.getByRole('heading', { name: 'Release 2' }).waitFor();
  assert.match(await page.title(), /^Release 2/);
  await cli('rename', 'renamed', '');
  await page.getByRole('heading', { name: 'Release 2' }).waitFor({ state: 'detached' });
  await cli('send', 'renamed', '--enter', 'x');
  await page.getByRole('heading', { name: 'of its program' }).waitFor();
  assert.deepEqual(c.wrongs, []);
});

test('the page of a link copies by Ctrl+C', async () => {
  await spawn('copied', 'echo copy-me; exec cat');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await c.newPage();
  await page.goto((await cli('share', 'copied')).trim().split('\n').pop());
  await shows(page, /^copy-me$/, ROWS);
  await page.dblclick('.shared .xterm-screen', { position: { x: 20, y: 8 } });
  await page.keyboard.press('Control+C');
  await eventually('it is copied', async () => (await page.evaluate(() => navigator.clipboard.readText())) === 'copy-me');
  assert.deepEqual(c.wrongs, []);
});

test('a link whose session was forgotten says so', async () => {
  await spawn('forgotten', 'echo here; exec cat');
  const c = await context();
  const page = await c.newPage();
  await page.goto((await cli('share', 'forgotten')).trim().split('\n').pop());
  await shows(page, /^here$/, ROWS);
  await cli('kill', 'forgotten');
  await cli('forget', 'forgotten');
  await page.reload();
  await page.getByText('This link is not good any more').first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Try again' }).count(), 0);
  assert.deepEqual(c.wrongs, []);
});
