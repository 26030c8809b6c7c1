// The sessions of all hosts of a gate, as the list of the page shows them. This module must not use the DOM, because
// tests run it in Node.

import type { HostInfo, SessionInfo, SessionRow } from 'holdfast';

// fullName returns the name of a session at a gate.
export const fullName = (host: string, id: string): string => `${host}/${id}`;

// split splits the name of a session at a gate.
export function split(name: string): { host: string; id: string } {
  const slash = name.indexOf('/');
  return { host: name.slice(0, Math.max(slash, 0)), id: name.slice(slash + 1) };
}

// hostState returns one word for the state of a host. unreachable: the host cannot be reached, or the gate cannot.
export function hostState(h: HostInfo | undefined): 'ready' | 'idle' | 'unreachable' {
  if (!h?.reachable) return 'unreachable';
  return h.serving ? 'ready' : 'idle';
}

// ofHost returns a session with its name at the gate.
export const ofHost = (host: string, s: SessionInfo): SessionInfo => ({ ...s, id: fullName(host, s.id) });

// unknown returns a session whose host cannot be reached: it may live or may have ended. A session that has ended has
// no other state later.
export const unknown = (s: SessionInfo): SessionInfo => (['exited', 'lost'].includes(s.state) ? s : { ...s, state: 'unknown' as SessionInfo['state'] });

// fromRow returns what the gate knows of a session.
export function fromRow(row: SessionRow): SessionInfo {
  return {
    id: fullName(row.host, row.id), instance: row.instance, pid: 0, state: row.state as SessionInfo['state'], size: { cols: row.cols, rows: row.rows },
    argv: row.command ? ['/bin/sh', '-c', row.command] : [], cwd: '', created_at: row.created_at, last_io_at: row.created_at, output_offset: 0, ring_start: 0,
    scrollback_lines: 0, attachments: 0, ...(row.title && { title: row.title }), ...(row.labels && { labels: row.labels }),
    ...(row.exit_code !== undefined && { exit_code: row.exit_code }),
  };
}

// merge returns the sessions of all hosts. details are the sessions of the hosts that have answered themselves. A
// session of a host that has not answered keeps its place in the list: its host may have more sessions than the gate
// knows, because a gate that has just started has not heard all of them.
export function merge(hosts: readonly HostInfo[], rows: readonly SessionRow[], details: ReadonlyMap<string, SessionInfo[]>, before: readonly SessionInfo[], open: ReadonlySet<string>): SessionInfo[] {
  const all = new Map<string, SessionInfo>();
  const states = new Map(hosts.map((h) => [h.name, hostState(h)]));
  for (const s of before) {
    const { host } = split(s.id);
    const state = states.get(host);
    if (state === 'unreachable' || (state !== undefined && open.has(host) && !details.has(host))) all.set(s.id, state === 'unreachable' ? unknown(s) : s);
  }
  for (const row of rows) {
    if (details.has(row.host)) continue;
    const s = fromRow(row);
    const old = all.get(s.id);
    all.set(s.id, old?.instance === s.instance ? { ...old, state: s.state } : s);
  }
  for (const sessions of details.values()) for (const s of sessions) all.set(s.id, s);
  return [...all.values()];
}
