// How a session's end looks, and what can be done with it then.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, eventually, link, open, picture, rows, show, shows, spawn, status } from './world.mjs';

// tail are the rows of the terminal, without the empty ones at its end.
async function tail(page) {
  const all = await rows(page);
  return all.slice(0, all.findLastIndex((r) => r) + 1);
}

// A session that prints something and ends when it is given a line.
const ends = (code) => `stty -echo; echo before; read x; echo "last words"; exit ${code}`;

// demand: B9
test('the exit text, with the last of the last lines', async () => {
  await spawn('exits', ends(3));
  const c = await context();
  const page = await open(c);
  await show(page, 'exits');
  await shows(page, /^before$/);
  await page.keyboard.press('Enter');
  await shows(page, /^\[process exited with code 3\]$/);
  await page.waitForSelector('.pane.active[data-phase="ended"]');
  assert.deepEqual(await tail(page), ['before', 'last words', '', '[process exited with code 3]', 'last words']);
  const dim = await page.$eval('.pane.active .xterm-rows', (e) => [...e.querySelectorAll('span')].some((s) => s.classList.contains('xterm-dim') || /process exited/.test(s.textContent) && getComputedStyle(s).color !== getComputedStyle(e).color));
  assert.ok(dim, 'the text is dim');
  await page.getByText('Exited 3.').waitFor();
  await page.waitForSelector('.row[data-session="exits"][data-state="failed"]');
  await picture(page, 'ended');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Start again');

  // Its past can be looked at again.
  await page.keyboard.press('Alt+Shift+W');
  await page.click('.row[data-session="exits"] .open');
  await page.waitForSelector('.pane.active[data-phase="ended"]');
  await shows(page, /^last words$/);
  await shows(page, /^\[process exited with code 3\]$/);

  await page.getByRole('button', { name: 'Start again' }).click();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await page.keyboard.press('Enter');
  await shows(page, /^\[process exited with code 3\]$/);
  await page.getByRole('button', { name: 'Forget', exact: true }).click();
  await eventually('the row is gone', async () => (await page.locator('.row[data-session="exits"]').count()) === 0);
  assert.deepEqual(c.wrongs, []);
});

// A tab that was never visible has not attached yet, and the visible one is attaching.
test('a session that is started again before its terminal is attached is offered', async () => {
  const ids = ['shows', 'waits'];
  await Promise.all(ids.map((id) => spawn(id, 'echo "$$"; exec cat')));
  const c = await context();
  const page = await open(c);
  await page.click('.row[data-session="shows"] .open');
  await page.click('.row[data-session="waits"] .open');
  await page.waitForSelector('.pane.active[data-phase="live"]');
  let release;
  const held = new Promise((done) => (release = done));
  await page.routeWebSocket('**/v1/api', (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => {
      if (String(m).includes('"type":"attach"')) void held.then(() => server.send(m));
      else server.send(m);
    });
  });
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="joining"]');
  await Promise.all(ids.map((id) => cli('kill', id)));
  await Promise.all(ids.map((id) => cli('reopen', '--detach', id)));
  release();
  for (let i = 0; i < ids.length; i++) {
    await page.click(`.tab >> nth=${i}`);
    await page.locator('.pane.active').getByText('was started again').waitFor();
    await page.locator('.pane.active').getByRole('button', { name: 'Show the new one' }).click();
    await page.waitForSelector('.pane.active[data-phase="live"]');
  }
  assert.deepEqual(c.wrongs, []);
});

test('an ended session that is started again while its last screen is requested is offered', async () => {
  await spawn('back', 'echo here; exec cat');
  await cli('kill', 'back');
  const c = await context();
  const page = await c.newPage();
  let asked = 0;
  let release;
  const held = new Promise((done) => (release = done));
  await page.routeWebSocket('**/v1/api', (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => {
      if (!/"type":"(info|screen)"/.test(String(m))) return server.send(m);
      asked++;
      void held.then(() => server.send(m));
    });
  });
  await page.goto(await link());
  await page.click('.row[data-session="back"][data-state="ended"] .open');
  await eventually('the last screen is requested', () => asked === 2);
  await cli('reopen', '--detach', 'back');
  release();
  await page.locator('.pane.active').getByText('was started again').waitFor();
  assert.deepEqual((await rows(page)).filter((r) => r.includes('process exited')), []);
  assert.deepEqual(c.wrongs, []);
});

// demand: B9
test('the text of a session that timed out', async () => {
  const c = await context();
  const page = await open(c);
  await cli('new', '--detach', '--id', 'idle', '--label', 'idle_timeout=2s', '--', '/bin/sh', '-c', 'echo waiting; exec sleep 1000');
  await page.click('.row[data-session="idle"] .open'); // The session may have ended before the page shows it.
  await shows(page, /^\[process timed out and was killed\]$/);
  assert.deepEqual(await tail(page), ['waiting', '', '[process timed out and was killed]', 'waiting']);
});

test('the question whether to end a session is about one instance of it', async () => {
  await spawn('again', 'exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'again');
  await page.keyboard.press('Alt+Shift+X');
  const dialog = page.locator('dialog[open]');
  await dialog.waitFor();
  await cli('kill', 'again');
  await cli('wait', 'again').catch(() => undefined); // it exits with the code of the session
  await cli('reopen', '-d', 'again');
  await dialog.getByRole('button', { name: 'End session' }).click();
  await dialog.getByText('started again').waitFor();
  assert.equal(JSON.parse(await cli('ls', '--json')).find((s) => s.id === 'again').state, 'running');
  assert.deepEqual(c.wrongs, []);
});

test('to end a session is asked twice for', async () => {
  await spawn('mine');
  const c = await context();
  const page = await open(c);
  await show(page, 'mine');
  await page.keyboard.press('Alt+Shift+X');
  const dialog = page.getByRole('dialog');
  await dialog.getByText('mine').waitFor();
  await picture(page, 'kill');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.match(await cli('ls'), /mine +running/);
  await page.keyboard.press('Alt+Shift+X');
  await page.getByRole('dialog').getByRole('button', { name: 'End session' }).click();
  await page.waitForSelector('.row[data-session="mine"][data-state="ended"]');
});

test('a session is not ended later if there is no connection', async () => {
  await spawn('later', 'echo here; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'later');
  await shows(page, /^here$/);
  await page.keyboard.press('Alt+Shift+X');
  const dialog = page.locator('dialog[open]');
  await dialog.waitFor();
  process.kill((await status()).proxy.pid, 'SIGKILL');
  await page.waitForSelector('.connection[data-state="reconnecting"]');
  await dialog.getByRole('button', { name: 'End session' }).click();
  await dialog.getByText('There is no connection').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await page.keyboard.press('Alt+Shift+R');
  await page.keyboard.type('is there\n'); // it waits for the connection
  await cli('web', '--no-open');
  await page.locator('.row', { hasText: 'is there' }).waitFor();
  assert.equal(JSON.parse(await cli('ls', '--json')).find((s) => s.id === 'later').state, 'running');
  assert.deepEqual(c.wrongs, []);
});

test('a request whose dialog was closed may fail', async () => {
  await spawn('closed', 'echo here; exec cat');
  const c = await context();
  const page = await c.newPage();
  let fail;
  await page.routeWebSocket('**/v1/api', (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => {
      const asked = typeof m === 'string' ? JSON.parse(m) : {};
      if (asked.type !== 'terminate') return server.send(m);
      fail = () => ws.send(JSON.stringify({ type: 'error', request_id: asked.request_id, code: 'internal', message: 'too late' }));
    });
  });
  await page.goto(await link());
  await show(page, 'closed');
  for (const [button, told] of [['Close', 0], [undefined, 1]]) {
    await page.keyboard.press('Alt+Shift+X');
    await page.getByRole('button', { name: 'End session' }).click();
    await eventually('it is requested', () => fail);
    if (button) await page.getByRole('button', { name: button, exact: true }).click();
    fail();
    fail = undefined;
    if (told) await page.locator('dialog').getByText('too late').waitFor();
  }
  assert.deepEqual(c.wrongs, []);
});

test('a session that two clients start again at once is offered to the second', async () => {
  await spawn('twice', 'echo here; exec cat');
  await cli('kill', 'twice');
  const c = await context();
  const page = await c.newPage();
  let release;
  await page.routeWebSocket('**/v1/api', (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => {
      if (String(m).includes('"type":"reopen"')) release = () => server.send(m);
      else server.send(m);
    });
  });
  await page.goto(await link());
  await page.click('.row[data-session="twice"] .open');
  await page.getByRole('button', { name: 'Start again' }).click();
  await eventually('it is requested', () => release);
  await cli('reopen', '--detach', 'twice');
  release();
  const offer = page.getByRole('button', { name: 'Show the new one' });
  await offer.waitFor();
  assert.equal(await page.locator('.pane.active .notice').count(), 1);
  await offer.click();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  assert.deepEqual(c.wrongs, []);
});
