// What is said of sessions, in words. No DOM here: the tests run it as it is.

import type { SessionInfo } from 'holdfast-client';

const DAY = 24 * 60 * 60;

// ago is how long ago something was, in a word or two.
export function ago(then: Date | string, now: number = Date.now()): string {
  const s = Math.max(0, Math.round((now - new Date(then).getTime()) / 1000));
  if (!Number.isFinite(s)) return '';
  if (s < 10) return 'now';
  if (s < 60) return `${s} s`;
  if (s < 60 * 60) return `${Math.floor(s / 60)} min`;
  if (s < DAY) return `${Math.floor(s / 3600)} h`;
  return s < 2 * DAY ? '1 day' : `${Math.floor(s / DAY)} days`;
}

// took is a duration as it is said of a pause: 0.4 s, 12 s, 3 min.
export function took(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 60_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`;
}


// command is an argv as a person would type it.
export function command(argv: readonly string[]): string {
  if (argv.length === 3 && argv[0] === '/bin/sh' && argv[1] === '-c') return argv[2] ?? '';
  return argv.map((a, i) => (i === 0 ? (a.split('/').pop() ?? a) : /^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", `'\\''`)}'`)).join(' ');
}

// parse makes an argv of what a person typed: words, with quotes; what has anything
// else of a shell's in it is the shell's. Nothing typed is the login shell.
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
  if (quote) return ['/bin/sh', '-c', line]; // it will say what is wrong
  if (word !== undefined) words.push(word);
  return words;
}

// title is what a session is called: by its user, by its program.
export function title(s: SessionInfo): string {
  return s.labels?.title || s.title || command(s.argv) || s.id;
}

// runs names the program in front, if that is not the session's own, and says if the
// session's own is stopped.
export function runs(s: SessionInfo): string {
  if (s.foreground?.stopped) return 'stopped';
  return s.foreground && s.foreground.pid !== s.pid ? (s.foreground.name ?? '') : '';
}

// place is its directory, the end of it where it is long.
export function place(s: SessionInfo): string {
  const path = s.current_cwd || s.foreground?.cwd || s.cwd;
  return path.length <= 28 ? path : `…/${path.split('/').slice(-2).join('/').slice(-40)}`;
}

// ended says how a session ended, '' while it has not.
export function ended(s: SessionInfo): string {
  if (s.state !== 'exited' && s.state !== 'forgotten') return '';
  if (s.exit?.timed_out) return 'timed out';
  if (s.exit?.reason === 'user_requested') return s.exit.ended_by ? `ended by ${s.exit.ended_by}` : 'ended on request';
  if (s.exit?.signal) return `killed by ${s.exit.signal}`;
  return `exited ${s.exit_code ?? s.exit?.exit_code ?? ''}`.trim();
}

// failed says whether it ended otherwise than it should have.
export function failed(s: SessionInfo): boolean {
  return ended(s) !== '' && s.exit?.reason !== 'user_requested' && (s.exit_code ?? s.exit?.exit_code ?? 0) !== 0;
}

// says is what a session's state is, in a word or two.
export function says(s: SessionInfo): string {
  if (!ended(s) && s.frozen) return 'frozen';
  return ended(s) || (s.command && !s.command.prompt ? 'busy' : s.state === 'running' ? 'running' : s.state);
}

// bytes is an amount of memory, in a word or two.
export function bytes(n: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

// uses says what a session's processes use now; '' if that is not counted.
export function uses(s: SessionInfo): string {
  const { cage } = s;
  if (!cage?.memory_bytes || ended(s)) return '';
  return [bytes(cage.memory_bytes), cage.oom_kills ? `${cage.oom_kills} killed for memory` : ''].filter(Boolean).join(', ');
}

// who lists those who look at a session.
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
