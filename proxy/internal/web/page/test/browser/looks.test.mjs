// The keyboard alone, a phone, both themes, the clipboard, and what else a person meets.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { choose, cli, context, eventually, faults, link, open, picture, rows, show, shows, spawn } from './world.mjs';

test('everything by keyboard', async () => {
  await spawn('first');
  const c = await context();
  const page = await open(c);
  const focus = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.className ?? '');
  await page.waitForSelector('.row');

  await page.keyboard.press('Alt+Shift+N');
  await page.keyboard.type("printf 'from %s' dialog; exec cat");
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  await page.keyboard.type('by-hand');
  await page.keyboard.press('Enter');
  await shows(page, /^from dialog$/);
  await page.keyboard.type('typed\n');
  await shows(page, /^from dialogtyped$/);

  // The terminal keeps Tab; this is how to leave it.
  await page.keyboard.press('Alt+Shift+L');
  assert.match(await focus(), /open/);
  await page.keyboard.press('Home');
  const row = () => page.evaluate(() => document.activeElement?.closest('.row')?.dataset.session);
  while ((await row()) !== 'first') await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.pane.active[aria-label^="Terminal of env"]');
  await page.keyboard.type('echo at-$((1))\n');
  await shows(page, /^at-1$/);

  await page.keyboard.press('Alt+Shift+F');
  await page.keyboard.type('at-1');
  await eventually('it is found', async () => /of/.test(await page.innerText('.find .count')));
  await page.keyboard.press('Escape');
  await page.keyboard.type('echo back-$((2))\n');
  await shows(page, /^back-2$/);

  await page.keyboard.press('Alt+Shift+H');
  await page.keyboard.type('back-\\d');
  await page.keyboard.press('Enter');
  await page.locator('.matches button').first().waitFor();
  await picture(page, 'history');
  await page.keyboard.press('Escape');

  await page.keyboard.press('Alt+Shift+R');
  await page.keyboard.type('My own name');
  await page.keyboard.press('Enter');
  await page.locator('.row .name', { hasText: 'My own name' }).waitFor();
  await page.locator('[role="tab"]', { hasText: 'My own name' }).waitFor();

  const small = (await rows(page)).length;
  await page.keyboard.press('Alt+Shift+Equal');
  await page.keyboard.press('Alt+Shift+Equal');
  await page.keyboard.press('Alt+Shift+Equal');
  await eventually('the text is larger', async () => (await rows(page)).length < small);
  await page.keyboard.press('Alt+Shift+Digit0');
  await eventually('the text is as it was', async () => (await rows(page)).length === small);

  for (const [keys, name] of [['Alt+Shift+Slash', 'Keyboard'], ['Alt+Shift+P', 'Settings']]) {
    await page.keyboard.press(keys);
    await page.getByRole('dialog', { name }).waitFor();
    await picture(page, name.toLowerCase());
    await page.keyboard.press('Escape');
    await eventually('the focus is back in the terminal', async () => /xterm-helper/.test(await page.evaluate(() => document.activeElement?.className ?? '')));
  }

  // What Tab reaches has a name, and its focus is seen.
  await page.keyboard.press('Alt+Shift+L');
  const seen = new Set();
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      return { terminal: e?.classList.contains('xterm-helper-textarea'), name: e?.getAttribute('aria-label') || e?.textContent, outline: e && getComputedStyle(e).outlineStyle };
    });
    if (at.terminal) break;
    assert.ok(at.name, `a control without a name after ${[...seen].at(-1)}`);
    assert.notEqual(at.outline, 'none', `the focus of ${at.name} is not seen`);
    seen.add(at.name);
  }
  for (const name of ['Keyboard', 'Settings', 'New tab', 'Split below', 'Find']) assert.ok(seen.has(name), `Tab does not reach ${name}, but ${[...seen].join(", ")}`);
  assert.deepEqual(c.wrongs, []);
});

test('a session starts whatever the store holds, and if it is full', async () => {
  const c = await context();
  const page = await open(c);
  for (const [id, odd] of [['odd-1', '{"no": "list"}'], ['odd-2', '[1, "cat", null]'], ['odd-3', 'no JSON']]) {
    await page.evaluate((value) => {
      localStorage.clear();
      localStorage.setItem('holdfast.commands', value);
      for (let n = 5 << 20; n > 0;) {
        try {
          localStorage.setItem(`filler-${localStorage.length}`, 'x'.repeat(n));
        } catch {
          n >>= 1;
        }
      }
    }, odd);
    await page.keyboard.press('Alt+Shift+N');
    await page.keyboard.type(`echo ${id}; exec cat`);
    await page.keyboard.press('Enter');
    await shows(page, new RegExp(`^${id}$`));
  }
  assert.deepEqual(c.wrongs, []);
});

test('at the width of a phone', async () => {
  await spawn('phone');
  const c = await context({ viewport: { width: 390, height: 700 }, hasTouch: true, isMobile: true });
  const page = await open(c);
  await page.waitForSelector('.app');
  await page.getByRole('button', { name: 'Sessions' }).click();
  await page.waitForSelector('.app.drawer');
  await page.waitForSelector('.row[data-session="phone"]');
  await picture(page, 'phone-list');
  await show(page, 'phone');
  assert.equal(await page.locator('.app.drawer').count(), 0);
  await page.keyboard.type('echo $((6*7)); sleep 1000\n');
  await shows(page, /^42$/);
  await page.getByRole('button', { name: 'Ctrl, for the next key' }).click();
  await page.keyboard.type('c');
  await page.keyboard.type('echo after-$((1))\n');
  await shows(page, /^after-1$/);
  await page.getByRole('button', { name: 'Up', exact: true }).click();
  await page.keyboard.type('0\n'); // after-$((1))0
  await shows(page, /^after-10$/);
  await picture(page, 'phone');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  assert.deepEqual(c.wrongs, []);
});

// least is the smallest contrast of a text on the page to what is behind it.
const least = (page) => page.evaluate(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].reduce((sum, v, i) => sum + [0.2126, 0.7152, 0.0722][i] * (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4), 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255];
  };
  let worst = [99, ''];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || e.closest('.xterm, button:disabled, datalist') || !e.checkVisibility({ visibilityProperty: true })) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, walk.currentNode.data];
  }
  return worst;
});

for (const theme of ['light', 'dark']) {
  test(`the ${theme} theme has contrast`, async () => {
    await spawn(`in-${theme}`);
    const c = await context({ colorScheme: theme });
    const page = await open(c);
    await show(page, `in-${theme}`);
    await shows(page, /^\$/);
    await page.keyboard.type('for i in 1 2 3 4 5 6; do printf "\\033[3${i}m colour $i \\033[9${i}m bright $i \\033[0m\\n"; done\n');
    await shows(page, /^ colour 6/);
    assert.equal(await page.getAttribute('html', 'data-theme'), theme);
    for (const [name, keys] of [['', undefined], ['new', 'Alt+Shift+N'], ['help', 'Alt+Shift+Slash'], ['preferences', 'Alt+Shift+P']]) {
      if (keys) await page.keyboard.press(keys);
      const [ratio, text] = await least(page);
      assert.ok(ratio >= 4.5, `${ratio.toFixed(2)} to 1: ${text}`);
      await picture(page, ['theme', theme, name].filter(Boolean).join('-'));
      if (keys) await page.keyboard.press('Escape');
      // The browser closes a dialog at once, but tells the page later, which then removes the dialog.
      await page.locator('dialog').waitFor({ state: 'detached' });
    }
    // The choice is remembered, and goes before the system's.
    const other = theme === 'dark' ? 'light' : 'dark';
    await page.keyboard.press('Alt+Shift+P');
    await page.getByLabel('Theme').selectOption(other);
    await page.keyboard.press('Escape');
    await page.reload();
    await page.waitForSelector(`html[data-theme="${other}"] .app`);
    assert.deepEqual(c.wrongs, []);
  });
}

test('a program writes to the clipboard by leave alone, which is remembered', async () => {
  await spawn('copies', 'stty -echo; echo ready; while read -r l; do printf "\\033]52;c;%s\\007" "$l"; echo "sent $l"; done');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await open(c);
  await show(page, 'copies');
  await shows(page, /^ready$/);
  const held = () => page.evaluate(() => navigator.clipboard.readText());
  await page.evaluate(() => navigator.clipboard.writeText('mine'));
  await page.keyboard.type('Zmlyc3Q=\n'); // first
  await shows(page, /^sent Zm/);
  await page.getByRole('button', { name: 'Allow' }).waitFor();
  assert.equal(await held(), 'mine');
  await picture(page, 'clipboard');
  await page.getByRole('button', { name: 'Allow' }).click();
  await eventually('it is copied', async () => (await held()) === 'first');
  await page.keyboard.type('c2Vjb25k\n'); // second
  await eventually('it is copied without a question', async () => (await held()) === 'second');
});

test('a screen reader is given the rows, and is told of the connection', async () => {
  await spawn('heard', 'echo ready; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'heard');
  await page.keyboard.press('Alt+Shift+P');
  await page.getByLabel(/^Screen reader/).check();
  await page.keyboard.press('Escape');
  await page.locator('.xterm-accessibility').getByText('ready').first().waitFor();
  assert.equal(await page.getAttribute('.connection', 'role'), 'status');
  assert.match(await page.locator('.xterm-helper-textarea').first().getAttribute('aria-description'), /leaves the terminal/);
});

test('what a session has to tell is said in the list, until it is looked at', async () => {
  await spawn('quiet');
  await spawn('rings', 'read x; printf "\\a"; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'quiet');
  await cli('send', 'rings', '--enter', 'x');
  const row = page.locator('.row[data-session="rings"]');
  await row.getByText(/^rang/).waitFor();
  await eventually('the title says so', async () => (await page.title()).startsWith('•'));
  await show(page, 'rings');
  await eventually('it is seen', async () => !(await page.title()).startsWith('•') && (await row.getByText(/^rang/).count()) === 0);
});

test('the list follows what happens elsewhere', async () => {
  const c = await context();
  const page = await open(c);
  await spawn('elsewhere', 'printf "\\033]0;Its title\\007"; read x; exit 4');
  const row = page.locator('.row[data-session="elsewhere"]');
  await row.getByText('Its title').waitFor();
  await cli('rename', 'elsewhere', 'release 1.2');
  await row.getByText('release 1.2').waitFor();
  await choose(page, /^Rename/, 'elsewhere');
  await page.getByLabel('Title').fill('here');
  await page.keyboard.press('Enter');
  await row.getByText('here', { exact: true }).waitFor();
  assert.match(await cli('ls'), /here: /);
  await cli('send', 'elsewhere', '--enter', 'x');
  await row.getByText('exited 4').first().waitFor();
  await choose(page, 'Forget', 'elsewhere');
  await eventually('the row is gone', async () => (await row.count()) === 0);
});

// demand: B9
test('no view has a serious fault of accessibility', async () => {
  await spawn('axe-one');
  await spawn('axe-two', 'read x; exit 3');
  await cli('send', 'axe-two', '--enter', 'x');
  const c = await context();
  const page = await open(c);
  const found = [];
  const look = async (view, where = page) => {
    for (const fault of await faults(where)) found.push(`${view}: ${fault}`);
  };
  await look('no session');
  await show(page, 'axe-one');
  await look('a terminal');
  await page.keyboard.press('Alt+Shift+D');
  await page.waitForSelector('.pane.active .empty');
  await look('a split');
  await page.click('.row[data-session="axe-two"] .open');
  await page.waitForSelector('.pane.active[data-phase="ended"]');
  await look('an end');
  await page.keyboard.press('Alt+Shift+ArrowLeft');
  await page.keyboard.press('Alt+Shift+F');
  await look('the search');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Actions for this session' }).click();
  await look('a menu');
  await page.keyboard.press('Escape');
  for (const key of ['N', 'Slash', 'P', 'R', 'X', 'H']) {
    await page.keyboard.press(`Alt+Shift+${key}`);
    await page.locator('dialog[open]').waitFor();
    await look(await page.locator('dialog[open] h2').innerText());
    await page.keyboard.press('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
  }
  const shared = await c.newPage();
  await shared.goto((await cli('share', 'axe-one')).trim().split('\n').pop());
  await shared.waitForSelector('.shared .xterm-rows');
  await look('a shared page', shared);
  await page.bringToFront();
  await page.setViewportSize({ width: 390, height: 700 });
  await look('a phone');
  await page.getByRole('button', { name: 'Sessions' }).click();
  await look('the list on a phone');
  assert.deepEqual(found, []);
});

test('the page is sent compressed', async () => {
  const c = await context();
  const page = await c.newPage();
  const got = [];
  page.on('response', (r) => /\.(js|css)$/.test(r.url()) && got.push(r));
  await page.goto(await link());
  await page.waitForSelector('.app');
  assert.ok(got.length >= 2);
  let size = 0;
  for (const r of got) {
    assert.equal(await r.headerValue('content-encoding'), 'br', r.url());
    size += Number(await r.headerValue('content-length'));
  }
  assert.ok(size < 150_000, `${size} bytes`); // 618 kB as they are
});

test('tabs are moved by the pointer and by keys', async () => {
  for (const id of ['tab-a', 'tab-b', 'tab-c']) await spawn(id, `printf '\\033]0;${id}\\007'; exec cat`);
  const c = await context();
  const page = await open(c);
  for (const id of ['tab-a', 'tab-b', 'tab-c']) await show(page, id);
  const tabs = () => page.locator('[role="tab"]').allInnerTexts();
  const are = (...want) => eventually(`the tabs are ${want}`, async () => (await tabs()).join() === want.join());
  await are('tab-a', 'tab-b', 'tab-c');
  await page.getByRole('tab', { name: 'tab-a' }).dragTo(page.getByRole('tab', { name: 'tab-c' }));
  await are('tab-b', 'tab-c', 'tab-a');
  assert.equal(await page.locator('[role="tab"][aria-selected="true"]').innerText(), 'tab-c');
  await page.keyboard.press('Alt+Shift+PageUp');
  await are('tab-c', 'tab-b', 'tab-a');
  await page.keyboard.press('Alt+Shift+PageUp'); // it is the first
  await page.keyboard.press('Alt+Shift+PageDown');
  await are('tab-b', 'tab-c', 'tab-a');
  await page.reload();
  await are('tab-b', 'tab-c', 'tab-a');
  await page.getByRole('tab', { name: 'tab-a' }).focus();
  await page.keyboard.press('Delete');
  await are('tab-b', 'tab-c');
  assert.deepEqual(c.wrongs, []);
});
