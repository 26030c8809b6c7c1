// Moments of a session's past: times, steps and commands.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { clamp, jump, labels, printed, says, step, withCommands } from '../../node_modules/.test/moments.js';

const day = '2026-09-01T10:00:';
const past = {
  instance: 'i', mode: 'full', start: 100, end: 1000, start_at: `${day}00Z`, end_at: `${day}59Z`,
  times: [{ offset: 100, at: `${day}10Z` }, { offset: 400, at: `${day}20Z` }],
  commands: [{ line: 'ls', start: 110, end: 200, started_at: '', finished_at: '' }, { line: 'make\nall', start: 300, end: 600, exit_code: 2, started_at: '', finished_at: '' }],
};

test('the time of an offset is that of the output before it', () => {
  const second = (offset) => new Date(printed(past, offset)).getSeconds();
  assert.deepEqual([100, 101, 400, 401, 999, 1000].map(second), [0, 10, 10, 20, 20, 59]);
  assert.equal(printed({ start: 0, end: 9, times: [] }, 5), undefined);
  assert.equal(labels(past, 5).length, 5);
});

test('arrow keys move by samples, or by hundredths if there are few', () => {
  assert.deepEqual([step(past, 500, 1), step(past, 500, -1), step(past, 1000, 1), step(past, 100, -1)], [509, 491, 1000, 100]);
  const many = { ...past, times: Array.from({ length: 30 }, (_, i) => ({ offset: 110 + 10 * i, at: `${day}10Z` })) };
  assert.deepEqual([step(many, 115, 1), step(many, 115, -1), step(many, 110, -1), step(many, 400, 1), step(many, 1000, 1)], [120, 110, 100, 1000, 1000]);
  assert.deepEqual([clamp(past, -5), clamp(past, 5000), clamp(past, 150.4)], [100, 1000, 150]);
});

test('commands', () => {
  assert.deepEqual([jump(past, 1000, -1), jump(past, 600, -1), jump(past, 200, -1), jump(past, 100, 1), jump(past, 600, 1)], [600, 200, undefined, 200, undefined]);
  assert.match(says(past, 150, undefined), /^byte 150 · during ls$/);
  assert.match(says(past, 250, Date.parse(`${day}30Z`)), / · byte 250 · after ls$/);
  assert.match(says(past, 1000, undefined), /after make all, which exited 2$/);
  assert.equal(says(past, 105, undefined), 'byte 105');
});

test('the commands of the supervisor continue those of the store', () => {
  const of = (line, start, end) => ({ line, count: 1, prompt: true, output: { start, end } });
  const all = withCommands(past, [of('make all', 300, 600), of('late', 700, 800), of('runs', 900, undefined), of('newer than the store', 990, 1100), { line: 'unknown', count: 1 }]);
  assert.deepEqual(all.commands.map((c) => c.end), [200, 600, 800]);
  const timed = withCommands(past, [{ ...of('late', 700, 800), started_at: `${day}25Z`, finished_at: `${day}30Z` }]);
  assert.deepEqual(timed.times.map((t) => t.offset), [100, 400, 700, 800]);
  const late = withCommands({ ...past, times: [{ offset: 690, at: `${day}26Z` }] }, [{ ...of('late', 700, 800), started_at: `${day}25Z`, finished_at: `${day}30Z` }]);
  assert.deepEqual(late.times.map((t) => t.at), ['25', '25', '30'].map((s) => `${day}${s}.000Z`), 'times do not go back');
  assert.deepEqual(withCommands({ ...past, commands: undefined }, [of('gone', 10, 90), of('ls', 110, 200)]).commands.map((c) => c.end), [200]);
});
