// The stored settings, in a browser that does not permit the access to its store.

import assert from 'node:assert/strict';
import { test } from 'node:test';

test('a page whose browser refuses its store has the defaults', async () => {
  const refused = () => {
    throw new DOMException('The operation is insecure.', 'SecurityError');
  };
  for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(globalThis, name, { get: refused, configurable: true });
  globalThis.addEventListener = () => {};
  globalThis.matchMedia = () => ({ matches: false, addEventListener() {} });
  const { change, clipboard, read, settings, write } = await import('../../node_modules/.test/settings.js');
  assert.equal(settings().fontSize, 14);
  change({ fontSize: 20 });
  assert.equal(settings().fontSize, 20);
  clipboard.set('instance', true);
  assert.equal(clipboard.get('instance'), undefined);
  for (const store of ['localStorage', 'sessionStorage']) {
    write('key', 1, store);
    assert.equal(read('key', 2, store), 2);
  }
});
