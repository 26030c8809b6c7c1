// Many sessions in the list, a shell's commands in the terminal, and what the menu does
// with what a session has printed.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { choose, cli, context, eventually, faults, link, open, picture, rows, show, shows, spawn } from './world.mjs';

// demand: B6
test('a long list has a filter, groups, and the ids', async () => {
  await Promise.all(Array.from({ length: 8 }, (_, i) => cli('new', '--detach', '--label', `team=${i % 2 ? 'red' : 'blue'}`, '--label', `workspace_id=w${i % 3}`, '--', 'sleep', '1000')));
  await cli('new', '--detach', '--id', 'build', '--label', 'team=blue', '--', 'sleep', '2000');
  const c = await context();
  const page = await open(c);
  const there = JSON.parse(await cli('ls', '--json'));
  const shown = () => page.locator('.row').evaluateAll((all) => all.map((r) => r.dataset.session).sort());
  await eventually('all are listed', async () => (await shown()).length === there.length);
  for (const { id } of there) assert.ok((await page.locator(`.row[data-session="${id}"]`).innerText()).includes(id), `${id} is on its tile`);
  await picture(page, 'list-many');

  await page.keyboard.press('Alt+Shift+G');
  await page.keyboard.type('2000 team=blue');
  await eventually('one is left', async () => (await shown()).join() === 'build');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.pane.active[data-phase="live"]');
  assert.match(await page.evaluate(() => document.activeElement.className), /xterm-helper/);
  await page.keyboard.press('Alt+Shift+G');
  await page.keyboard.type('nothing like it');
  await page.getByText('No session matches.').waitFor();
  await page.keyboard.press('Escape');
  await eventually('all are back', async () => (await shown()).length === there.length);

  await page.getByLabel('Group the sessions').selectOption('label:team');
  const groups = () => page.locator('.group').allInnerTexts();
  await eventually('there are two groups', async () => (await groups()).map((g) => g.replaceAll(/\s+/g, ' ')).join() === 'blue 5,red 4');
  assert.deepEqual(await faults(page), []);
  await picture(page, 'list-groups');
  await page.getByRole('button', { name: /^red/ }).click();
  await eventually('a group is closed', async () => (await shown()).length === 5);
  await page.reload();
  await eventually('the groups are remembered', async () => (await groups()).length === 2);
  await page.getByLabel('Group the sessions').selectOption('label:workspace_id');
  await eventually('they are by workspace', async () => (await groups()).length === 4);
  await page.getByLabel('Group the sessions').selectOption('none');
  await eventually('they are gone', async () => (await groups()).length === 0);
  assert.deepEqual(c.wrongs, []);
});

test('the commands of a shell are marked, and the keyboard goes from one to the next', async () => {
  await cli('new', '--detach', '--id', 'marks', '--shell-integration', '--', 'bash');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await open(c);
  await show(page, 'marks');
  const type = async (line, pattern) => {
    await page.keyboard.type(`${line}\n`);
    await shows(page, pattern);
  };
  await type('PS1="$ "; echo set', /^set$/);
  await type('(exit 7)\necho first-$((1))', /^first-1$/);
  await eventually('two have ended well, one has failed', async () => (await page.locator('.command-mark[data-ended="done"]').count()) >= 2 && (await page.locator('.command-mark[data-ended="failed"]').count()) === 1);
  assert.equal(await page.locator('.command-mark[data-ended="failed"]').getAttribute('title'), 'exited 7');
  const [mark, screen] = await Promise.all([page.locator('.command-mark').first().boundingBox(), page.locator('.pane.active .xterm-screen').boundingBox()]);
  assert.ok(mark.x < screen.x && mark.width <= 4, `a mark at ${mark.x} beside a screen at ${screen.x}`);
  await picture(page, 'marks');
  await type('seq 200', /^200$/);
  await page.getByRole('button', { name: 'Actions for this session' }).click();
  await picture(page, 'menu');
  await page.getByRole('menuitem', { name: 'Copy the last output' }).click();
  const seq = Array.from({ length: 200 }, (_, i) => i + 1).join('\n');
  await eventually('it is copied', async () => (await page.evaluate(() => navigator.clipboard.readText())) === seq);
  for (const when of ['live', 'attached anew']) {
    if (when !== 'live') {
      await page.reload();
      await page.waitForSelector('.pane.active[data-phase="live"]');
      await shows(page, /^200$/);
    }
    await page.keyboard.press('Alt+Shift+BracketLeft');
    await eventually(`the prompt of seq is the first row, ${when}`, async () => /seq 200$/.test((await rows(page))[0]));
    await page.keyboard.press('Alt+Shift+BracketLeft');
    await eventually(`the prompt before it is there, ${when}`, async () => (await rows(page)).some((r) => /^first-1$/.test(r)));
    await page.keyboard.press('Alt+Shift+BracketRight');
    await page.keyboard.press('Alt+Shift+BracketRight');
    await eventually(`and back, ${when}`, async () => (await rows(page)).some((r) => /^200$/.test(r)));
  }
  assert.deepEqual(c.wrongs, []);
});

test('the menu copies, clears, exports and records', async () => {
  await spawn('menu', 'stty -echo; seq 300; echo ready; while read -r l; do echo "got $l"; done');
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await open(c);
  await show(page, 'menu');
  await shows(page, /^ready$/);
  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent('download'), choose(page, name)]);
    return { name: download.suggestedFilename(), text: await readFile(await download.path(), 'utf8') };
  };
  await choose(page, 'Copy the screen');
  await eventually('it is copied', async () => /\n300\nready$/.test(await page.evaluate(() => navigator.clipboard.readText())));

  const numbers = Array.from({ length: 300 }, (_, i) => `${i + 1}\n`).join('');
  assert.deepEqual(await saved('Export as text'), { name: 'menu.txt', text: `${numbers}ready\n` });
  assert.deepEqual(await saved('Export as printed'), { name: 'menu.ansi', text: `${numbers}ready\n`.replaceAll('\n', '\r\n') });

  await page.keyboard.type('exported\n'); // the terminal has the focus again
  await shows(page, /^got exported$/);
  await choose(page, 'Record');
  await page.keyboard.type('zero\n');
  await shows(page, /^got zero$/);
  await page.getByRole('tab', { name: /^●/ }).waitFor();
  await page.keyboard.type('one\ntwo\n');
  await shows(page, /^got two$/);
  const cast = await saved('Stop recording');
  assert.equal(cast.name, 'menu.cast');
  const [head, ...events] = cast.text.trimEnd().split('\n').map(JSON.parse);
  assert.equal(head.version, 2);
  assert.ok(head.height === (await rows(page)).length && head.width > 20);
  assert.ok(events.every(([at, kind], i) => kind === 'o' && at >= (events[i - 1]?.[0] ?? 0)));
  // If the recording begins after "got zero" is shown, its first screen ends with moves to the beginning of the next row.
  const played = events.map((e) => e[2]).join('').replaceAll(/\x1b\[[\d;]*[mH]/g, '').replace('got zero\x1b[1B\x1b[8D', 'got zero\r\n');
  assert.equal(played.match(/got zero/g).length, 1);
  assert.match(played, /300\r\nready[^]*got zero\r\ngot one\r\ngot two\r\n$/);

  await page.keyboard.press('Shift+PageUp');
  await eventually('there is a scrollback', async () => !(await rows(page)).includes('300'));
  await choose(page, 'Clear the scrollback');
  await eventually('there is none', async () => (await rows(page)).includes('got two'));
  await page.keyboard.press('Shift+PageUp');
  assert.ok((await rows(page)).includes('got two'));
  assert.equal(await cli('history', 'menu'), '');
  assert.deepEqual(c.wrongs, []);
});

// Control groups need a system that gives them, so the answers are changed on their way.
test('a session is frozen and thawed, and its use is shown', async () => {
  await spawn('stopped', 'exec cat');
  const c = await context();
  const page = await c.newPage();
  let frozen = true;
  await page.routeWebSocket(/\/v1\/api$/, (ws) => {
    const server = ws.connectToServer();
    ws.onMessage((m) => {
      const asked = typeof m === 'string' ? JSON.parse(m) : {};
      if (asked.type !== 'freeze') return server.send(m);
      assert.equal(asked.session_id, 'stopped');
      frozen = asked.frozen;
      ws.send(JSON.stringify({ type: 'ok', request_id: asked.request_id }));
      void cli('rename', 'stopped', frozen ? 'stands still' : 'runs on'); // any event brings the new state
    });
    server.onMessage((m) => {
      const told = typeof m === 'string' ? JSON.parse(m) : {};
      for (const s of [...(told.sessions ?? []), ...(told.session ? [told.session] : [])]) if (s.id === 'stopped') Object.assign(s, { frozen, ...(told.sessions && { cage: { memory_bytes: 5 << 20, pids: 1 } }) });
      ws.send(typeof m === 'string' ? JSON.stringify(told) : m);
    });
  });
  await page.goto(await link());
  await show(page, 'stopped');
  const row = page.locator('.row[data-session="stopped"]');
  await row.getByText(/^frozen · .*5\.0 MiB/).waitFor();
  const notice = page.locator('.pane.active .notice', { hasText: 'All processes of this session are frozen.' });
  await notice.waitFor();
  await picture(page, 'frozen');
  await notice.getByRole('button', { name: 'Thaw' }).click();
  await row.getByText(/^running · .*5\.0 MiB/).waitFor();
  await notice.waitFor({ state: 'detached' });
  await choose(page, 'Freeze');
  await row.getByText(/^frozen · .*5\.0 MiB/).waitFor();
  await notice.waitFor();
  await page.keyboard.type('thawed\n'); // the terminal has the focus; the program only seems to be frozen
  await shows(page, /^thawed$/);
  assert.deepEqual(c.wrongs, []);
});

// A terminal of another size than the session receives changes to what it shows, which may not be cut.
test('a recording of a busy session in a window of another size begins with its screen', async () => {
  await spawn('busy', `stty -echo; echo ready; read x; i=0; while :; do i=$((i+1)); printf '\\033[%d;%dHx%d' $((i % 7 + 1)) $((i % 40 + 1)) $((i % 10)); sleep 0.001; done`);
  const c = await context();
  const page = await open(c);
  await show(page, 'busy');
  await shows(page, /^ready$/);
  const other = await c.newPage();
  await other.setViewportSize({ width: 900, height: 500 });
  await other.goto(new URL('/', page.url()).href);
  await show(other, 'busy');
  await other.keyboard.type('x\n'); // the session has the size of this window now
  await other.close();
  await page.bringToFront();
  for (let i = 0; i < 8; i++) {
    await choose(page, 'Record');
    await page.getByRole('tab', { name: /^●/ }).waitFor();
    const shown = JSON.stringify(await rows(page));
    await eventually('it prints', async () => JSON.stringify(await rows(page)) !== shown);
    const [download] = await Promise.all([page.waitForEvent('download'), choose(page, 'Stop recording')]);
    const [, , change] = (await readFile(await download.path(), 'utf8')).trimEnd().split('\n').map((l) => JSON.parse(l)[2]);
    assert.match(change, /^\x18?\x1b/, 'a change is whole');
  }
  await cli('kill', 'busy');
  assert.deepEqual(c.wrongs, []);
});
