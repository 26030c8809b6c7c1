// Two versions of the sample app for Electron, whose pages are in Chromium. While a person writes a file with vim, the
// proxy is killed, and the first version quits in the middle of a word. The second version starts and replaces the
// programs, and they are replaced once more under its open page. No key is lost, and each frame of both pages shows the
// whole screen of vim.
// Arguments: the projects of both versions, a directory for files, the browser, the path of playwright-core.

import assert from 'node:assert/strict';
import { execFile, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

const [one, two, dir, executablePath, playwright] = process.argv.slice(2);
const { chromium } = createRequire(import.meta.url)(playwright);
const Holdfast = await import(pathToFileURL(join(two, 'node_modules/holdfast/dist/index.js')));
const LIMIT = 30_000; // ms for an event that must happen
const terminals = join(dir, 'terminals');

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--allow-file-access-from-files'] });
const context = await browser.newContext({ viewport: { width: 800, height: 480 } });
context.setDefaultTimeout(LIMIT);

// wait rejects if a promise takes too long.
function wait(what, promise) {
  let late;
  const never = new Promise((_, failed) => { late = setTimeout(() => failed(new Error(`never: ${what}`)), LIMIT); });
  return Promise.race([promise, never]).finally(() => clearTimeout(late));
}

// An Electron's preload script has a function require; the page has the functions that it exposes.
const preloaded = (script) => `(() => {
  const listeners = {};
  window.receive = (channel, args) => listeners[channel]?.({}, ...args.map((arg) => arg?.base64 === undefined ? arg : Uint8Array.from(atob(arg.base64), (c) => c.charCodeAt(0))));
  const electron = {
    contextBridge: { exposeInMainWorld: (name, api) => { window[name] = api; } },
    ipcRenderer: { invoke: (...args) => invokeMain(...args), send: (...args) => void sendMain(...args), on: (channel, fn) => { listeners[channel] = fn; } },
  };
  ((require) => { ${script} })(() => electron);
})()`;

// watch records each frame of the page that differs from the one before, from the moment at which the window is shown.
function watch() {
  window.frames = [];
  let last;
  const look = () => {
    const rows = [...document.querySelector('.xterm-rows').children].map((row) => row.textContent.replaceAll('\u00a0', ' ').trimEnd());
    const frame = { rows, elements: document.body.children.length };
    const text = JSON.stringify(frame);
    if (text !== last) window.frames.push(frame);
    last = text;
    requestAnimationFrame(look);
  };
  look();
}

// start starts a version of the app, and returns when its window is shown.
async function start(project) {
  const main = fork('main.js', { cwd: project, serialization: 'advanced', env: { ...process.env, SAMPLE_DATA: dir } });
  const ended = new Promise((done) => main.once('exit', done));
  const tell = (message) => main.send(message, () => {}); // the app may have ended
  const calls = new Map();
  const failures = [];
  let page, sent = Promise.resolve(), shown;
  const isShown = new Promise((done) => { shown = done; });
  const handlers = {
    async load({ window, file, preload }) {
      page = await context.newPage();
      page.on('pageerror', (err) => failures.push(err.stack));
      page.on('console', (message) => message.type() === 'error' && failures.push(message.text()));
      await page.exposeFunction('sendMain', (channel, ...args) => tell({ type: 'send', window, channel, args }));
      await page.exposeFunction('invokeMain', (channel, ...args) => new Promise((done, failed) => {
        calls.set(calls.size + 1, { done, failed });
        tell({ type: 'invoke', window, channel, args, call: calls.size });
      }));
      await page.addInitScript(preloaded(readFileSync(preload, 'utf8')));
      await page.goto(pathToFileURL(file).href);
    },
    answer({ call, value, error }) {
      if (error === undefined) calls.get(call).done(value);
      else calls.get(call).failed(new Error(error));
    },
    send: ({ channel, args }) => page.evaluate(([channel, args]) => window.receive(channel, args),
      [channel, args.map((arg) => arg instanceof Uint8Array ? { base64: Buffer.from(arg).toString('base64') } : arg)]),
    async show() {
      await page.evaluate(watch);
      shown();
    },
    async close() {
      if (!page.isClosed()) await page.close();
    },
  };
  main.on('message', (message) => {
    sent = sent.then(() => handlers[message.type](message)).catch((err) => page.isClosed() || failures.push(err.stack));
  });
  await wait('the window is shown', Promise.race([isShown, ended.then(() => { throw new Error('the app has ended'); })]));
  return {
    page, ended, failures,
    quit: () => tell({ type: 'quit' }),
    frames: () => page.evaluate(() => window.frames),
  };
}

// shows returns when the last frame is as wanted.
const shows = (page, what, wanted, ...args) => page.waitForFunction(wanted, ...args).catch(async (err) => {
  throw new Error(`${what}: never shown: ${JSON.stringify(await page.evaluate(() => window.frames.at(-1)))}`, { cause: err });
});

// checkFrames fails if a frame shows anything but vim with the text typed so far, or less of it than a frame before.
function checkFrames(frames, text) {
  let before = 0;
  for (const { rows, elements } of frames) {
    const end = rows.indexOf('~');
    const shown = rows.slice(0, end).join('\n');
    const about = `a frame shows ${JSON.stringify(rows)}`;
    assert.ok(end > 0 && text.startsWith(shown), about);
    assert.deepEqual(rows.slice(end, -1), rows.slice(end, -1).fill('~'), about);
    assert.match(rows.at(-1), /^-- INSERT --/, about);
    assert.ok(shown.trimEnd().length >= before, about);
    assert.equal(elements, 1, about);
    before = shown.trimEnd().length;
  }
}

const text = Array.from({ length: 3 }, (_, line) => Array.from({ length: 6 }, (_, word) => `word${10 + line * 6 + word}`).join(' ')).join('\n');
const typed = (page, from, to) => page.keyboard.type(text.slice(from, to), { delay: 2 });
const quitAt = text.indexOf('18') + 1, upgradeAt = text.indexOf('21') + 1;

const first = await start(one);
await first.page.keyboard.type('exec vim -Nu NONE -i NONE -n typed.txt\n');
await shows(first.page, 'vim', () => window.frames.at(-1)?.rows.some((row) => row.includes('typed.txt" [New]')));
await first.page.keyboard.type('i');
await shows(first.page, 'insert mode', () => window.frames.at(-1).rows.at(-1).startsWith('-- INSERT --'));
const inserts = await first.page.evaluate(() => window.frames.length - 1);
await typed(first.page, 0, quitAt - 1);
process.kill(Number(readFileSync(join(terminals, 'proxy.sock.lock'), 'utf8')), 'SIGKILL'); // the last key before the quit waits for another proxy
await typed(first.page, quitAt - 1, quitAt);
await first.page.evaluate(() => {}); // the browser has passed on the keys before
const firstFrames = first.frames();
first.quit();
checkFrames((await firstFrames).slice(inserts), text);
assert.equal(await wait('the first version ends', first.ended), 0);

const second = await start(two);
await typed(second.page, quitAt, upgradeAt);
const client = await Holdfast.start({ dir: terminals, programs: join(two, 'node_modules', `@holdfast/${process.platform}-${process.arch}`, 'bin') });
const { proxy: proxyBefore, supervisor } = await client.status();
assert.notEqual(supervisor.version, JSON.parse(readFileSync(join(one, 'node_modules/holdfast/package.json'))).version);
const upgrade = promisify(execFile)(join(terminals, 'programs', supervisor.version, 'proxy'), ['upgrade', '--dir', terminals]);
await typed(second.page, upgradeAt, text.length);
await upgrade;
assert.notEqual((await client.status()).proxy.pid, proxyBefore.pid);
await shows(second.page, 'the end of the text', (last) => window.frames.at(-1).rows.includes(last), text.split('\n').at(-1));
const { lines } = await client.screen({ session_id: 'shell', format: 'text' });
const frames = await second.frames();
checkFrames(frames, text);
assert.equal(frames.at(-1).rows.join('\n').trimEnd(), lines.map((row) => row.trimEnd()).join('\n').trimEnd());
await second.page.keyboard.press('Escape');
await second.page.keyboard.type(':wq\n');
assert.equal(await wait('the second version ends with its shell', second.ended), 0);
assert.equal(readFileSync(join(process.env.HOME, 'typed.txt'), 'utf8'), `${text}\n`);

// A shell that ended while the app did not run, and prints nothing when it is begun again.
await client.spawn({ session_id: 'shell', argv: ['/bin/sh', '-c', 'test -e begun && exec cat; touch begun'], cwd: dir, early_exit_ms: 0 });
await client.wait('shell');
const third = await start(two);
await third.page.keyboard.press('Control+d');
assert.equal(await wait('the version ends that has begun the shell again', third.ended), 0);
assert.deepEqual([...first.failures, ...second.failures, ...third.failures], []);
await client.close();
await browser.close();
console.log(`${text.length} keys; ${(await firstFrames).length} and ${frames.length} frames`);
