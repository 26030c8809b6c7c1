// The page of a gate with the hosts blue and red, which scripts/e2e has started. That test kills the gate and starts it
// again when it finds a file of that name.

import assert from 'node:assert/strict';
import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { cli, context, eventually, faults, picture, rows, show, shows } from '../browser/world.mjs';

const LINES = 12; // all are on the screen at the end
const COUNTS = 'stty -echo; echo ready; while read -r l; do echo "${#l} $l"; done'; // prints each line with its length

// demand asks the Go test for an event, and returns when that has happened.
async function demand(event) {
  const file = join(process.env.HOLDFAST_DIR, event);
  await writeFile(file, '');
  await eventually(`the file ${event} is removed`, () => access(file).then(() => false, () => true));
}

const link = async () => (await cli('gate', 'web')).split('\n')[0];
const line = (host, i) => `${host}-${i}-abcdefghijklmnopqrstuvwxyz`;
const pane = (host) => `.pane[aria-label="Terminal of counts-${host}"]`;
const group = (host, state) => `.group[data-host="${host}"][data-state="${state}"]`;
const row = (host, state) => `.row[data-session="${host}/counts"][data-state="${state}"]`;

// type types numbered lines into the terminal of a host.
async function type(page, host, from, to) {
  await page.click(`${pane(host)} .xterm-screen`);
  for (let i = from; i < to; i++) await page.keyboard.type(`${line(host, i)}\n`);
}

test('a gate dies while text is typed into sessions of two hosts, and no byte is lost or comes twice', async () => {
  const hosts = ['blue', 'red'];
  for (const host of hosts) await cli('new', '-d', '--on', host, '--id', 'counts', '--label', `title=counts-${host}`, '--', '/bin/sh', '-c', COUNTS);
  const c = await context({ ignoreHTTPSErrors: true });
  const page = await c.newPage();
  await page.goto(await link());
  assert.equal(new URL(page.url()).search, '', 'the ticket has left the URL');
  for (const host of hosts) await page.waitForSelector(group(host, 'ready'));
  await picture(page, 'gate-list');
  await show(page, 'blue/counts');
  await page.keyboard.press('Alt+Shift+D');
  await show(page, 'red/counts');
  for (const host of hosts) await shows(page, /^ready$/, `${pane(host)} .xterm-rows`);
  for (const host of hosts) await type(page, host, 0, LINES / 3);
  assert.deepEqual(await faults(page), []);

  await demand('gate-dies');
  for (const host of hosts) await page.waitForSelector(group(host, 'unreachable'));
  for (const host of hosts) await page.waitForSelector(row(host, 'unknown'));
  for (const host of hosts) await type(page, host, LINES / 3, LINES * 2 / 3); // the page keeps it
  await page.locator('.lost').getByText('The gate does not answer').waitFor();
  await picture(page, 'gate-dead');
  await demand('gate-serves');
  for (const host of hosts) await type(page, host, LINES * 2 / 3, LINES);
  for (const host of hosts) {
    const where = `${pane(host)} .xterm-rows`;
    await shows(page, new RegExp(` ${line(host, LINES - 1)}$`), where);
    const want = ['ready', ...Array.from({ length: LINES }, (_, i) => `${line(host, i).length} ${line(host, i)}`)];
    assert.deepEqual((await rows(page, where)).filter(Boolean), want);
  }
  for (const host of hosts) await page.waitForSelector(group(host, 'ready'));
  for (const host of hosts) await page.waitForSelector(row(host, 'running'));
  await page.locator('.lost').waitFor({ state: 'hidden' });
  await picture(page, 'gate-back');

  await page.getByRole('button', { name: 'New session on blue' }).click();
  assert.equal(await page.locator('select[name="host"]').inputValue(), 'blue');
  await page.fill('input[name="command"]', "sh -c 'echo started-$((40+2)); exec sleep 1000'");
  await page.fill('input[name="id"]', 'new');
  await picture(page, 'gate-new');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await shows(page, /^started-42$/);
  await page.waitForSelector('.row[data-session="blue/new"]');
  assert.deepEqual(c.wrongs, []);
});

test('a phone signs in with the token', async () => {
  const c = await context({ ignoreHTTPSErrors: true, viewport: { width: 390, height: 700 }, hasTouch: true, isMobile: true });
  const page = await c.newPage();
  await page.goto(new URL('/', await link()).href);
  await page.getByLabel('Text of proxy gate client-token').fill('0'.repeat(64));
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('This is not the token of this gate.').waitFor();
  await picture(page, 'gate-sign-in-phone');
  assert.deepEqual(await faults(page), []);
  await page.getByLabel('Text of proxy gate client-token').fill(process.env.HOLDFAST_GATE);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForSelector('.app');
  await page.getByRole('button', { name: 'Sessions', exact: true }).click();
  await page.waitForSelector(group('red', 'ready'));
  await picture(page, 'gate-list-phone');
  await show(page, 'red/counts');
  await shows(page, /^ready$/);
  await picture(page, 'gate-terminal-phone');
  assert.deepEqual(c.wrongs, []);
});
