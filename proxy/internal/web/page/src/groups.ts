// Which sessions the list shows, and under which headings. No DOM here: the tests run it
// as it is.

import type { SessionInfo } from 'holdfast-client';

import { command, says, title } from './words.ts';

// GroupBy is what sessions are grouped by; a label is named after the colon.
export type GroupBy = 'none' | 'state' | 'directory' | `label:${string}`;

const WORKSPACE = 'label:workspace_id';
const OWN = new Set(['title', 'workspace_id']); // labels that have a meaning of their own here

// matches reports whether each word of a query is found in what is known of a session.
export function matches(s: SessionInfo, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const labels = Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  const text = [s.id, title(s), s.title, command(s.argv), s.cwd, s.current_cwd, says(s), s.command?.line, ...labels].join('\n').toLowerCase();
  return words.every((w) => text.includes(w));
}

// choices are the ways to group these sessions, with their names.
export function choices(all: readonly SessionInfo[]): [GroupBy, string][] {
  const keys = new Set(all.flatMap((s) => Object.keys(s.labels ?? {})));
  const found: [GroupBy, string][] = [['none', 'No groups'], ['directory', 'By directory'], ['state', 'By state']];
  if (keys.has('workspace_id')) found.push([WORKSPACE, 'By workspace']);
  for (const key of [...keys].sort()) if (!OWN.has(key)) found.push([`label:${key}`, `By ${key}`]);
  return found;
}

// groupOf is the heading that a session stands under; '' if it stands under none.
export function groupOf(s: SessionInfo, by: GroupBy): string {
  switch (by) {
    case 'none':
      return '';
    case 'state':
      return says(s).replace(/^./, (c) => c.toUpperCase());
    case 'directory':
      return s.current_cwd || s.cwd;
    default:
      return s.labels?.[by.slice('label:'.length)] ?? '';
  }
}

export interface Group {
  name: string; // '' for those that stand under no heading
  sessions: SessionInfo[];
}

// grouped puts sessions into groups by name, in the order in which they come; those
// without a name come last.
export function grouped(all: readonly SessionInfo[], by: GroupBy): Group[] {
  const groups = new Map<string, SessionInfo[]>();
  for (const s of all) {
    const name = groupOf(s, by);
    const group = groups.get(name);
    if (group) group.push(s);
    else groups.set(name, [s]);
  }
  return [...groups].map(([name, sessions]) => ({ name, sessions })).sort((a, b) => Number(a.name === '') - Number(b.name === '') || a.name.localeCompare(b.name));
}
