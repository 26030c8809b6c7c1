import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isOlder, isRelease } from '../dist/version.js';

// The order of semver.org, section 11, and versions of two and more digits.
test('versions are ordered', () => {
  const all = ['0.9.0', '1.0.0-alpha', '1.0.0-alpha.1', '1.0.0-alpha.beta', '1.0.0-beta', '1.0.0-beta.2', '1.0.0-beta.11', '1.0.0-rc.1', '1.0.0', '1.0.9', '1.0.10', '1.2.0', '10.0.0'];
  for (const [i, a] of all.entries()) {
    for (const [j, b] of all.entries()) assert.equal(isOlder(`v${a}`, b), i < j, `${a} older than ${b}`);
  }
  assert.equal(isOlder('1.0.0+build.1', '1.0.0+build.2'), false);
});

test('a text that is no version of a release is neither older nor newer', () => {
  for (const text of ['dev', '', 'v1', '1.2', '1.2.3.4', '4f5e6a7b8c9d', '4f5e6a7b8c9d-dirty', '1.2.x', ' 1.2.3', '1.2.3\n', '99999999999.0.0']) {
    assert.equal(isRelease(text), false, text);
    assert.equal(isOlder(text, '1.0.0'), false, text);
    assert.equal(isOlder('1.0.0', text), false, text);
  }
});
