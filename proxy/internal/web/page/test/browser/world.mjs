// What the tests of the page have in common: a browser, and the programs of a world
// that scripts/e2e has started. It says which by its environment:
//
//	HOLDFAST_BIN   the directory of the programs
//	HOLDFAST_DIR   the world's
//	CHROMIUM       the browser's program
//	SCREENSHOTS    where to put pictures, for people; may be absent
//
// Rows are read from the page, so WebGL is off: with it they are pixels.

import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before } from 'node:test';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';

export const LIMIT = 30_000; // ms for anything that has to happen

const { HOLDFAST_BIN, CHROMIUM, SCREENSHOTS } = process.env;
const run = promisify(execFile);

// cli runs the proxy's command line, and returns what it prints.
export async function cli(...args) {
  return (await run(join(HOLDFAST_BIN, 'proxy'), args, { timeout: LIMIT })).stdout;
}

// spawn starts a session of a shell's script, or of bash without its files.
export function spawn(id, script) {
  return cli('new', '--detach', '--id', id, '--', ...(script ? ['/bin/sh', '-c', script] : ['env', 'PS1=$ ', 'bash', '--norc', '--noprofile']));
}

let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu', '--disable-3d-apis'] });
});
after(() => browser?.close());

// A page that stayed open after its test would follow all that happens in the tests behind it.
afterEach(() => Promise.all(browser.contexts().map((c) => c.close())));

// context is a browser's profile of its own; what goes wrong in its pages is kept.
export async function context(options = {}) {
  const c = await browser.newContext({ viewport: { width: 1200, height: 800 }, colorScheme: 'dark', ...options });
  c.setDefaultTimeout(LIMIT);
  c.wrongs = [];
  c.on('weberror', (e) => c.wrongs.push(String(e.error().stack)));
  c.on('console', (m) => m.text().includes('Content Security Policy') && c.wrongs.push(m.text()));
  return c;
}

export const link = async () => (await cli('web', '--no-open')).trim().split('\n').pop();

// open opens the page, signed in.
export async function open(c) {
  const page = await c.newPage();
  await page.goto(await link());
  await page.waitForSelector('.app');
  return page;
}

// show shows a session in the page, by its row.
export async function show(page, id) {
  await page.click(`.row[data-session="${id}"] .open`);
  await page.waitForSelector('.pane.active[data-phase="live"]');
}

// choose chooses an action in the menu of the active pane, or of a session's row in the list.
export async function choose(page, name, id) {
  await (id ? page.locator(`.row[data-session="${id}"] .more`) : page.getByRole('button', { name: 'Actions for this session' })).click();
  await page.getByRole('menuitem', { name, exact: true }).click();
}

export const SCREEN = '.pane.active .xterm-rows';

// rows are what the active terminal shows, without blanks at the end of rows.
export function rows(page, where = SCREEN) {
  return page.$eval(where, (e) => [...e.children].map((r) => r.textContent.replaceAll('\u00a0', ' ').trimEnd()));
}

// shows returns when a row of the terminal matches.
export async function shows(page, pattern, where = SCREEN) {
  try {
    await page.waitForFunction(
      ([where, source, flags]) => [...(document.querySelector(where)?.children ?? [])].some((r) => new RegExp(source, flags).test(r.textContent.replaceAll('\u00a0', ' ').trimEnd())),
      [where, pattern.source, pattern.flags], { polling: 50, timeout: LIMIT });
  } catch (err) {
    throw new Error(`no row matches ${pattern}: ${JSON.stringify(await rows(page, where).catch(String))}`, { cause: err });
  }
}

// eventually returns what f does, once that is true.
export async function eventually(what, f) {
  const end = Date.now() + LIMIT;
  for (;;) {
    const got = await f();
    if (got) return got;
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

// picture is for people to look at.
export async function picture(page, name) {
  if (!SCREENSHOTS) return;
  mkdirSync(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// faults are what axe finds on the page as it is now, of impact critical or serious. The
// rows of the terminal are a program's own, and xterm.js has a copy for screen readers.
export async function faults(page) {
  await page.evaluate(`window.axe || ${axe}; 0`);
  const { violations } = await page.evaluate(() => window.axe.run({ exclude: ['.xterm-rows'] }, { resultTypes: ['violations'] }));
  return violations.filter((v) => /critical|serious/.test(v.impact)).map((v) => `${v.impact} ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`);
}

export const status = async () => JSON.parse(await cli('status', '--json'));
