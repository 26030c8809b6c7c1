// The data of tabs, splits and panes. This module must not use the DOM.
//
// A tab is a tree. Its leaves are panes, which show a session or the choice of sessions. Each split places two trees
// side by side or one below the other. The tree alone determines the position of a pane, so a pane's element never
// moves to another parent.

export type Direction = 'right' | 'down';
export type Way = 'left' | 'right' | 'up' | 'down';

export interface Pane {
  kind: 'pane';
  id: number;
  session?: string; // the session's id; absent: the pane shows the choice of sessions
  instance?: string;
}

export interface Split {
  kind: 'split';
  id: number;
  direction: Direction;
  ratio: number; // part of the first tree, MIN to 1-MIN
  a: Tree;
  b: Tree;
}

export type Tree = Pane | Split;

export interface Tab {
  id: number;
  root: Tree;
  active: number; // id of the active pane
}

// A Rect is a part of a tab's area. Its numbers are from 0 to 1.
export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

const MIN = 0.1;
const MAX_PANES = 16; // panes of a tab
const MAX_TABS = 64; // tabs that are taken from a saved layout

let last = 0;
const next = (): number => ++last;

export const newPane = (session?: string, instance?: string): Pane => ({ kind: 'pane', id: next(), ...(session && { session }), ...(instance && { instance }) });

export function newTab(pane: Pane = newPane()): Tab {
  return { id: next(), root: pane, active: pane.id };
}

export function panes(t: Tree): Pane[] {
  return t.kind === 'pane' ? [t] : [...panes(t.a), ...panes(t.b)];
}

export const find = (t: Tab, id: number): Pane | undefined => panes(t.root).find((p) => p.id === id);

export const activePane = (t: Tab): Pane => find(t, t.active) ?? panes(t.root)[0]!;

function replace(t: Tree, id: number, by: (old: Tree) => Tree): Tree {
  if (t.id === id) return by(t);
  return t.kind === 'pane' ? t : { ...t, a: replace(t.a, id, by), b: replace(t.b, id, by) };
}

// split adds a pane beside another one, makes it active, and returns it. It returns undefined if the tab has MAX_PANES.
export function split(t: Tab, id: number, direction: Direction): Pane | undefined {
  if (!find(t, id) || panes(t.root).length >= MAX_PANES) return undefined;
  const pane = newPane();
  t.root = replace(t.root, id, (a) => ({ kind: 'split', id: next(), direction, ratio: 0.5, a, b: pane }));
  t.active = pane.id;
  return pane;
}

// close removes a pane, and its neighbour gets the room. It returns false if the pane is the last one.
export function close(t: Tab, id: number): boolean {
  const without = (tree: Tree): Tree | undefined => {
    if (tree.kind === 'pane') return tree.id === id ? undefined : tree;
    const a = without(tree.a);
    const b = without(tree.b);
    return a && b ? { ...tree, a, b } : (a ?? b);
  };
  const order = panes(t.root).map((p) => p.id);
  const root = without(t.root);
  if (!root) return false;
  t.root = root;
  if (t.active === id) {
    const i = order.indexOf(id);
    t.active = order[i + 1] ?? order[i - 1] ?? panes(root)[0]!.id;
  }
  return true;
}

export function setRatio(t: Tab, id: number, ratio: number): void {
  t.root = replace(t.root, id, (s) => (s.kind === 'split' ? { ...s, ratio: Math.min(1 - MIN, Math.max(MIN, ratio)) } : s));
}

// rects returns the areas of all panes and splits by id.
export function rects(t: Tree, r: Rect = { x: 0, y: 0, w: 1, h: 1 }, all = new Map<number, Rect>()): Map<number, Rect> {
  all.set(t.id, r);
  if (t.kind === 'split') {
    const [a, b] = halves(r, t);
    rects(t.a, a, all);
    rects(t.b, b, all);
  }
  return all;
}

function halves(r: Rect, s: Split): [Rect, Rect] {
  if (s.direction === 'right') {
    const w = r.w * s.ratio;
    return [{ ...r, w }, { ...r, x: r.x + w, w: r.w - w }];
  }
  const h = r.h * s.ratio;
  return [{ ...r, h }, { ...r, y: r.y + h, h: r.h - h }];
}

export const splits = (t: Tree): Split[] => (t.kind === 'pane' ? [] : [t, ...splits(t.a), ...splits(t.b)]);

// neighbour returns the nearest pane in a direction from another pane.
export function neighbour(t: Tab, id: number, way: Way): Pane | undefined {
  const all = rects(t.root);
  const from = all.get(id);
  if (!from) return undefined;
  const e = 1e-6;
  const overlap = (a: number, al: number, b: number, bl: number): boolean => a < b + bl - e && b < a + al - e;
  let best: Pane | undefined;
  let bestCost = Infinity;
  for (const p of panes(t.root)) {
    const r = all.get(p.id)!;
    if (p.id === id) continue;
    const sideways = way === 'left' || way === 'right';
    if (sideways ? !overlap(r.y, r.h, from.y, from.h) : !overlap(r.x, r.w, from.x, from.w)) continue;
    const gap = { left: from.x - (r.x + r.w), right: r.x - (from.x + from.w), up: from.y - (r.y + r.h), down: r.y - (from.y + from.h) }[way];
    if (gap < -e) continue;
    const off = sideways ? Math.abs(r.y + r.h / 2 - (from.y + from.h / 2)) : Math.abs(r.x + r.w / 2 - (from.x + from.w / 2));
    if (gap * 10 + off < bestCost) [best, bestCost] = [p, gap * 10 + off];
  }
  return best;
}

// freeze returns the layout to be saved. The current tab has a mark.
export function freeze(tabs: Tab[], current: number): unknown[] {
  return tabs.map((t, i) => (i === current ? { ...t, current: true } : t));
}

// currentOf returns the index of the current tab of a saved layout, or 0 if none has the mark.
export function currentOf(saved: unknown): number {
  return Array.isArray(saved) ? Math.max(0, saved.slice(0, MAX_TABS).findIndex((t: { current?: unknown } | null) => t?.current === true)) : 0;
}

// thaw returns the tabs of a saved layout, with new ids. It returns [] if the layout is malformed.
export function thaw(saved: unknown): Tab[] {
  if (!Array.isArray(saved)) return [];
  const tree = (x: unknown, ids: Map<number, number>, depth: number): Tree => {
    const o = (x ?? {}) as Partial<Pane> & Partial<Split>;
    if ((o as { kind?: string }).kind === 'split' && depth < MAX_PANES) {
      return {
        kind: 'split', id: next(), direction: o.direction === 'down' ? 'down' : 'right',
        ratio: Math.min(1 - MIN, Math.max(MIN, Number(o.ratio) || 0.5)), a: tree(o.a, ids, depth + 1), b: tree(o.b, ids, depth + 1),
      };
    }
    const pane = newPane(typeof o.session === 'string' ? o.session : undefined, typeof o.instance === 'string' ? o.instance : undefined);
    if (typeof o.id === 'number') ids.set(o.id, pane.id);
    return pane;
  };
  return saved.slice(0, MAX_TABS).map((x: { root?: unknown; active?: number }) => {
    const ids = new Map<number, number>();
    const root = tree(x?.root, ids, 0);
    return { id: next(), root, active: ids.get(x?.active ?? -1) ?? panes(root)[0]!.id };
  });
}
