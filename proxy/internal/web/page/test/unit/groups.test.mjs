// Which sessions the list shows, and under which headings.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { choices, grouped, matches } from '../../node_modules/.test/groups.js';

const session = (id, more = {}) => ({ id, argv: ['/bin/sleep', '1000'], cwd: '/home/ada', state: 'running', ...more });

test('each word of a filter is found somewhere', () => {
  const s = session('a1b2', { title: 'API Server', current_cwd: '/srv/shop', labels: { workspace_id: 'w7', team: 'blue' }, command: { prompt: false, line: 'go test', count: 1 } });
  for (const [query, want] of [['', true], ['  ', true], ['api', true], ['SERVER shop', true], ['a1b', true], ['sleep', true], ['team=blue', true], ['go test busy', true], ['w7', true], ['api green', false], ['running', false]]) {
    assert.equal(matches(s, query), want, query);
  }
});

test('groups are by directory, state or label, and come by name', () => {
  const all = [
    session('c', { current_cwd: '/b', labels: { team: 'red' } }), session('a', { cwd: '/a', labels: { team: 'blue', workspace_id: 'w', title: 'T' } }),
    session('b', { cwd: '/a', command: { prompt: false, count: 1 } }),
  ];
  const of = (by) => grouped(all, by).map((g) => `${g.name}: ${g.sessions.map((s) => s.id)}`);
  assert.deepEqual(of('none'), [': c,a,b']);
  assert.deepEqual(of('directory'), ['/a: a,b', '/b: c']);
  assert.deepEqual(of('state'), ['Busy: b', 'Running: c,a']);
  assert.deepEqual(of('label:team'), ['blue: a', 'red: c', ': b']);
  assert.deepEqual(of('label:workspace_id'), ['w: a', ': c,b']);
  assert.deepEqual(choices(all).map(([by]) => by), ['none', 'directory', 'state', 'label:workspace_id', 'label:team']);
});
