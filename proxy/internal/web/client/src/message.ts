import { asError, HoldfastError } from './errors.js';
import type { ExitInfo, ExitRecord } from './types.js';

/** A Message is a control message whose fields are not checked yet. */
export interface Message { type: string; [field: string]: unknown }

/** parse parses a control message. Errors: `decode`. */
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

/** int returns a field that must be a whole number, or 0 if it is absent. */
export function int(m: Message, field: string): number {
  const n = m[field] ?? 0;
  if (typeof n !== 'number' || !Number.isSafeInteger(n)) throw wrong(m, field);
  return n;
}

/** str returns a field that must be a string, or '' if it is absent. */
export function str(m: Message, field: string): string {
  const s = m[field] ?? '';
  if (typeof s !== 'string') throw wrong(m, field);
  return s;
}

/** object returns a field that must be an object. */
export function object<T>(m: Message, field: string): T {
  const o = m[field];
  if (typeof o !== 'object' || o === null) throw wrong(m, field);
  return o as T;
}

export function wrong(m: Message, field: string): HoldfastError {
  return new HoldfastError('decode', `${m.type} whose ${field} makes no sense`);
}

/** errorOf returns the error in an `error` message. */
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

/** The reason in `terminal.exit` if the session ended because it was idle. */
const IDLE = 'idle_timeout';

/** exitOf returns the end of a session from `pty_exited` or `terminal.exit`, and undefined for any other message. */
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
        timed_out: reason === IDLE, ...(reason !== '' && { reason }), ...(typeof m.exited_at === 'string' && { exited_at: m.exited_at }),
      };
    }
  }
  return undefined;
}

/** exitOfRecord returns the end of a session from its exit record. */
export function exitOfRecord(r: ExitRecord, session: string, instance: string): ExitInfo {
  return {
    session_id: session, pane_id: session, instance, exit_code: r.exit_code, last_lines: r.last_lines ?? [], session_title: '',
    session_description: '', timed_out: r.timed_out === true, reason: r.reason, outcome: r.outcome,
    ...(r.signal !== undefined && { signal: r.signal }), ...(r.exited_at !== undefined && { exited_at: r.exited_at }),
  };
}
