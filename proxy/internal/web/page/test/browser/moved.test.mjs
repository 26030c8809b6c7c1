// Typing while the programs around the session are replaced and killed: each key is
// typed once, and what is printed comes once.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, eventually, open, picture, rows, show, shows, spawn, status } from './world.mjs';

const LINES = 24; // all are on the screen at the end

// typed types numbered lines, some of them while something happens, and looks at what
// the session has made of them: each line with its length in front.
async function typed(id, happens) {
  await spawn(id, 'stty -echo; echo ready; while read -r l; do echo "${#l} $l"; done');
  const c = await context();
  const page = await open(c);
  await show(page, id);
  await shows(page, /^ready$/);
  const line = (i) => `${i}-abcdefghijklmnopqrstuvwxyz`;
  let over = false;
  const happening = happens(page).finally(() => (over = true));
  for (let i = 0; i < LINES; i++) {
    await page.keyboard.type(`${line(i)}\n`, { delay: over ? 0 : 4 });
  }
  await happening;
  await shows(page, new RegExp(` ${line(LINES - 1)}$`));
  const want = ['ready', ...Array.from({ length: LINES }, (_, i) => `${line(i).length} ${line(i)}`)];
  assert.deepEqual((await rows(page)).filter(Boolean), want);
  assert.deepEqual(c.wrongs, []);
  return page;
}

test('through handoffs', async () => {
  await typed('handoffs', async () => {
    for (let i = 0; i < 3; i++) await cli('--handoff');
  });
});

test('through upgrades of both programs', async () => {
  await typed('upgrades', async () => {
    for (let i = 0; i < 2; i++) await cli('upgrade');
  });
});

test('through the sudden end of the proxy', async () => {
  const page = await typed('killed', async (page) => {
    const { proxy } = await status();
    process.kill(proxy.pid, 'SIGKILL');
    await page.waitForSelector('.connection[data-state="reconnecting"]');
    await picture(page, 'reconnecting');
    await cli('ls'); // any command starts another, which serves the page where it was
    await page.waitForSelector('.connection[data-state="connected"]');
  });
  await page.getByText(/^back after |^connected$/).first().waitFor();
  await eventually('the list is there', () => page.locator('.row[data-session="killed"]').count());
});

test('through the sudden end of the supervisor', async () => {
  await typed('held', async () => {
    const { supervisor } = await status();
    process.kill(supervisor.pid, 'SIGKILL');
    await eventually('another supervisor serves', async () => {
      const now = await status().catch(() => undefined);
      return now?.supervisor && now.supervisor.pid !== supervisor.pid;
    });
  });
});
