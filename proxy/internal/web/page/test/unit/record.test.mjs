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

test('the output since the recording was made follows the first screen', async () => {
  const r = new Recording(80, 24, '');
  r.wrote(bytes('early '));
  r.begin('screen ');
  r.wrote('late ');
  const smile = bytes('☺');
  r.wrote(smile.subarray(0, 1));
  r.wrote(smile.subarray(1));
  assert.equal(await recorded(r), 'screen early late ☺');
});
