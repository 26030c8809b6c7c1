// Typing, sizes, several views of one session, and who is let in.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';

import { cli, context, eventually, link, open, picture, rows, show, shows, spawn, status } from './world.mjs';

test('a link signs in once, and leaves no secret in the address', async () => {
  const c = await context();
  const page = await c.newPage();
  const url = await link();
  await page.goto(url);
  await page.waitForSelector('.app .list');
  assert.equal(new URL(page.url()).search, '');
  await page.reload();
  await page.waitForSelector('.app .list');

  const other = await (await context()).newPage();
  const used = await other.goto(url);
  assert.ok(used.status() >= 400, `status ${used.status()}`);
  assert.match(await other.innerText('body'), /proxy web/);
  await other.goto(new URL('/', url).href);
  await other.getByText('proxy web').waitFor();
  await picture(other, 'signed-out');
  assert.deepEqual(c.wrongs, []);
});

test('a sign-out holds for all tabs of the browser', async () => {
  const c = await context();
  const pages = [await open(c), await open(c)];
  await pages[0].getByRole('button', { name: 'Settings' }).click();
  await pages[0].getByRole('button', { name: 'Sign out' }).click();
  for (const page of pages) await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.deepEqual(c.wrongs, []);
});

test('a page of another origin is refused', async () => {
  const server = createServer((_, res) => res.setHeader('content-type', 'text/html').end('<!doctype html><title>x</title>'));
  await new Promise((r) => server.listen(0, '127.0.0.1', r));
  try {
    const c = await context();
    await open(c); // so that there is a cookie, which is sent to any port
    const { web } = await status();
    const page = await c.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const got = await page.evaluate((url) => new Promise((done) => {
      const s = new WebSocket(url, 'holdfast.v1');
      s.onopen = () => done('open');
      s.onerror = () => done('refused');
    }), `ws://${web}/v1/api`);
    assert.equal(got, 'refused');
  } finally {
    server.close();
  }
});

test('a line that is too long for the terminal is told, and the terminal goes on', async () => {
  await spawn('long', 'stty -echo; echo ready; read -r l; echo "got ${#l}"; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'long');
  await shows(page, /^ready$/);
  await page.evaluate(() => {
    const paste = new ClipboardEvent('paste', { clipboardData: new DataTransfer(), bubbles: true });
    paste.clipboardData.setData('text/plain', 'x'.repeat(6000));
    document.activeElement.dispatchEvent(paste);
  });
  await page.getByText('the terminal is in line mode').waitFor();
  assert.equal(await page.getAttribute('.pane.active', 'data-phase'), 'live');
  assert.equal(await page.getByRole('button', { name: 'Try again' }).count(), 0);
  await page.locator('.notice').getByRole('button', { name: 'Close' }).click();
  await page.getByText('the terminal is in line mode').waitFor({ state: 'detached' });
  await page.keyboard.type('\nnext\n');
  await shows(page, /^got 409\d$/);
  await shows(page, /^next$/);
  assert.deepEqual(c.wrongs, []);
});

test('what is typed is echoed, and a command prints', async () => {
  await spawn('typing');
  const c = await context();
  const page = await open(c);
  await show(page, 'typing');
  await shows(page, /^\$/);
  await page.keyboard.type('echo $((6*7)) äöü 日本 ✓\n');
  await shows(page, /^42 äöü 日本 ✓$/);
  await picture(page, 'terminal');
  assert.deepEqual(c.wrongs, []);
});

test('the size follows the window', async () => {
  await spawn('sizes');
  const c = await context();
  const page = await open(c);
  await show(page, 'sizes');
  const size = async (mark) => {
    await page.keyboard.type(`echo ${mark}\\ $(stty size)\n`);
    await shows(page, new RegExp(`^${mark} \\d+ \\d+$`));
    return (await rows(page)).find((r) => r.startsWith(`${mark} `)).split(' ').slice(1).map(Number);
  };
  const [high, wide] = await size('first');
  assert.equal(high, (await rows(page)).length);
  await page.setViewportSize({ width: 900, height: 500 });
  await eventually('the terminal is smaller', async () => (await rows(page)).length < high);
  const want = async () => (await cli('ls', '--json').then(JSON.parse)).find((s) => s.id === 'sizes').size;
  await eventually('the session is as the terminal', async () => (await want()).rows === (await rows(page)).length);
  const [lower, narrower] = await size('second');
  assert.ok(lower < high && narrower < wide, `${lower}×${narrower} of ${high}×${wide}`);
  assert.equal(lower, (await rows(page)).length);
});

// demand: B9
test('the last row is whole at every height, and the edge is the terminal’s', async () => {
  await spawn('heights', 'echo ready; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'heights');
  await shows(page, /^ready$/);
  const cut = [];
  for (let height = 600; height < 618; height++) {
    await page.setViewportSize({ width: 900 + height % 7, height });
    // The fit comes with the next frame that is drawn, and the rows with the one behind it, or later on a busy machine.
    const over = await page.evaluate((limit) => new Promise((done) => {
      const end = performance.now() + limit;
      const below = () => document.querySelector('.pane.active .xterm-screen').getBoundingClientRect().bottom - document.querySelector('.stage').getBoundingClientRect().bottom;
      const wait = (n) => n > 0 || (below() > 0 && performance.now() < end) ? requestAnimationFrame(() => wait(n - 1)) : done(below());
      wait(4);
    }), 5000);
    if (over > 0) cut.push(`${over} px at ${height}`);
  }
  assert.deepEqual(cut, []);
  const stage = await page.locator('.stage').boundingBox();
  for (const [dx, dy] of [[3, 40], [40, 3], [3, stage.height - 2]]) {
    await page.mouse.click(stage.x + dx, stage.y + dy);
    assert.match(await page.evaluate(() => document.activeElement.className), /xterm-helper/, `after a click at ${dx}, ${dy}`);
  }
  await page.mouse.move(stage.x + 2, stage.y + 14);
  await page.mouse.down();
  await page.mouse.move(stage.x + 200, stage.y + 14, { steps: 4 });
  await page.mouse.up();
  await page.keyboard.press('Control+Shift+C');
  await page.locator('.pane.active .xterm-selection div').first().waitFor(); // a drag from the edge selects, which the next frame draws
  assert.deepEqual(c.wrongs, []);
});

test('two windows of different sizes show one session', async () => {
  await spawn('both');
  const c = await context();
  const one = await open(c);
  await show(one, 'both');
  const other = await c.newPage();
  await other.setViewportSize({ width: 800, height: 500 });
  await other.goto(new URL('/', one.url()).href);
  await show(other, 'both');
  await one.bringToFront();
  await one.keyboard.type('echo from-$((1+0))\n');
  await shows(one, /^from-1$/);
  await shows(other, /^from-1$/);
  await other.bringToFront();
  await other.keyboard.type('echo from-$((1+1))\n');
  await shows(other, /^from-2$/);
  await shows(one, /^from-2$/);
  // Whoever typed last decides; each is shown it at its own size.
  await eventually('the size is that of who typed', async () => (await cli('ls', '--json').then(JSON.parse)).find((s) => s.id === 'both').size.rows === (await rows(other)).length);
  assert.ok((await rows(one)).length > (await rows(other)).length);
  assert.deepEqual(c.wrongs, []);
});

test('a split shows two sessions, and the keyboard goes from one to the other', async () => {
  await spawn('left');
  await spawn('right');
  const c = await context();
  const page = await open(c);
  await show(page, 'left');
  await page.keyboard.press('Alt+Shift+D');
  await page.waitForSelector('.pane.active .empty');
  await show(page, 'right');
  await page.keyboard.type('echo at-$((2))\n');
  await shows(page, /^at-2$/);
  await page.keyboard.press('Alt+Shift+ArrowLeft');
  await page.keyboard.type('echo at-$((1))\n');
  await shows(page, /^at-1$/);
  assert.equal(await page.locator('.pane:visible').count(), 2);
  await picture(page, 'split');
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  assert.equal(await page.locator('.pane:visible').count(), 2);
  await shows(page, /^at-1$/);
  await page.keyboard.press('Alt+Shift+W');
  await eventually('one pane is left', async () => (await page.locator('.pane:visible').count()) === 1);
  await shows(page, /^at-2$/);
  assert.deepEqual(c.wrongs, []);
});

// A paste that ends itself would type what stands behind its end. Programs that take
// pastes as such (mode 2004) must never see an end that the text itself contains.
test('a paste contains no controls, however it arrives', async () => {
  await spawn('pastes');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await open(c);
  await show(page, 'pastes');
  await shows(page, /^\$/);
  const evil = (n) => `echo a${n}\x1b[201~\u009b201~\x7f\recho EXECUTED${n}\r`;
  const arrives = {
    'a paste event': (text) => page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', text);
      document.activeElement.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
    }, text),
    'a paste event of the terminal itself, as of a middle click': (text) => page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', text);
      document.querySelector('.pane.active .xterm').dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
    }, text),
    'a drop': (text) => page.evaluate((text) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData('text/plain', text);
      document.querySelector('.pane.active .xterm-screen').dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
    }, text),
    'the clipboard': async (text) => {
      await page.evaluate((text) => navigator.clipboard.writeText(text), text);
      await page.keyboard.press('Control+Shift+V');
    },
  };
  let n = 0;
  for (const [how, arrive] of Object.entries(arrives)) {
    n++;
    await arrive(evil(n));
    await shows(page, new RegExp(`echo a${n}\\[201~201~$`)).catch((err) => { throw new Error(`${how}: ${err.message}`); });
    // Ctrl+U is a key, so bash reads it in its order. Ctrl+C is a signal; if the next key arrives
    // while bash handles it, bash 5.2 drops that key and keeps the line.
    await page.keyboard.press('Control+U');
    await page.keyboard.type(`echo after-$((${n}))\n`);
    await shows(page, new RegExp(`^after-${n}$`));
    assert.ok(!(await rows(page)).some((r) => /^EXECUTED/.test(r)), how);
    // Mode 2004 is on again with the next prompt: before it a line end does what it says.
    await eventually(`a prompt after ${how}`, async () => (await rows(page)).filter(Boolean).at(-1) === '$');
  }
  // Tabs and line ends stay: a program without mode 2004 gets them as if they were typed.
  await page.keyboard.type('stty -echo; echo listens; exec cat -A\n');
  await shows(page, /^listens$/);
  await arrives['a paste event']('one\ttwo\r\nthree\nfour\r');
  await shows(page, /^one\^Itwo\$$/);
  await shows(page, /^four\$$/);
  assert.deepEqual(c.wrongs, []);
});

// A person types as soon as the terminal is there to be seen. slow has each answer of
// a kind wait in the proxy's stead, until what was typed has been typed.
test('what is typed before a session is attached arrives, in order', async () => {
  const echoes = 'stty -echo; echo ready; while read -r l; do echo "got $l"; done';
  await spawn('chosen', echoes);
  const c = await context();
  const page = await c.newPage();
  const held = [];
  let holds = true;
  await page.routeWebSocket(/\/v1\/api$/, (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => server.send(m));
    server.onMessage((m) => {
      const type = typeof m === 'string' ? JSON.parse(m).type : '';
      if (holds && /^(attached|spawned)$/.test(type) || held.some((h) => h.ws === ws)) held.push({ ws, m });
      else ws.send(m);
    });
  });
  const release = () => {
    holds = false;
    for (const { ws, m } of held.splice(0)) ws.send(m);
  };
  await page.goto(await link());
  await page.waitForSelector('.app');

  await page.click('.row[data-session="chosen"] .open');
  await page.keyboard.type('one two\n');
  await eventually('the answer waits', () => held.length > 0);
  await page.keyboard.type('three\n');
  release();
  await shows(page, /^got three$/);
  assert.deepEqual((await rows(page)).filter(Boolean), ['ready', 'got one two', 'got three']);

  holds = true;
  await page.keyboard.press('Alt+Shift+N');
  await page.keyboard.type(`${echoes}\n`);
  await page.keyboard.type('first\n');
  await eventually('the answer waits', () => held.length > 0);
  await page.keyboard.type('second\n');
  release();
  await shows(page, /^got second$/);
  assert.deepEqual((await rows(page)).filter((r) => /^got/.test(r)), ['got first', 'got second']);

  // A start that fails comes back with the dialog, and what was said in it.
  await page.keyboard.press('Alt+Shift+N');
  await page.keyboard.type('/does/not/exist\n');
  await page.locator('dialog[open] .error', { hasText: /exist/ }).waitFor();
  assert.equal(await page.inputValue('dialog [name="command"]'), '/does/not/exist');
  assert.equal(await page.locator('[role="tab"]').count(), 2);
  await page.keyboard.press('Escape');
  assert.deepEqual(c.wrongs, []);
});
