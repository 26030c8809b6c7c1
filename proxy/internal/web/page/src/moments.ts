// Moments of a session's past. This module must not use the DOM, because tests run it in Node.

import type { CommandInfo, PastCommand, PastContent, PastTime } from 'holdfast';

import { ago, moment, short } from './words.ts';

const PARTS = 100; // steps of the arrow keys, if too few times are known
const FEW = 20; // number of times below which they are too few for steps

// withCommands adds the commands that the supervisor has in memory, because the store may not have the last ones yet.
export function withCommands(past: PastContent, recent: CommandInfo[]): PastContent {
  const last = past.commands?.at(-1)?.end ?? -1;
  const more = recent.flatMap((c): PastCommand[] => {
    const end = c.output?.end ?? 0;
    if (!c.output || c.output.start < last || end <= past.start || end > past.end) return [];
    const { line, cwd, exit_code } = c;
    return [{
      start: c.output.start, end, started_at: c.started_at ?? '', finished_at: c.finished_at ?? '',
      ...(line !== undefined && { line }), ...(cwd !== undefined && { cwd }), ...(exit_code !== undefined && { exit_code }),
    }];
  });
  const commands = [...(past.commands ?? []), ...more];
  return { ...past, commands, times: withTimes(past.times, commands) };
}

// withTimes adds the times of commands, because there are none of output that is not stored. A time of the store may be
// late by about a second. It is never later than the next one here.
function withTimes(times: PastTime[], commands: PastCommand[]): PastTime[] {
  const more = commands.flatMap((c) => [{ offset: c.start, at: c.started_at }, { offset: c.end, at: c.finished_at }]).filter((t) => t.at !== '');
  const all = [...times, ...more].sort((a, b) => b.offset - a.offset);
  let next = Infinity;
  return all.map(({ offset, at }) => {
    next = Math.min(next, Date.parse(at));
    return { offset, at: new Date(next).toISOString() };
  }).reverse();
}

// printed returns the time in ms at which the last output before an offset was printed, as far as the samples tell it.
export function printed(past: PastContent, offset: number): number | undefined {
  const sample = past.times.findLast((t) => t.offset < offset);
  const at = offset >= past.end ? past.end_at : (sample?.at ?? past.start_at);
  return at === undefined ? undefined : Date.parse(at);
}

// step returns the next offset in a direction at which the session had printed something: that of a sample, or else of a
// hundredth of the past.
export function step(past: PastContent, offset: number, direction: 1 | -1): number {
  const { start, end } = past;
  const inside = past.times.map((t) => t.offset).filter((o) => o > start && o < end);
  const part = Math.max(1, Math.round((end - start) / PARTS));
  const stops = inside.length >= FEW ? [start, ...inside, end] : undefined;
  if (!stops) return clamp(past, offset + direction * part);
  return (direction > 0 ? stops.find((o) => o > offset) : stops.findLast((o) => o < offset)) ?? clamp(past, offset);
}

// jump returns the end of the next command in a direction, or undefined if there is none.
export function jump(past: PastContent, offset: number, direction: 1 | -1): number | undefined {
  const ends = (past.commands ?? []).map((c) => c.end).filter((o) => o >= past.start && o <= past.end);
  return direction > 0 ? ends.find((o) => o > offset) : ends.findLast((o) => o < offset);
}

export function clamp(past: PastContent, offset: number): number {
  return Math.min(past.end, Math.max(past.start, Math.round(offset)));
}

// at returns the command that ran at an offset, or that had ended last.
export function at(past: PastContent, offset: number): PastCommand | undefined {
  return past.commands?.findLast((c) => c.start < offset);
}

// says describes an offset of the past in words. time is the time of its screen, if that is known.
export function says(past: PastContent, offset: number, time: number | undefined, now: number = Date.now()): string {
  const c = at(past, offset);
  const line = short(c?.line ?? '') || 'a command';
  const since = time === undefined ? '' : ago(new Date(time), now);
  return [
    time === undefined ? '' : `${moment(time)}${since === 'now' || since === '' ? '' : `, ${since} ago`}`,
    `byte ${offset.toLocaleString('en')}`,
    c && (offset < c.end ? `during ${line}` : `after ${line}${c.exit_code ? `, which exited ${c.exit_code}` : ''}`),
  ].filter(Boolean).join(' · ');
}

// labels returns n times that are spread over the past, as short texts. A text is '' if its time is not known.
export function labels(past: PastContent, n: number): string[] {
  const times = Array.from({ length: n }, (_, i) => printed(past, past.start + ((past.end - past.start) * i) / (n - 1)));
  const days = new Set(times.filter((t) => t !== undefined).map((t) => new Date(t).toDateString()));
  return times.map((t) => (t === undefined ? '' : new Date(t).toLocaleString(undefined, days.size > 1 ? { dateStyle: 'short', timeStyle: 'short' } : { timeStyle: 'medium' })));
}
