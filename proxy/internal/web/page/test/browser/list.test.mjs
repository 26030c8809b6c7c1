// The list of sessions, used by the keyboard and with a filter while sessions end.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { choose, cli, context, eventually, open, picture, show, shows, spawn } from './world.mjs';

const row = (page, id) => page.locator(`.row[data-session="${id}"]`);
const focused = (page) => page.evaluate(() => document.activeElement.closest('.row')?.dataset.session ?? document.activeElement.tagName);

async function end(page, id) {
  await cli('send', id, '--enter', 'x');
  await row(page, id).getByText('exited 2').first().waitFor();
}

test('a row keeps the focus when rows move', async () => {
  for (const id of ['row-one', 'row-two', 'row-three']) await spawn(id, 'read x; exit 2');
  const c = await context();
  const page = await open(c);
  await row(page, 'row-three').locator('.open').focus();
  await end(page, 'row-one');
  assert.equal(await focused(page), 'row-three');
  await end(page, 'row-three');
  assert.equal(await focused(page), 'row-three');

  // The focus goes to a neighbour if the row is forgotten.
  await row(page, 'row-three').locator('.more').focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await row(page, 'row-three').waitFor({ state: 'detached' });
  assert.equal(await focused(page), 'row-one');
  assert.deepEqual(c.wrongs, []);
});

test('“Forget all” forgets the sessions that the filter shows', async () => {
  for (const id of ['kept', 'dropped-one', 'dropped-two']) await spawn(id, 'read x; exit 2');
  const c = await context();
  const page = await open(c);
  for (const id of ['kept', 'dropped-one', 'dropped-two']) await end(page, id);
  await page.keyboard.press('Alt+Shift+G');
  await page.keyboard.type('dropped');
  await row(page, 'kept').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Forget all' }).click();
  await page.getByText('No session matches.').waitFor();
  await page.getByLabel('Filter the sessions').fill('');
  await row(page, 'kept').waitFor();
  const there = JSON.parse(await cli('ls', '--json')).map((s) => s.id);
  assert.ok(there.includes('kept') && !there.some((id) => id.startsWith('dropped')), there.join());
  assert.deepEqual(c.wrongs, []);
});

test('a title cannot turn the text around it', async () => {
  // U+202E writes all that follows from right to left.
  await spawn('turned', `printf '\\033]0;\\342\\200\\256evil\\007'; exec cat`);
  const c = await context();
  const page = await open(c);
  await row(page, 'turned').getByText('evil').waitFor();
  await show(page, 'turned');
  await page.keyboard.press('Alt+Shift+X');
  const dialog = page.locator('dialog[open]');
  await dialog.waitFor();
  await picture(page, 'turned');
  assert.match(await dialog.innerText(), /^evil \(turned\) and everything/m);
  assert.match(await page.title(), /^evil —/);
  assert.deepEqual(c.wrongs, []);
});

test('a window of 300 pixels has room for the search and the list of keys', async () => {
  await spawn('narrow', 'seq 300; exec cat');
  const c = await context({ viewport: { width: 300, height: 500 } });
  const page = await open(c);
  await page.getByRole('button', { name: 'Sessions' }).click();
  await show(page, 'narrow');
  await page.keyboard.press('Alt+Shift+F');
  await page.keyboard.type('1');
  await page.getByText(/ of /).waitFor();
  await picture(page, 'narrow-find');
  const inside = async (what) => {
    for (const e of await what.all()) {
      const { x, width } = await e.boundingBox();
      assert.ok(x >= 0 && x + width <= 300, `${await e.evaluate((of) => of.outerHTML.slice(0, 80))}: ${x} to ${x + width}`);
    }
  };
  await inside(page.locator('.find input, .find button, .find .count'));
  await page.locator('.find').getByRole('button', { name: 'Close' }).click();
  await page.keyboard.press('Alt+Shift+Slash');
  await page.locator('dialog[open]').waitFor();
  await picture(page, 'narrow-keys');
  await inside(page.locator('dialog td'));
  await eventually('it does not scroll sideways', () => page.locator('dialog').evaluate((e) => e.scrollWidth <= e.clientWidth));
  assert.deepEqual(c.wrongs, []);
});

test('a low pane shows all choices', async () => {
  for (let i = 0; i < 6; i++) await spawn(`choice-${i}`);
  const c = await context({ viewport: { width: 800, height: 500 } });
  const page = await open(c);
  await show(page, 'choice-0');
  for (let i = 0; i < 2; i++) await page.keyboard.press('Alt+Shift+S');
  const empty = page.locator('.pane.active .empty');
  await empty.evaluate((e) => (e.scrollTop = 0));
  await picture(page, 'low');
  const said = await empty.locator('.choices button').allInnerTexts();
  assert.equal(new Set(said).size, said.length, `two choices have the same text: ${said}`);
  assert.ok(await empty.evaluate((e) => e.scrollHeight > e.clientHeight && e.firstElementChild.getBoundingClientRect().top >= e.getBoundingClientRect().top), 'the beginning can be reached');
  assert.deepEqual(c.wrongs, []);
});

test('a search with very many matches says so', async () => {
  await spawn('very-many', 'stty -echo; read x; seq 5000; echo done; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'very-many');
  await page.keyboard.type('x\n');
  await shows(page, /^done$/);
  await page.keyboard.press('Alt+Shift+F');
  await page.keyboard.type('1');
  const count = page.locator('.find .count');
  await count.filter({ hasText: /./ }).waitFor();
  assert.equal(await count.innerText(), '1000+');
  await page.getByLabel('Find in the terminal').fill('4999');
  await count.filter({ hasText: '1 of 1' }).waitFor();
  assert.deepEqual(c.wrongs, []);
});

test('a title that was not changed in the dialog is not set', async () => {
  await spawn('named');
  const c = await context();
  const page = await open(c);
  await show(page, 'named');
  await page.keyboard.press('Alt+Shift+R');
  await page.locator('dialog[open]').waitFor();
  await cli('rename', 'named', 'by another');
  await row(page, 'named').getByText('by another').waitFor();
  await page.keyboard.press('Enter');
  await page.locator('dialog').waitFor({ state: 'detached' });
  assert.equal(JSON.parse(await cli('ls', '--json')).find((s) => s.id === 'named').labels?.title, 'by another');
  assert.deepEqual(c.wrongs, []);
});

test('the settings are those of all tabs', async () => {
  const c = await context();
  const [one, two] = [await open(c), await open(c)];
  await one.keyboard.press('Alt+Shift+P');
  await one.locator('dialog[open]').waitFor();
  await two.keyboard.press('Alt+Shift+P');
  await two.getByLabel('Theme').selectOption('light');
  await two.getByLabel('Text size').fill('99');
  await two.getByLabel('Screen reader').check();
  assert.equal(await two.getByLabel('Text size').inputValue(), '32');
  await eventually('the other dialog shows them', async () => (await one.getByLabel('Theme').inputValue()) === 'light' && (await one.getByLabel('Text size').inputValue()) === '32' && (await one.getByLabel('Screen reader').isChecked()));
  assert.deepEqual(c.wrongs, []);
});

test('a long title takes no room of others', async () => {
  await cli('new', '--detach', '--id', 'long-title', '--', 'sh', '-c', `sleep 1000 # ${'x'.repeat(100)} ${'word '.repeat(600)}`);
  const c = await context({ viewport: { width: 800, height: 500 } });
  const page = await open(c);
  const fits = (what) => page.locator(what).evaluate((e) => e.scrollWidth <= e.clientWidth);
  await page.keyboard.press('Alt+Shift+D');
  await page.locator('.pane.active .choices button').first().waitFor();
  await picture(page, 'long-choice');
  assert.ok(await fits('.pane.active .empty'), 'the choice of sessions');
  assert.ok((await page.locator('.pane.active .choices').getByText('xxx').boundingBox()).height < 50, 'a choice has one line');
  await show(page, 'long-title');
  for (const key of ['X', 'H']) {
    await page.keyboard.press(`Alt+Shift+${key}`);
    await page.locator('dialog[open]').waitFor();
    await picture(page, `long-${key}`);
    assert.ok(await fits('dialog') && await page.locator('dialog').evaluate((e) => e.scrollHeight <= e.clientHeight), `the dialog of ${key}`);
    await page.keyboard.press('Escape');
    await page.locator('dialog').waitFor({ state: 'detached' });
  }
  await choose(page, 'Details');
  await page.locator('dialog[open]').waitFor();
  await picture(page, 'long-details');
  assert.ok(await fits('dialog'), 'the details');
  assert.deepEqual(c.wrongs, []);
});

// Enter and Escape belong to the input method until it has ended. Some browsers tell the page of them.
test('a key that an input method takes does nothing else', async () => {
  for (const id of ['composed', 'uncomposed']) await spawn(id, 'echo text; exec cat');
  const c = await context();
  const page = await open(c);
  await show(page, 'uncomposed');
  await shows(page, /^text$/);
  const compose = (key) => page.evaluate((key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, isComposing: true, bubbles: true, cancelable: true })), key);
  await page.keyboard.press('Alt+Shift+G');
  await page.keyboard.type('composed');
  await compose('Enter');
  await compose('Escape');
  assert.equal(await page.getByLabel('Filter the sessions').inputValue(), 'composed');
  assert.equal(await page.locator('.row.current').getAttribute('data-session'), 'uncomposed');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Alt+Shift+F');
  await page.keyboard.type('text');
  await compose('Escape');
  assert.equal(await page.locator('.find').count(), 1);
  assert.deepEqual(c.wrongs, []);
});
