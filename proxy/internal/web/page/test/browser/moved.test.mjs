// Typing while the programs around the session are replaced and killed: each key is
// typed once, and what is printed comes once.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { cli, context, eventually, link, open, picture, rows, show, shows, spawn, status } from './world.mjs';

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

// demand: B9
for (const [device, options] of [['a desktop', {}], ['a phone', { viewport: { width: 390, height: 700 }, hasTouch: true, isMobile: true }]]) {
  test(`a dead link is told over the terminal, on ${device}, and the page continues by itself`, async () => {
    const id = device.replace('a ', 'lost-');
    await spawn(id);
    const c = await context(options);
    const page = await open(c);
    if (options.isMobile) await page.getByRole('button', { name: 'Sessions' }).click();
    await show(page, id);
    await shows(page, /^\$/);
    const before = (await rows(page)).length;
    process.kill((await status()).proxy.pid, 'SIGKILL');
    const bar = page.locator('.lost');
    await bar.getByText('proxy web').waitFor();
    await picture(page, `lost-${options.isMobile ? 'phone' : 'desktop'}`);
    const [over, stage] = await Promise.all([bar.boundingBox(), page.locator('.stage').boundingBox()]);
    assert.ok(over.y >= stage.y && over.y + over.height < stage.y + stage.height / 2 && over.width === stage.width, `${JSON.stringify(over)} in ${JSON.stringify(stage)}`);
    assert.ok(over.x >= 0 && over.x + over.width <= page.viewportSize().width);
    assert.equal((await rows(page)).length, before, 'the terminal keeps its size');
    await page.keyboard.type('echo kept-$((1))\n');
    await cli('web', '--no-open'); // as the bar says
    await bar.waitFor({ state: 'hidden' });
    await shows(page, /^kept-1$/);
    assert.deepEqual(c.wrongs, []);
  });
}

// At each start something else fails: the reply is missing, the WebSocket does not open, and nothing fails.
test('a page whose start fails continues by itself', async () => {
  const c = await context();
  const page = await c.newPage();
  await page.clock.install();
  let starts = 0;
  await page.route('**/v1/page', (route) => (starts++ === 0 ? undefined : route.continue()));
  let sockets = 0;
  await page.routeWebSocket('**/v1/api', (ws) => (sockets++ === 0 ? ws.close({ code: 1001 }) : ws.connectToServer()));
  await page.goto(await link());
  await eventually('the page asks', () => starts > 0);
  await page.clock.fastForward(5000);
  for (const text of ['Holdfast does not answer.', 'the WebSocket does not open: code 1001']) {
    await page.getByText(text).waitFor();
    await page.clock.fastForward(2000);
  }
  await page.waitForSelector('.app');
  assert.deepEqual(c.wrongs, []);
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
