// The settings and permissions that this browser stores. They contain no secrets, and may be lost.

import type { GroupBy } from './groups.ts';

export interface Settings {
  theme: 'system' | 'light' | 'dark';
  fontSize: number; // CSS pixels
  screenReader: boolean; // xterm.js provides its rows to screen readers
  shellIntegration: boolean; // shells that are started here report their commands
  groupBy: GroupBy; // groups of the list
  clipboard: 'ask' | 'always' | 'never'; // whether programs may write to the clipboard (OSC 52)
}

const defaults: Settings = { theme: 'system', fontSize: 14, screenReader: false, shellIntegration: false, groupBy: 'none', clipboard: 'ask' };

export const fontSizes = { min: 8, max: 32 };

const KEY = 'holdfast.settings';
const CLIPBOARD = 'holdfast.clipboard';
const REMEMBERED = 200; // number of sessions whose permission is stored

// A Store is the name of a store. It is no Storage, because even naming that throws if the browser does not permit the access.
export type Store = 'localStorage' | 'sessionStorage';

export function read<T>(key: string, otherwise: T, store: Store = 'localStorage'): T {
  try {
    return (JSON.parse(globalThis[store].getItem(key) ?? 'null') as T | null) ?? otherwise;
  } catch {
    return otherwise; // the value is malformed, or the browser does not permit the access
  }
}

export function write(key: string, value: unknown, store: Store = 'localStorage'): void {
  try {
    globalThis[store].setItem(key, JSON.stringify(value));
  } catch {
    // the store is full, or the browser does not permit the access, so the value is not stored
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

// onChange calls f after each change, also after changes in other windows.
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

// A table is a map in the browser's store. It contains the newest entries, at most REMEMBERED.
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

// clipboard contains the permission of sessions to write to the clipboard, by instance.
export const clipboard = table<boolean>(CLIPBOARD);
