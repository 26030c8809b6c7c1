// Exports of a session to a file: its lines as text, or its output.

import type { HistoryContent, HistoryLine, SessionInfo } from 'holdfast';

import type { Client } from './client.ts';
import { save } from './record.ts';

const LINES = 2000; // lines in one request
const ALL = 2 ** 52; // greater than any line number, so that the screen's lines are included

export async function exportText(client: Client, s: SessionInfo): Promise<void> {
  const lines: HistoryLine[] = []; // newest first
  for (let before: number | undefined = ALL; before !== undefined;) {
    const got: HistoryContent = await client.history({ session_id: s.id, lines: LINES, before });
    lines.push(...got.lines);
    before = got.more ? got.lines.at(-1)?.line : undefined;
  }
  const text = lines.reverse().map((l) => l.spans.map((span) => span.t).join('').trimEnd()).join('\n').trimEnd();
  save(`${s.id}.txt`, new Blob([`${text}\n`], { type: 'text/plain' }));
}

// exportBytes exports the output up to its present end, because a session may print faster than the page receives.
export async function exportBytes(client: Client, s: SessionInfo): Promise<void> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let offset = s.ring_start, end: number | undefined; end === undefined || offset < end;) {
    const got = await client.scrollback(s.id, offset);
    if (got.data.length === 0) break;
    parts.push(new Uint8Array(got.data));
    offset = got.offset + got.data.length;
    end ??= got.end;
  }
  save(`${s.id}.ansi`, new Blob(parts, { type: 'application/octet-stream' }));
}
