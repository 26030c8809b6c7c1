// Splits and where panes lie, without a browser.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { activePane, close, currentOf, freeze, neighbour, newTab, panes, rects, setRatio, split, splits, thaw } from '../../node_modules/.test/layout.js';

const round = (r) => Object.fromEntries(Object.entries(r).map(([k, v]) => [k, Math.round(v * 1000) / 1000]));

test('a split halves a pane, and closing it gives the room back', () => {
  const t = newTab();
  const a = activePane(t).id;
  const b = split(t, a, 'right').id;
  const c = split(t, b, 'down').id;
  assert.deepEqual(panes(t.root).map((p) => p.id), [a, b, c]);
  assert.equal(t.active, c);
  const r = rects(t.root);
  assert.deepEqual([a, b, c].map((id) => round(r.get(id))), [{ x: 0, y: 0, w: 0.5, h: 1 }, { x: 0.5, y: 0, w: 0.5, h: 0.5 }, { x: 0.5, y: 0.5, w: 0.5, h: 0.5 }]);
  assert.ok(close(t, b));
  assert.deepEqual(round(rects(t.root).get(c)), { x: 0.5, y: 0, w: 0.5, h: 1 });
  assert.ok(close(t, c));
  assert.equal(t.active, a);
  assert.ok(!close(t, a), 'the last one stays');
});

test('the neighbour is the one that is beside, nearest first', () => {
  const t = newTab();
  const a = activePane(t).id;
  const b = split(t, a, 'right').id;
  const c = split(t, b, 'down').id;
  const to = (id, way) => neighbour(t, id, way)?.id;
  assert.deepEqual([to(a, 'right'), to(b, 'left'), to(c, 'left'), to(b, 'down'), to(c, 'up'), to(a, 'left'), to(a, 'up')], [b, a, a, c, b, undefined, undefined]);
});

test('whatever is split and closed, the panes fill the whole and none is lost', () => {
  const seed = Number(process.env.HOLDFAST_SEED) || Date.now() % 2 ** 31;
  let state = seed;
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  const t = newTab();
  for (let i = 0; i < 2000; i++) {
    const all = panes(t.root);
    const p = all[random(all.length)].id;
    if (random(2)) split(t, p, random(2) ? 'right' : 'down');
    else close(t, p);
    for (const s of splits(t.root)) setRatio(t, s.id, random(1000) / 1000);
    const r = rects(t.root);
    const area = panes(t.root).reduce((sum, q) => sum + r.get(q.id).w * r.get(q.id).h, 0);
    assert.ok(Math.abs(area - 1) < 1e-9, `area ${area}, seed ${seed}`);
    assert.ok(panes(t.root).some((q) => q.id === t.active), `seed ${seed}`);
    assert.ok(panes(t.root).length <= 16, `seed ${seed}`);
  }
});

test('what was remembered comes back; what makes no sense does not harm', () => {
  const t = newTab();
  activePane(t).session = 'a';
  activePane(t).instance = '1';
  split(t, t.active, 'down').session = 'b';
  const [again] = thaw(JSON.parse(JSON.stringify([t])));
  assert.deepEqual(panes(again.root).map((p) => p.session), ['a', 'b']);
  assert.equal(activePane(again).session, 'b');
  for (const bad of [null, 1, 'x', {}]) assert.deepEqual(thaw(bad), []);
  for (const bad of [[null], [{}], [{ root: { kind: 'split' } }], [{ root: { kind: 'split', ratio: 'x', a: 1, b: [] }, active: {} }]]) {
    for (const x of thaw(bad)) assert.ok(activePane(x));
  }
});

test('a tab of nested splits is saved whole', () => {
  const t = newTab();
  while (split(t, t.active, 'right'));
  for (const [i, p] of panes(t.root).entries()) p.session = `s${i}`;
  const [after] = thaw(JSON.parse(JSON.stringify([t])));
  assert.deepEqual(panes(after.root).map((p) => p.session), Array.from({ length: 16 }, (_, i) => `s${i}`));
});

test('a saved layout tells which tab was current', () => {
  const saved = (current) => JSON.parse(JSON.stringify(freeze([newTab(), newTab(), newTab()], current)));
  assert.equal(currentOf(saved(2)), 2);
  assert.equal(thaw(saved(2)).length, 3);
  assert.equal(currentOf(freeze(thaw(saved(2)), 1)), 1, 'the mark is not kept');
  for (const none of [saved(9), [], [null, 1, {}], null, 'x', Array.from({ length: 99 }, (_, i) => ({ current: i === 98 }))]) assert.equal(currentOf(none), 0);
});
