// Tabs and panes: which one is shown, and has the focus, when another one is closed or the page is loaded again.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { choose, cli, context, eventually, faults, open, picture, show, shows, spawn } from './world.mjs';

const current = (page) => page.locator('.row.current').getAttribute('data-session');

// forget chooses the action in the menu of a session's row.
async function forget(page, id) {
  const row = page.locator(`.row[data-session="${id}"]`);
  await row.getByText(/^exited/).first().waitFor();
  await choose(page, 'Forget', id);
  await row.waitFor({ state: 'detached' });
}

test('the current tab stays if a tab before it is closed, because its session is forgotten', async () => {
  await spawn('ends-first', 'read x; exit 3');
  await spawn('stays');
  await spawn('other');
  const page = await open(await context());
  for (const id of ['ends-first', 'stays', 'other', 'stays']) await show(page, id);
  await cli('send', 'ends-first', '--enter', 'x');
  await forget(page, 'ends-first');
  await eventually('its tab is closed', async () => (await page.locator('.tab').count()) === 2);
  assert.equal(await current(page), 'stays');
  await page.keyboard.type('echo typed-$((1))\n');
  await cli('wait', 'stays', '--text', 'typed-1', '--timeout', '20s');
});

test('a page that is loaded again shows the tab that was current', async () => {
  for (const id of ['tab-one', 'tab-two', 'tab-three']) await spawn(id);
  const c = await context();
  const page = await open(c);
  for (const id of ['tab-one', 'tab-two', 'tab-three', 'tab-two']) await show(page, id);
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  assert.equal(await current(page), 'tab-two');
  await page.locator('.tab').first().click();
  await eventually('the first tab is current', async () => (await current(page)) === 'tab-one');
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  assert.equal(await current(page), 'tab-one');
  assert.deepEqual(c.wrongs, []);
});

test('a recording is saved if its pane is closed', async () => {
  await spawn('recorded', 'stty -echo; echo ready; while read -r l; do echo "got $l"; done');
  const c = await context();
  const page = await open(c);
  await show(page, 'recorded');
  await shows(page, /^ready$/);
  await choose(page, 'Record');
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  await page.keyboard.type('one\n');
  await shows(page, /^got one$/);
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('Alt+Shift+W')]);
  assert.equal(download.suggestedFilename(), 'recorded.cast');
  assert.match(await readFile(await download.path(), 'utf8'), /ready[^]*got one/);
  assert.deepEqual(c.wrongs, []);
});

test('an action that fails is told to everybody', async () => {
  await spawn('fails', 'echo bye; read x; exit 3');
  await cli('send', 'fails', '--enter', 'x');
  const c = await context();
  const page = await open(c);
  await page.click('.row[data-session="fails"] .open');
  await page.waitForSelector('.pane.active[data-phase="ended"]');
  await choose(page, 'Clear the scrollback');
  const alert = page.locator('.alerts');
  await alert.getByText(/exited/).waitFor();
  const box = await alert.boundingBox();
  assert.ok(box.width > 100 && box.height > 20, `it is ${box.width} by ${box.height} pixels`);
  assert.deepEqual(await faults(page), []);
  await picture(page, 'alert');
  await alert.getByRole('button', { name: 'Close' }).click();
  await alert.waitFor({ state: 'hidden' });
  assert.deepEqual(c.wrongs, []);
});

test('the browser asks before it leaves a page that records, but not to sign out', async () => {
  await spawn('records', 'echo ready; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'records');
  await page.keyboard.type('typed'); // a browser asks only if the user has used the page
  await choose(page, 'Record');
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  const [question] = await Promise.all([page.waitForEvent('dialog'), page.close({ runBeforeUnload: true })]);
  assert.equal(question.type(), 'beforeunload');
  await question.dismiss();
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  const asked = [];
  page.on('dialog', (d) => {
    asked.push(d.type());
    void d.dismiss();
  });
  await page.keyboard.press('Alt+Shift+P');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(asked, []);
  assert.deepEqual(c.wrongs, []);
});

test('a clipboard that the browser refuses is told', async () => {
  await spawn('refused', 'echo ready; exec cat');
  const c = await context({ permissions: [] });
  const page = await open(c);
  await show(page, 'refused');
  await shows(page, /^ready$/);
  await page.evaluate(() => {
    for (const of of ['readText', 'writeText']) navigator.clipboard[of] = () => Promise.reject(new DOMException('refused', 'NotAllowedError'));
  });
  for (const [item, says] of [['Paste', 'Ctrl+Shift+V'], ['Copy the screen', 'write to the clipboard']]) {
    await choose(page, item);
    await page.locator('.alerts').getByText(says).waitFor();
    await page.locator('.alerts').getByRole('button', { name: 'Close' }).click();
  }
  await page.setViewportSize({ width: 500, height: 800 });
  await page.getByRole('button', { name: 'Paste', exact: true }).click();
  await page.locator('.alerts').getByText('Ctrl+Shift+V').waitFor();
  assert.deepEqual(c.wrongs, []);
});

// A browser has no clipboard for a page that is sent without encryption from another machine.
test('a clipboard that the browser does not have is told if a program writes to it', async () => {
  await spawn('writes', 'stty -echo; echo ready; read x; printf "\\033]52;c;Zmlyc3Q=\\007"; exec cat');
  const c = await context();
  await c.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  const page = await open(c);
  await show(page, 'writes');
  await shows(page, /^ready$/);
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Allow' }).click();
  await page.locator('.alerts').getByText('write to the clipboard').waitFor();
  assert.equal(await page.locator('.notice').count(), 0);
  assert.deepEqual(c.wrongs, []);
});

test('a file that is dropped on the page is not opened', async () => {
  await spawn('dropped', 'echo ready; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'dropped');
  await shows(page, /^ready$/);
  const cdp = await c.newCDPSession(page);
  const data = { items: [], files: [import.meta.filename], dragOperationsMask: 1 };
  let opened = 0;
  c.on('page', () => opened++);
  for (const where of ['.list', '.pane.active .xterm-screen']) {
    const { x, y } = await page.locator(where).boundingBox();
    for (const type of ['dragEnter', 'dragOver', 'drop']) await cdp.send('Input.dispatchDragEvent', { type, x: x + 40, y: y + 100, data });
  }
  await (await c.newPage()).close(); // it would come after them
  assert.equal(opened, 1);
  await page.keyboard.type('here\n');
  await shows(page, /^here$/);
  assert.deepEqual(c.wrongs, []);
});

test('an open menu stays in the window when its size changes', async () => {
  await spawn('turns');
  const c = await context();
  const page = await open(c);
  await show(page, 'turns');
  await page.getByRole('button', { name: 'Actions for this session' }).click();
  await page.setViewportSize({ width: 500, height: 700 });
  await eventually('the menu is inside', async () => {
    const { x, y, width, height } = await page.locator('.menu').boundingBox();
    return x >= 0 && x + width <= 500 && y >= 0 && y + height <= 700;
  });
  assert.equal(await page.getByRole('menuitem').first().evaluate((e) => e === document.activeElement), true);
  await page.keyboard.press('Escape');
  await page.locator('.menu').waitFor({ state: 'detached' });
  assert.deepEqual(c.wrongs, []);
});

test('a key that is held down closes one pane, and splits once', async () => {
  await spawn('held');
  const c = await context();
  const page = await open(c);
  await show(page, 'held');
  const hold = async (key) => {
    await page.keyboard.down('Alt');
    await page.keyboard.down('Shift');
    for (let i = 0; i < 4; i++) await page.keyboard.down(key); // all but the first are repeats
    for (const k of [key, 'Shift', 'Alt']) await page.keyboard.up(k);
  };
  const panes = page.locator('.pane:not([hidden])');
  await hold('KeyD');
  assert.equal(await panes.count(), 2);
  await page.keyboard.press('Alt+Shift+KeyD');
  await hold('KeyW');
  assert.equal(await panes.count(), 2);
  await page.keyboard.press('Alt+Shift+KeyD');
  await hold('ArrowLeft'); // to the first pane
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await page.keyboard.type('echo typed-$((1))\n');
  await cli('wait', 'held', '--text', 'typed-1', '--timeout', '20s');
  assert.equal((await cli('screen', 'held')).split('\n')[0], '$ echo typed-$((1))', 'no repeat reaches the program');
  assert.deepEqual(c.wrongs, []);
});

test('a drag of a divider continues while the panes are drawn again', async () => {
  await spawn('dragged');
  const c = await context();
  const page = await open(c);
  await show(page, 'dragged');
  await page.keyboard.press('Alt+Shift+D');
  const { x, y, width, height } = await page.locator('.divider').boundingBox();
  const at = x + width / 2;
  await page.mouse.move(at, y + height / 2);
  await page.mouse.down();
  await page.mouse.move(at - 50, y + height / 2);
  await page.keyboard.press('Alt+Shift+ArrowLeft'); // activates the other pane, which draws all
  await page.mouse.move(at - 100, y + height / 2, { steps: 2 });
  await page.mouse.up();
  const now = await page.locator('.divider').boundingBox();
  assert.ok(Math.abs(at - 100 - (now.x + now.width / 2)) < 2, `it went from ${at} to ${now.x + now.width / 2}`);
  await page.mouse.move(at, y + height / 2);
  assert.equal((await page.locator('.divider').boundingBox()).x, now.x, 'the drag has ended');
  assert.deepEqual(c.wrongs, []);
});

test('a pane that is visible has no news', async () => {
  await spawn('beside-1', 'read x; printf "\\a"; echo rung; exec cat');
  await spawn('beside-2');
  const c = await context();
  const page = await open(c);
  await show(page, 'beside-1');
  await page.keyboard.press('Alt+Shift+D');
  await show(page, 'beside-2');
  const told = page.evaluate(() => new Promise((done) => new MutationObserver(() => {
    if (document.title.startsWith('•')) done('news');
    if (document.querySelector('.row[data-session="marker"]')) done('none');
  }).observe(document, { subtree: true, childList: true, characterData: true })));
  await cli('send', 'beside-1', '--enter', 'x');
  await cli('wait', 'beside-1', '--text', 'rung');
  await spawn('marker'); // its event comes after that of the bell
  assert.equal(await told, 'none');
  assert.deepEqual(c.wrongs, []);
});

test('a session that another client has forgotten is not offered to be started again', async () => {
  await spawn('gone', 'echo last words; read x; exit 3');
  const c = await context();
  const page = await open(c);
  await show(page, 'gone');
  await shows(page, /^last words$/);
  await page.keyboard.press('Enter');
  const notice = page.locator('.pane.active .notice[data-kind="end"]');
  await notice.getByText('Exited 3.').waitFor();
  await cli('forget', 'gone');
  await notice.getByText('forgotten').waitFor();
  await shows(page, /^last words$/);
  assert.deepEqual(await notice.getByRole('button').allInnerTexts(), ['Close the pane']);
  await picture(page, 'forgotten');
  await notice.getByRole('button').click();
  await page.waitForSelector('.pane.active .empty');
  assert.deepEqual(c.wrongs, []);
});

test('a recording that is full is told, and saved by its button', async () => {
  const c = await context();
  await spawn('full', 'stty -echo; echo ready; while read -r l; do echo "got $l"; done');
  const page = await open(c);
  await show(page, 'full');
  await shows(page, /^ready$/);
  await page.evaluate(() => { // the events of the recording are so large that some lines fill it
    const { stringify } = JSON;
    JSON.stringify = (of) => stringify(Array.isArray(of) && of[1] === 'o' ? [...of, ' '.repeat(20 << 20)] : of);
  });
  await choose(page, 'Record');
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  for (const line of ['one', 'two', 'three']) {
    await page.keyboard.type(`${line}\n`);
    await shows(page, new RegExp(`^got ${line}$`));
  }
  const notice = page.locator('.pane.active .notice[data-kind="recording"]');
  await notice.getByText('64 MiB').waitFor();
  await picture(page, 'recording-full');
  const [download] = await Promise.all([page.waitForEvent('download'), notice.getByRole('button', { name: 'Save' }).click()]);
  const text = await readFile(await download.path(), 'utf8');
  assert.match(text, /got two/);
  assert.doesNotMatch(text, /got three/);
  await notice.waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('tab', { name: /^●/ }).count(), 0);
  assert.deepEqual(c.wrongs, []);
});

// recordsOne starts a recording and prints a line, in a page of a context.
async function recordsOne(c, id) {
  await spawn(id, 'stty -echo; echo ready; while read -r l; do echo "got $l"; done');
  const page = await open(c);
  await show(page, id);
  await shows(page, /^ready$/);
  await choose(page, 'Record');
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  await page.keyboard.type('one\n');
  await shows(page, /^got one$/);
  return page;
}

test('a sign-out saves the recordings of all tabs', async () => {
  const c = await context();
  const pages = [await recordsOne(c, 'signs-1'), await recordsOne(c, 'signs-2')];
  const saved = pages.map((page) => page.waitForEvent('download'));
  await pages[0].keyboard.press('Alt+Shift+P');
  await pages[0].route('**/v1/sign-out', (route) => route.abort(), { times: 1 });
  await pages[0].getByRole('button', { name: 'Sign out' }).click();
  await pages[0].getByText('This browser is still signed in').waitFor();
  await pages[0].getByRole('button', { name: 'Sign out' }).click();
  for (const [i, page] of pages.entries()) {
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    const download = await saved[i];
    assert.equal(download.suggestedFilename(), `signs-${i + 1}.cast`);
    assert.match(await readFile(await download.path(), 'utf8'), /ready[^]*got one/);
  }
  await pages[0].keyboard.press('Alt+Shift+N');
  assert.equal(await pages[0].locator('dialog').count(), 0);
  assert.deepEqual(c.wrongs, []);
});

test('a click reaches a tab and a choice whose title changes meanwhile', async () => {
  const others = JSON.parse(await cli('ls', '--json')).filter((s) => s.state === 'running').map((s) => s.id);
  if (others.length > 0) await cli('kill', ...others); // a choice has twelve sessions
  await spawn('spins', 'i=0; while :; do i=$((i+1)); printf "\\033]0;turn $i\\007"; sleep 0.02; done');
  await spawn('rests');
  const c = await context();
  const page = await open(c);
  for (const id of ['spins', 'rests']) await show(page, id);
  const press = async (at) => {
    await at.hover();
    await page.mouse.down();
    const said = await at.innerText();
    await eventually('the title has changed', async () => (await at.innerText()) !== said);
    await page.mouse.up();
    await eventually('it is shown', async () => (await current(page)) === 'spins');
  };
  await press(page.getByRole('tab', { name: 'turn' }));
  await page.keyboard.press('Alt+Shift+W');
  await page.keyboard.press('Alt+Shift+D');
  await press(page.locator('.pane.active .choices button', { hasText: 'turn' }));
  await cli('kill', 'spins');
  assert.deepEqual(c.wrongs, []);
});

test('the Ctrl of the key bar is that of the terminal that is shown', async () => {
  for (const id of ['ctrl-a', 'ctrl-b']) await spawn(id, 'stty raw -echo; echo ready; exec cat -v');
  const c = await context({ viewport: { width: 500, height: 700 } });
  const page = await open(c);
  for (const id of ['ctrl-a', 'ctrl-b', 'ctrl-a']) {
    await page.getByRole('button', { name: 'Sessions', exact: true }).click();
    await show(page, id);
  }
  const pressed = () => page.getByRole('button', { name: 'Ctrl, for the next key' }).getAttribute('aria-pressed');
  await page.getByRole('button', { name: 'Ctrl, for the next key' }).click();
  assert.equal(await pressed(), 'true');
  await page.locator('.tab').last().click();
  assert.equal(await pressed(), 'false');
  await page.locator('.tab').first().click();
  assert.equal(await pressed(), 'true');
  await page.keyboard.type('xx');
  await shows(page, /\^Xx$/);
  assert.equal(await pressed(), 'false');
  assert.deepEqual(c.wrongs, []);
});
