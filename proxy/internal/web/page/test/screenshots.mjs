// The pictures of scripts/screenshots, of the sessions that it has started.

import { test } from 'node:test';

import { context, open, picture, show, shows } from './browser/world.mjs';

test('the page', async () => {
  const c = await context({ viewport: { width: 1120, height: 640 } });
  const page = await open(c);
  await show(page, 'tests');
  await shows(page, /^PASS/);
  await page.keyboard.press('Alt+Shift+D');
  await show(page, 'server');
  await shows(page, /DELETE/);
  await page.keyboard.press('Alt+Shift+S');
  await show(page, 'shell');
  await page.keyboard.press('Control+l');
  await page.keyboard.type('proxy --handoff\n');
  await shows(page, /connections? moved/);
  await shows(page, /took over from/);
  await picture(page, 'page');
});

test('the past', async () => {
  const c = await context({ viewport: { width: 1120, height: 560 } });
  const page = await open(c);
  await show(page, 'shop');
  await shows(page, /pushed/);
  await page.keyboard.press('Alt+Shift+T');
  await page.locator('.past .command').nth(3).waitFor({ state: 'attached' });
  for (let i = 0; i < 3; i++) await page.keyboard.press('[');
  await shows(page, /FAIL/, '.pane.active .past .xterm-rows');
  await picture(page, 'past');
});
