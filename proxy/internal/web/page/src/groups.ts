// The filter and the groups of the list of sessions. This module must not use the DOM, because tests run it in Node.

import type { SessionInfo } from 'holdfast';

import { split } from './hosts.ts';
import { command, says, title } from './words.ts';

// GroupBy tells how sessions are grouped. The name of a label follows the colon.
export type GroupBy = 'none' | 'host' | 'state' | 'directory' | `label:${string}`;

const WORKSPACE = 'label:workspace_id';
const OWN = new Set(['title', 'workspace_id']); // labels that are not offered by name

// matches reports whether the description of a session contains each word of a query.
export function matches(s: SessionInfo, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const labels = Object.entries(s.labels ?? {}).map(([k, v]) => `${k}=${v}`);
  const text = [s.id, title(s), s.title, command(s.argv), s.cwd, s.current_cwd, says(s), s.command?.line, ...labels].join('\n').toLowerCase();
  return words.every((w) => text.includes(w));
}

// choices returns the ways to group these sessions, with their names. At a gate, sessions are grouped by host unless
// the user has chosen another way.
export function choices(all: readonly SessionInfo[], atGate = false): [GroupBy, string][] {
  const keys = new Set(all.flatMap((s) => Object.keys(s.labels ?? {})));
  const found: [GroupBy, string][] = [atGate ? ['host', 'By host'] : ['none', 'No groups'], ['directory', 'By directory'], ['state', 'By state']];
  if (keys.has('workspace_id')) found.push([WORKSPACE, 'By workspace']);
  for (const key of [...keys].sort()) if (!OWN.has(key)) found.push([`label:${key}`, `By ${key}`]);
  return found;
}

// groupOf returns the heading of a session's group, or '' if the session has no group.
export function groupOf(s: SessionInfo, by: GroupBy): string {
  switch (by) {
    case 'none':
      return '';
    case 'host':
      return split(s.id).host;
    case 'state':
      return says(s).replace(/^./, (c) => c.toUpperCase());
    case 'directory':
      return s.current_cwd || s.cwd;
    default:
      return s.labels?.[by.slice('label:'.length)] ?? '';
  }
}

export interface Group {
  name: string; // '' for sessions without a group
  sessions: SessionInfo[];
}

// grouped returns the groups, sorted by name. Sessions keep their order. The group without a name is the last one.
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
