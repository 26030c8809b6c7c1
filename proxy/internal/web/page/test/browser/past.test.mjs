// The past of a session, and what is left of sessions after a loss of power.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { cli, context, eventually, faults, open, picture, rows, show, shows, spawn, status } from './world.mjs';

const PAST = '.pane.active .past .xterm-rows';

// Three commands of a shell that reports them, the second of which fails, and then a screen that is cleared.
const commands = `stty -echo; n=0
printf '\\033]133;A\\007\\033]133;B\\007'
while read -r l; do
  n=$((n+1)); printf 'run %s\\n\\033]133;C;cmdline_url=make-%s\\007out-%s\\n\\033]133;D;%s\\007\\033]133;A\\007\\033]133;B\\007' $n $n $n $((n == 2))
  [ $n = 3 ] && printf '\\033[2J\\033[Hcleared\\n'
  [ $n = 4 ] && seq 1200
done`;

const json = async (...args) => JSON.parse(await cli(...args, '--json'));

// demand: D7
test('the past of a session is shown by a slider, and no key of it reaches the session', async () => {
  await spawn('makes', commands);
  const c = await context({ permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await open(c);
  await show(page, 'makes');
  for (const n of [1, 2]) {
    await page.keyboard.press('Enter');
    await shows(page, new RegExp(`^out-${n}$`));
  }
  await page.keyboard.press('Enter');
  await shows(page, /^cleared$/);
  const size = (await json('info', 'makes')).size;

  await page.keyboard.press('Alt+Shift+T');
  await shows(page, /^cleared$/, PAST);
  const slider = page.getByRole('slider', { name: 'Moment of the past' });
  const text = () => slider.getAttribute('aria-valuetext');
  await page.dblclick('.past .xterm-screen', { position: { x: 20, y: 8 } });
  await page.keyboard.press('Control+Shift+C');
  await eventually('what is selected in the past is copied', async () => (await page.evaluate(() => navigator.clipboard.readText())) === 'cleared');
  await slider.focus();
  for (const [n, want] of [[3, /after make-3$/], [2, /after make-2, which exited 1$/], [1, /after make-1$/]]) {
    await page.keyboard.press('[');
    await eventually('the screen is that of the moment', async () => {
      const shown = await rows(page, PAST);
      return shown.includes(`out-${n}`) && !shown.includes(`out-${n + 1}`) && !shown.includes('cleared');
    });
    assert.match(await text(), want);
  }
  assert.equal(await page.locator('.past .command').count(), 3);
  assert.equal(await page.locator('.past .command.failed').count(), 1);
  assert.ok(await page.getByRole('button', { name: 'Previous command' }).isDisabled());
  assert.deepEqual(await faults(page), []);
  await picture(page, 'past');
  await page.keyboard.press('Alt+Shift+]');
  await shows(page, /^out-2$/, PAST);
  await page.keyboard.press('Home');
  await eventually('the first screen is empty', async () => (await rows(page, PAST)).every((r) => r === ''));
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await slider.inputValue(), '0');
  // Moments that are chosen while a request is under way are skipped, except the last one.
  for (let i = 0; i < 10; i++) await page.keyboard.press('PageUp');
  await shows(page, /^cleared$/, PAST);
  await page.keyboard.type('not input\n');
  assert.deepEqual((await json('info', 'makes')).size, size);
  await page.setViewportSize({ width: 390, height: 700 });
  assert.deepEqual(await faults(page), []);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing sticks out');
  await picture(page, 'past-phone');
  await page.setViewportSize({ width: 1200, height: 800 });
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.past').count(), 0);
  await page.keyboard.press('Enter'); // of the live session again
  await shows(page, /^1200$/);
  // A command that the terminal does not have any more is shown in the past.
  await page.reload();
  await shows(page, /^1200$/);
  await eventually('the request past is known', () => page.getByRole('button', { name: 'The past' }).isVisible());
  await page.keyboard.press('Alt+Shift+[');
  await shows(page, /^out-4$/, PAST);
  await page.keyboard.press('Alt+Shift+[');
  await shows(page, /^out-3$/, PAST);
  await page.getByRole('button', { name: 'Live' }).click();
  assert.deepEqual(c.wrongs, []);
});

test('the past of a session that was started again meanwhile says so', async () => {
  await spawn('anew', 'stty -echo; echo first; read x; echo second; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'anew');
  await page.keyboard.press('Enter');
  await shows(page, /^second$/);
  await eventually('the request past is known', () => page.getByRole('button', { name: 'The past' }).isVisible());
  await page.keyboard.press('Alt+Shift+T');
  await shows(page, /^second$/, PAST);
  await cli('kill', 'anew');
  await cli('reopen', '--detach', 'anew');
  await page.keyboard.press('Home');
  await page.locator('.past .warning').getByText('started again').waitFor();
  assert.deepEqual(c.wrongs, []);
});

// stat returns the fields of a process or thread, from its state on. It returns [] if the process has ended.
function stat(path) {
  try {
    return readFileSync(`/proc/${path}/stat`, 'utf8').replace(/.*\) /s, '').split(' ');
  } catch {
    return [];
  }
}

// powerCut kills the programs and the children of sessions at once, as a loss of power does. It stops them first, so
// that no process notices the end of another. It kills a parent after its children, because the end of a parent
// continues its stopped children. A thread of a process that was sent SIGSTOP may run for a moment longer.
async function powerCut() {
  const { proxy, supervisor } = await status();
  const children = (await json('ls')).filter((s) => s.state === 'running').map((s) => s.pid);
  const all = [proxy.pid, ...children, supervisor.pid, Number(stat(supervisor.pid)[1])]; // the last one is the keeper
  for (const pid of all) process.kill(pid, 'SIGSTOP');
  await eventually('all are stopped', () => all.every((pid) => readdirSync(`/proc/${pid}/task`).every((thread) => stat(`${pid}/task/${thread}`)[0] === 'T')));
  for (const pid of all) process.kill(pid, 'SIGKILL');
  await eventually('all have ended', () => all.every((pid) => [undefined, 'Z'].includes(stat(pid)[0])));
}

// stored returns when the directory of a session contains its output.
const stored = (id) => eventually(`session ${id} is stored`, () => {
  const dir = join(process.env.HOLDFAST_DIR, 'sessions');
  return existsSync(dir) && readdirSync(dir).some((d) => d.startsWith(`${id}@`) && readdirSync(join(dir, d)).some((f) => f.startsWith('0')));
});

// demand: D1 D3
test('sessions that were lost with the machine are shown, and started again only by a click', async () => {
  const script = (id) => `stty -echo; echo "${id} printed this"; echo run >>"$HOLDFAST_DIR/${id}.runs"; exec cat`;
  for (const id of ['away', 'back', 'other']) await cli('new', '--detach', '--id', id, '--label', 'resume_argv=echo resumed; exec cat', '--', '/bin/sh', '-c', script(id));
  const c = await context();
  const page = await open(c);
  await show(page, 'other');
  await shows(page, /^other printed/);
  await page.keyboard.press('Alt+Shift+D');
  await show(page, 'back');
  await shows(page, /^back printed/);
  for (const id of ['away', 'back', 'other']) await stored(id);
  await c.setOffline(true);
  await powerCut();
  await cli('revive', '--detach', 'other', '--', 'sh', '-c', 'echo the new one; exec cat');
  await c.setOffline(false);

  // The viewer of the old instance is told, and offered the new one.
  await page.getByText('was started again').waitFor();
  await page.getByRole('button', { name: 'Show the new one' }).click();
  await shows(page, /^the new one$/);
  await shows(page, /^other printed/);

  // The others are lost, with their screens.
  const row = (id) => page.locator(`.row[data-session="${id}"]`);
  assert.equal(await row('away').getAttribute('data-state'), 'lost');
  await row('back').locator('.open').click();
  await shows(page, /^back printed this$/);
  const notice = page.locator('.pane.active .notice[data-kind="end"]');
  assert.match(await notice.innerText(), /Lost with the machine\. Last seen .*; it ran stty.*exact up to byte \d+ of its output\. “Start again” runs echo resumed; exec cat in/s);
  assert.deepEqual(await faults(page), []);
  await picture(page, 'lost');
  await notice.getByRole('button', { name: 'The past' }).click();
  await shows(page, /^back printed this$/, PAST);
  await page.getByRole('button', { name: 'Last screen' }).click();
  await notice.getByRole('button', { name: 'Start again' }).click();
  await shows(page, /^resumed$/);
  await shows(page, /^back printed this$/);
  await page.keyboard.type('typed\n');
  await shows(page, /^typed$/);

  await row('away').locator('.open').click();
  await notice.getByRole('button', { name: 'Forget…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await row('away').count(), 1);
  await notice.getByRole('button', { name: 'Forget…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Forget' }).click();
  await eventually('the row is gone', async () => (await row('away').count()) === 0);
  for (const id of ['away', 'back', 'other']) assert.equal(readFileSync(join(process.env.HOLDFAST_DIR, `${id}.runs`), 'utf8'), 'run\n', 'no program was started again by itself');
  assert.deepEqual(c.wrongs, []);
});
