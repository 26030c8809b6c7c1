// Texts that describe sessions. This module must not use the DOM, because tests run it in Node.

import type { SessionInfo } from 'holdfast';

const DAY = 24 * 60 * 60;

// ago returns the time since a moment as a short text.
export function ago(then: Date | string, now: number = Date.now()): string {
  const s = Math.max(0, Math.round((now - new Date(then).getTime()) / 1000));
  if (!Number.isFinite(s)) return '';
  if (s < 10) return 'now';
  if (s < 60) return `${s} s`;
  if (s < 60 * 60) return `${Math.floor(s / 60)} min`;
  if (s < DAY) return `${Math.floor(s / 3600)} h`;
  return s < 2 * DAY ? '1 day' : `${Math.floor(s / DAY)} days`;
}

// took returns a duration as a short text: 0.4 s, 12 s, 3 min.
export function took(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 60_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}


// command returns an argv as a command line.
export function command(argv: readonly string[]): string {
  if (argv.length === 3 && argv[0] === '/bin/sh' && argv[1] === '-c') return argv[2] ?? '';
  return argv.map((a, i) => (i === 0 ? (a.split('/').pop() ?? a) : /^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", `'\\''`)}'`)).join(' ');
}

// parse converts a command line to an argv. It splits words and removes quotes. If the line has other syntax of a shell,
// the argv runs the shell. An empty line returns [], which stands for the login shell.
export function parse(line: string): string[] {
  line = line.trim();
  if (line === '') return [];
  if (/[|&;<>()$`*?~#\n\\]|\[|^\w+=/.test(line)) return ['/bin/sh', '-c', line];
  const words: string[] = [];
  let word: string | undefined;
  let quote = '';
  for (const c of line) {
    if (quote) {
      if (c === quote) quote = '';
      else word += c;
    } else if (c === '"' || c === "'") {
      quote = c;
      word ??= '';
    } else if (c === ' ' || c === '\t') {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? '') + c;
  }
  if (quote) return ['/bin/sh', '-c', line]; // the shell reports the missing quote
  if (word !== undefined) words.push(word);
  return words;
}

// undirected removes the characters that set the direction of the text behind them, because the page writes text of its
// own behind that of a session.
const undirected = (text = ''): string => text.replaceAll(/[\u202a-\u202e\u2066-\u2069]/g, '');

// title returns the title that the user has set, or else the program's, the command or the id.
export function title(s: SessionInfo): string {
  return undirected(s.labels?.title) || undirected(s.title) || undirected(command(s.argv)) || s.id;
}

// runs returns the name of the foreground program if it is not the session's child, and 'stopped' if the child is
// stopped.
export function runs(s: SessionInfo): string {
  if (s.foreground?.stopped) return 'stopped';
  return s.foreground && s.foreground.pid !== s.pid ? (s.foreground.name ?? '') : '';
}

// place returns the session's directory, or its end if it is long.
export function place(s: SessionInfo): string {
  const path = s.current_cwd || s.foreground?.cwd || s.cwd;
  return path.length <= 28 ? path : `…/${path.split('/').slice(-2).join('/').slice(-40)}`;
}

// ended describes how a session ended. It returns '' if the session has not ended.
export function ended(s: SessionInfo): string {
  if (s.state === 'lost') return 'lost with the machine';
  if (s.state !== 'exited' && s.state !== 'forgotten') return '';
  if (s.exit?.timed_out) return 'timed out';
  if (s.exit?.reason === 'user_requested') return s.exit.ended_by ? `ended by ${s.exit.ended_by}` : 'ended on request';
  if (s.exit?.signal) return `killed by ${s.exit.signal}`;
  return `exited ${s.exit_code ?? s.exit?.exit_code ?? ''}`.trim();
}

// loss describes a lost session: when it was stored last, its last command, and which screen is shown.
export function loss(s: SessionInfo, now: number = Date.now()): string {
  const seen = s.lost?.seen_at ?? s.last_io_at;
  const since = ago(seen, now);
  const did = short((s.command && !s.command.prompt && s.command.line) || command(s.argv));
  return `Lost with the machine. Last seen ${moment(seen)}${since ? ` (${since === 'now' ? 'just now' : `${since} ago`})` : ''}; it ran ${did}. `
    + `Its screen is exact up to byte ${(s.lost?.offset ?? s.output_offset).toLocaleString('en')} of its output.`;
}

// short returns the beginning of a text, in one line.
export function short(text: string): string {
  const line = undirected(text).replaceAll(/\s+/g, ' ').trim();
  return line.length <= 60 ? line : `${line.slice(0, 59)}…`;
}

// moment returns a time with its date.
export function moment(at: Date | string | number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

// A Revival is a new child for a lost session: the changes for reopen, and a description.
export interface Revival {
  argv?: string[];
  cwd?: string;
  says: string;
}

const RESUME = 'resume_argv'; // the label with the command that continues a session's work
const SHELL = ['/bin/sh', '-c', 'exec "${SHELL:-/bin/sh}" -l'];

// revival returns what starts a lost session again: the command of its label, or else a login shell. It returns the command
// that was lost only if that was a login shell, or if the label revive is argv and no secret is missing in the command. With
// the label revive=shell it returns a shell. It returns an error if the label resume_argv is malformed.
export function revival(s: SessionInfo): Revival | Error {
  const cwd = s.lost?.cwd || s.cwd;
  const way = s.labels?.['revive'];
  const label = way === 'shell' ? '' : (s.labels?.[RESUME]?.trim() ?? '');
  const of = (argv: string[] | undefined, what: string): Revival => ({ ...(argv && { argv }), ...(cwd && { cwd }), says: `${what} in ${cwd}` });
  if (label.startsWith('[')) {
    const argv = json(label);
    if (!Array.isArray(argv) || argv.length === 0 || !argv.every((a) => typeof a === 'string')) return new Error(`The label ${RESUME} is no JSON array of a command and its arguments.`);
    return of(argv, `runs ${short(command(argv))}`);
  }
  if (label) return of(['sh', '-c', label], `runs ${short(label)}`);
  if (way === 'argv' && !s.argv.join(' ').includes('****')) return of(undefined, `runs ${short(command(s.argv))}`);
  const [program = '', ...args] = s.argv;
  const isShell = /^-?(ba|z|fi|da|k|tc|c)?sh$/.test(program.split('/').pop() ?? '') && args.every((a) => /^(-l|-i|--login)$/.test(a));
  return of(isShell ? undefined : SHELL, 'starts a shell');
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// failed reports whether the session ended with an error.
export function failed(s: SessionInfo): boolean {
  return ended(s) !== '' && s.state !== 'lost' && s.exit?.reason !== 'user_requested' && (s.exit_code ?? s.exit?.exit_code ?? 0) !== 0;
}

// reported returns what the user should learn of a program that has reported its status: that it waits, is done, or has
// failed.
export function reported(s: SessionInfo | undefined): string | undefined {
  const p = s?.program;
  if (!p || p.state === 'working' || p.state === 'idle') return undefined;
  const state = p.state === 'blocked' ? `waits for you${p.kind ? ` (${p.kind})` : ''}` : p.state === 'error' ? 'failed' : p.state;
  return [p.app, state].filter(Boolean).join(' ') + (p.message ? `: ${p.message}` : '');
}

// says returns a session's state as a short text.
export function says(s: SessionInfo): string {
  if (!ended(s) && s.frozen) return 'frozen';
  if (!ended(s) && s.program && s.program.state !== 'idle') return s.program.state;
  return ended(s) || (s.command && !s.command.prompt ? 'busy' : s.state === 'running' ? 'running' : s.state);
}

// bytes returns an amount of memory as a short text.
export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

// uses describes the resources that a session's processes use. It returns '' if they are not counted.
export function uses(s: SessionInfo): string {
  const { cage } = s;
  if (!cage?.memory_bytes || ended(s)) return '';
  return [bytes(cage.memory_bytes), cage.oom_kills ? `${cage.oom_kills} killed for memory` : ''].filter(Boolean).join(', ');
}

// who lists the viewers of a session.
export function who(s: SessionInfo): string {
  const n = s.attachments;
  if (n === 0) return '';
  const clients = (s.viewers ?? []).map((v) => v.client || 'somebody');
  if (clients.length === 0) return n === 1 ? '1 viewer' : `${n} viewers`;
  const counted = [...new Set(clients)].map((c) => {
    const k = clients.filter((d) => d === c).length;
    return k > 1 ? `${c} ×${k}` : c;
  });
  if (n > clients.length) counted.push(`${n - clients.length} more`);
  return counted.join(', ');
}
