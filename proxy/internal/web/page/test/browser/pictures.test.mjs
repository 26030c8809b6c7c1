// Pictures look the same in a page that has seen them being printed, and in one that attaches later, also
// after the supervisor has died. A page whose cells have another size sees them, too.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { deflateSync } from 'node:zlib';

import { cli, context, eventually, open, picture, show, shows, status } from './world.mjs';

const { HOLDFAST_DIR } = process.env;

// crc is the checksum of PNG (RFC 2083, section 3.4).
function crc(bytes) {
  let c = ~0;
  for (const b of bytes) {
    c ^= b;
    for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
  }
  return ~c >>> 0;
}

// png is a file in which each pixel differs from its neighbours.
function png(width, height) {
  const number = (n) => Buffer.from([n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255]);
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    return Buffer.concat([number(data.length), body, number(crc(body))]);
  };
  const rows = [];
  for (let y = 0; y < height; y++) {
    rows.push(0);
    for (let x = 0; x < width; x++) rows.push((x * 7) & 255, (y * 5) & 255, ((x ^ y) * 3) & 255);
  }
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', Buffer.concat([number(width), number(height), Buffer.from([8, 2, 0, 0, 0])])),
    chunk('IDAT', deflateSync(Buffer.from(rows))), chunk('IEND', Buffer.alloc(0))]);
}

function inline(width, height, args = '') {
  const file = png(width, height);
  return `\x1b]1337;File=inline=1;size=${file.length}${args}:${file.toString('base64')}\x07`;
}

const sixel = (width, bands, background) => `\x1bP0;${background}q#1;2;80;20;10#2;2;10;60;90${Array.from({ length: bands }, (_, i) => `#${1 + i % 2}!${width - i}~$#2!${i + 1}A`).join('-')}\x1b\\`;

// What is printed: pictures in the lines above the screen and on it, beside text, under text, cut by the edge of the
// screen, and moved within a line.
const printed = [
  'first\r\n', inline(180, 90), ' beside\r\n', sixel(120, 12, 0), '\r\n', ...Array.from({ length: 40 }, (_, i) => `line ${i}\r\n`),
  inline(333, 77, ';width=20;preserveAspectRatio=0'), '\r\n', '\x1b[44m', sixel(97, 9, 0), '\x1b[0m\r\n', sixel(60, 5, 1), '\r\n',
  inline(200, 60), '\x1b[2A\x1b[5Gtext over it\x1b[3B\r\n', inline(100, 40), '\r\x1b[4@\r\n', '\x1b[200C', inline(90, 30), '\r\n',
  'the end\r\n',
].join('');

const screen = (page) => page.locator('.pane.active .xterm-screen').screenshot();

// settled is a picture of the terminal that does not change any more.
async function settled(page) {
  let last = await screen(page);
  await eventually('the terminal is painted', async () => {
    const now = await screen(page), same = now.equals(last);
    last = now;
    return same;
  });
  return last;
}

// attachedAgain reloads the page, and returns what the terminal shows then.
async function attachedAgain(page) {
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await shows(page, /^the end$/);
  return settled(page);
}

// different is the number of pixels in which two screenshots differ.
function different(page, a, b) {
  return page.evaluate(async (files) => {
    const [one, other] = await Promise.all(files.map(async (file) => {
      const bytes = Uint8Array.from(atob(file), (c) => c.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
      const on = new OffscreenCanvas(image.width, image.height).getContext('2d');
      on.drawImage(image, 0, 0);
      return new Uint32Array(on.getImageData(0, 0, image.width, image.height).data.buffer);
    }));
    return one.length === other.length ? one.reduce((n, pixel, i) => n + (pixel === other[i] ? 0 : 1), 0) : Infinity;
  }, [a.toString('base64'), b.toString('base64')]);
}

// A picture that is shown in part ends at a whole pixel, but a cell of the page may end within one. The parts
// that are printed above have three such edges, each as high as a row.
const EDGES = 3 * 20;

async function same(page, live, what) {
  const count = await different(page, live, await settled(page));
  assert.ok(count <= EDGES, `${count} pixels differ ${what}`);
}

test('pictures are the same for a page that attaches later', async () => {
  const file = join(HOLDFAST_DIR, 'pictures');
  writeFileSync(file, printed);
  await cli('new', '--detach', '--id', 'pictures', '--', '/bin/sh', '-c', `stty -echo; echo ready; read go; cat '${file}'; read go; printf '\\033[2J\\033[Hnone\\n'; read go`);
  const c = await context();
  const page = await open(c);
  await show(page, 'pictures');
  await shows(page, /^ready$/);
  const size = await page.$eval('.pane.active .xterm-rows', (e) => e.children.length);
  await eventually('the session has the size of the page', async () => JSON.parse(await cli('ls', '--json')).find((s) => s.id === 'pictures').size.rows === size);
  await page.keyboard.press('Enter');
  await shows(page, /^the end$/);
  const live = await settled(page);
  await picture(page, 'pictures-live');
  const canvas = await page.locator('.pane.active .xterm-image-layer').count();
  assert.equal(canvas, 1, 'the page shows pictures');

  await attachedAgain(page);
  await picture(page, 'pictures-later');
  await same(page, live, 'after attaching again');
  const up = () => page.locator('.pane.active .xterm').evaluate((e) => e.dispatchEvent(new WheelEvent('wheel', { deltaY: -700, bubbles: true })));
  await up();
  await picture(page, 'pictures-above');

  const before = (await status()).supervisor.pid;
  process.kill(before, 'SIGKILL');
  await eventually('another supervisor serves', async () => status().then((s) => s.supervisor.pid !== before, () => false));
  await attachedAgain(page);
  await picture(page, 'pictures-after-death');
  await same(page, live, 'after the death of the supervisor');

  const small = await open(await context({ viewport: { width: 1500, height: 1000 }, deviceScaleFactor: 1.5 }));
  await show(small, 'pictures');
  await shows(small, /^the end$/);
  await eventually('a page with other cells shows pictures', async () => (await small.locator('.pane.active .xterm-image-layer').count()) === 1);
  await picture(small, 'pictures-other-cells');
  await small.context().close();

  await page.locator('.pane.active .xterm').click();
  await page.keyboard.press('Enter');
  await shows(page, /^none$/);
  assert.deepEqual(c.wrongs, []);
});

// red is the number of pixels of the terminal that are pure red.
async function red(page) {
  return page.evaluate(async (file) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(atob(file), (c) => c.charCodeAt(0))], { type: 'image/png' }));
    const on = new OffscreenCanvas(image.width, image.height).getContext('2d');
    on.drawImage(image, 0, 0);
    return new Uint32Array(on.getImageData(0, 0, image.width, image.height).data.buffer).reduce((n, pixel) => n + (pixel === 0xff0000ff ? 1 : 0), 0);
  }, (await screen(page)).toString('base64'));
}

test('a picture of kitty, whose protocol the page does not know, is shown, deleted, and placed by text', async () => {
  const file = join(HOLDFAST_DIR, 'kitty');
  const pixels = Buffer.concat(Array.from({ length: 50 * 40 }, () => Buffer.from([255, 0, 0]))).toString('base64');
  const chunks = pixels.match(/.{1,4096}/g);
  writeFileSync(file, chunks.map((chunk, i) => `\x1b_G${i ? '' : 'a=T,i=7,q=2,f=24,s=50,v=40,'}m=${i < chunks.length - 1 ? 1 : 0};${chunk}\x1b\\`).join('') + '\r\nbelow\r\n');
  const byText = join(HOLDFAST_DIR, 'kitty-by-text');
  const placeholders = [0x305, 0x30d].map((row) => String.fromCodePoint(0x10eeee, row).padEnd(3 + 2 * 4, String.fromCodePoint(0x10eeee))).join('\r\n');
  writeFileSync(byText, `\x1b_Ga=p,U=1,i=7,q=2,c=5,r=2\x1b\\\x1b[38;5;7m${placeholders}\x1b[m\r\nplaced\r\n`);
  await cli('new', '--detach', '--id', 'kitty', '--', '/bin/sh', '-c', `stty -echo; echo ready; read go; cat '${file}'; read go; printf '\\033_Ga=d,d=i,i=7\\033\\\\gone\\n'; read go; cat '${byText}'; read go`);
  const c = await context();
  const page = await open(c);
  await show(page, 'kitty');
  await shows(page, /^ready$/);
  await page.keyboard.press('Enter');
  await shows(page, /^below$/);
  await eventually('the picture is shown', async () => (await red(page)) >= 49 * 39);
  await page.keyboard.press('Enter');
  await shows(page, /^gone$/);
  await eventually('the picture is gone', async () => (await red(page)) === 0);
  await page.keyboard.press('Enter');
  await shows(page, /^placed$/);
  await eventually('text places the picture', async () => (await red(page)) > 30 * 30);
  await picture(page, 'pictures-by-text');
  await page.reload();
  await page.waitForSelector('.pane.active[data-phase="live"]');
  await eventually('a page that attaches later shows it, too', async () => (await red(page)) > 30 * 30);
  assert.deepEqual(c.wrongs, []);
});
