import { asError, HoldfastError } from './errors.js';
import type { ExitInfo, ExitRecord } from './types.js';

/** A Message is what came, or goes: its type, and fields that are looked at one by one. */
export interface Message { type: string; [field: string]: unknown }

/** parse reads a control message. Errors: `decode`. */
export function parse(text: string): Message {
  let m: unknown;
  try {
    m = JSON.parse(text);
  } catch (err) {
    throw new HoldfastError('decode', asError(err).message);
  }
  if (typeof m !== 'object' || m === null || typeof (m as Message).type !== 'string') {
    throw new HoldfastError('decode', 'a message that has no type');
  }
  return m as Message;
}

/** int reads a whole number; one that is absent is 0. */
export function int(m: Message, field: string): number {
  const n = m[field] ?? 0;
  if (typeof n !== 'number' || !Number.isSafeInteger(n)) throw wrong(m, field);
  return n;
}

/** str reads a string; one that is absent is empty. */
export function str(m: Message, field: string): string {
  const s = m[field] ?? '';
  if (typeof s !== 'string') throw wrong(m, field);
  return s;
}

/** object reads an object that has to be there. */
export function object<T>(m: Message, field: string): T {
  const o = m[field];
  if (typeof o !== 'object' || o === null) throw wrong(m, field);
  return o as T;
}

export function wrong(m: Message, field: string): HoldfastError {
  return new HoldfastError('decode', `${m.type} whose ${field} makes no sense`);
}

/** errorOf is what an `error` message says. */
export function errorOf(m: Message): HoldfastError {
  const optional = (field: string): number | undefined => (typeof m[field] === 'number' ? (m[field] as number) : undefined);
  return new HoldfastError(str(m, 'code'), str(m, 'message'), {
    retryable: m.retryable === true,
    ...(optional('retry_after_ms') !== undefined && { retryAfterMs: optional('retry_after_ms') }),
    ...(optional('offset') !== undefined && { offset: optional('offset') }),
    ...(typeof m.cause === 'string' && { reason: m.cause }),
    ...(typeof m.exit === 'object' && m.exit !== null && { exit: m.exit as ExitRecord }),
  } as ConstructorParameters<typeof HoldfastError>[2]);
}

/** The reason of a session whose idle time was over. */
const IDLE = 'idle_timeout';

/**
 * exitOf is how a session ended, by `pty_exited` or `terminal.exit`; undefined for another
 * message.
 */
export function exitOf(m: Message, session: string): ExitInfo | undefined {
  const none = { last_lines: [], session_title: '', session_description: '', timed_out: false };
  switch (m.type) {
    case 'pty_exited': {
      const { type: _, attachment: _a, seq: _s, ...info } = m;
      const lines = Array.isArray(m.last_lines) ? m.last_lines.filter((l): l is string => typeof l === 'string') : [];
      return {
        ...none, ...info, session_id: str(m, 'session_id') || session, pane_id: str(m, 'pane_id') || session,
        exit_code: int(m, 'exit_code'), timed_out: m.timed_out === true, last_lines: lines,
      };
    }
    case 'terminal.exit': {
      const reason = str(m, 'reason');
      return {
        ...none, session_id: str(m, 'session_id') || session, pane_id: session, exit_code: int(m, 'exit_code'),
        timed_out: reason === IDLE, ...(reason !== '' && { reason }),
      };
    }
  }
  return undefined;
}

/** exitOfRecord is the same of an exit record. */
export function exitOfRecord(r: ExitRecord, session: string, instance: string): ExitInfo {
  return {
    session_id: session, pane_id: session, instance, exit_code: r.exit_code, last_lines: r.last_lines ?? [], session_title: '',
    session_description: '', timed_out: r.timed_out === true, reason: r.reason, outcome: r.outcome,
    ...(r.signal !== undefined && { signal: r.signal }),
  };
}
