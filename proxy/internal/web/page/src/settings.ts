// What this browser remembers: looks and permissions. Nothing of it
// is a secret, and all of it may be lost.

import type { GroupBy } from './groups.ts';

export interface Settings {
  theme: 'system' | 'light' | 'dark';
  fontSize: number; // CSS pixels
  screenReader: boolean; // xterm.js keeps a copy of its rows for screen readers
  shellIntegration: boolean; // shells that are started here tell of their commands
  groupBy: GroupBy; // of the list
  clipboard: 'ask' | 'always' | 'never'; // whether programs may write to the clipboard (OSC 52)
}

const defaults: Settings = { theme: 'system', fontSize: 14, screenReader: false, shellIntegration: false, groupBy: 'none', clipboard: 'ask' };

export const fontSizes = { min: 8, max: 32 };

const KEY = 'holdfast.settings';
const CLIPBOARD = 'holdfast.clipboard';
const REMEMBERED = 200; // sessions, by permission

export function read<T>(key: string, otherwise: T, store: Storage = localStorage): T {
  try {
    return (JSON.parse(store.getItem(key) ?? 'null') as T | null) ?? otherwise;
  } catch {
    return otherwise; // not ours, or not allowed
  }
}

export function write(key: string, value: unknown, store: Storage = localStorage): void {
  try {
    store.setItem(key, JSON.stringify(value));
  } catch {
    // full, or not allowed: then it is not remembered
  }
}

let current: Settings = { ...defaults, ...read<Partial<Settings>>(KEY, {}) };
const listeners = new Set<(s: Settings) => void>();

export const settings = (): Settings => current;

export function change(part: Partial<Settings>): void {
  current = { ...current, ...part };
  current.fontSize = Math.min(fontSizes.max, Math.max(fontSizes.min, Math.round(current.fontSize)));
  write(KEY, current);
  for (const f of listeners) f(current);
}

// onChange calls f at each change, of another window too.
export function onChange(f: (s: Settings) => void): () => void {
  listeners.add(f);
  return () => listeners.delete(f);
}

addEventListener('storage', (e) => {
  if (e.key !== KEY) return;
  current = { ...defaults, ...read<Partial<Settings>>(KEY, {}) };
  for (const f of listeners) f(current);
});

const system = matchMedia('(prefers-color-scheme: dark)');
system.addEventListener('change', () => listeners.forEach((f) => f(current)));

export const isDark = (): boolean => current.theme === 'dark' || (current.theme === 'system' && system.matches);

// A table is a small map in the browser's store, which forgets its oldest entries.
function table<T>(key: string) {
  return {
    get: (k: string): T | undefined => new Map(read<[string, T][]>(key, [])).get(k),
    set(k: string, value: T | undefined): void {
      const rest = read<[string, T][]>(key, []).filter(([name]) => name !== k);
      if (value !== undefined) rest.push([k, value]);
      write(key, rest.slice(-REMEMBERED));
    },
  };
}

// clipboard is which sessions may write to the clipboard, by instance.
export const clipboard = table<boolean>(CLIPBOARD);
