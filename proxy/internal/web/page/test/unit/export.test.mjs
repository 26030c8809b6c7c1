// Exports of a session to a file.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { exportBytes } from '../../node_modules/.test/export.js';

test('the export of a session that prints all the time ends', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] }); // the file is released a minute later
  globalThis.document = { createElement: () => ({ click: () => undefined }) };
  let asked = 0;
  const client = {
    scrollback: async (_, offset) => {
      if (++asked > 10) throw new Error('there is no end');
      return { offset, data: new Uint8Array(10), end: offset + 25 };
    },
  };
  await exportBytes(client, { id: 's', ring_start: 5 });
  assert.equal(asked, 3);
});
