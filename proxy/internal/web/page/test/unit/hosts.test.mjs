// The sessions of the hosts of a gate, and what is known of them while a host cannot be reached.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fromRow, fullName, hostState, merge, ofHost, split, unknown } from '../../node_modules/.test/hosts.js';
import { says, title } from '../../node_modules/.test/words.js';

const host = (name, reachable = true, serving = true) => ({ name, reachable, serving, sessions: 0, running: 0 });
const row = (name, more = {}) => ({ ...split(name), instance: `i-${name}`, state: 'running', cols: 80, rows: 24, command: 'make all', created_at: '2026-01-02T03:04:05Z', ...more });
const states = (all) => Object.fromEntries(all.map((s) => [s.id, s.state]));

test('names', () => {
  assert.deepEqual(split('red/a'), { host: 'red', id: 'a' });
  assert.deepEqual(split('a'), { host: '', id: 'a' });
  assert.equal(fullName('red', 'a'), 'red/a');
  assert.equal(ofHost('red', { id: 'a', state: 'running' }).id, 'red/a');
});

test('states of hosts', () => {
  assert.deepEqual([host('a'), host('a', true, false), host('a', false), host('a', false, false), undefined].map(hostState), ['ready', 'idle', 'unreachable', 'unreachable', 'unreachable']);
});

test('a row is shown as a session', () => {
  const s = fromRow(row('red/a', { title: 'T', labels: { team: 'x' }, exit_code: 3 }));
  assert.deepEqual([s.id, title(s), s.labels.team, s.exit_code, s.size.cols], ['red/a', 'T', 'x', 3, 80]);
  assert.equal(title(fromRow(row('red/a'))), 'make all');
  assert.equal(says(fromRow(row('red/a', { state: 'unknown' }))), 'unknown');
});

test('sessions of a host that cannot be reached are unknown, and never exited', () => {
  const before = [fromRow(row('red/a')), fromRow(row('red/b', { state: 'exited' })), fromRow(row('blue/c'))];
  for (const hosts of [[host('red', false), host('blue', false)], [host('red', false), host('blue')]]) {
    const all = states(merge(hosts, [row('blue/c')], new Map(), before, new Set()));
    assert.deepEqual([all['red/a'], all['red/b']], ['unknown', 'exited']);
  }
  assert.equal(unknown({ state: 'lost' }).state, 'lost');
});

test('a gate that has just started does not know all sessions', () => {
  const before = [fromRow(row('red/a'))];
  assert.deepEqual(states(merge([host('red', false)], [row('red/b', { state: 'unknown' })], new Map(), before, new Set())), { 'red/a': 'unknown', 'red/b': 'unknown' });
  assert.deepEqual(states(merge([host('red')], [], new Map(), before, new Set(['red']))), { 'red/a': 'running' }, 'the page has entered the host, which has not answered yet');
  assert.deepEqual(states(merge([host('red')], [], new Map(), before, new Set())), {});
});

test('the answer of a host replaces what the gate knows, and a host that has left has no sessions', () => {
  const before = [fromRow(row('red/a')), fromRow(row('gone/b'))];
  const details = new Map([['red', [{ ...before[0], id: 'red/n' }]]]);
  assert.deepEqual(states(merge([host('red')], [row('red/a')], details, before, new Set(['red']))), { 'red/n': 'running' });
});

test('a session that was started again has another instance', () => {
  const [s] = merge([host('red', false)], [row('red/a', { instance: 'new', state: 'unknown' })], new Map(), [{ ...fromRow(row('red/a')), cwd: '/old' }], new Set());
  assert.deepEqual([s.instance, s.cwd], ['new', '']);
});
