// Recordings: the first screen and the output behind it.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Recording } from '../../node_modules/.test/record.js';

const bytes = (text) => new TextEncoder().encode(text);

// recorded returns what a recording shows, without its head.
async function recorded(r) {
  const [, ...events] = (await r.file().text()).trimEnd().split('\n').map(JSON.parse);
  return events.map((e) => e[2]).join('');
}

test('each byte behind the first screen is recorded once', async () => {
  for (const [name, early, offset, received, late, want] of [
    ['the terminal is ahead', [['ab', 12], ['cd', 14]], 11, 14, [['ef', 16]], 'bcdef'],
    ['the terminal is behind', [], 13, 10, [['ab', 12], ['cd', 14], ['ef', 16]], 'def'],
    ['a piece ends with the screen', [['ab', 12]], 12, 12, [['cd', 14]], 'cd'],
    ['the end of the session, without output', [], 10, 10, [['[exited]', 10]], '[exited]'],
  ]) {
    const r = new Recording(80, 24, '');
    for (const [text, end] of early) r.wrote(bytes(text), end);
    r.begin('screen ', offset, received);
    for (const [text, end] of late) r.wrote(bytes(text), end);
    assert.equal(await recorded(r), `screen ${want}`, name);
  }
});

test('a snapshot before the first screen replaces it', async () => {
  const r = new Recording(80, 24, '');
  r.wrote(bytes('lost'), 14);
  r.anew();
  r.wrote(bytes('snapshot'), 14);
  r.begin('screen', 20, 30);
  r.wrote(bytes('more'), 34);
  assert.equal(await recorded(r), 'snapshotmore');
});
