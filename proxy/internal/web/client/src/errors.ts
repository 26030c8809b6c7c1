import type { ExitRecord } from './types.js';

/**
 * A failure that a program can act on: `code` is for programs and stable, `message`
 * is for people. Beside the protocol's codes (SPEC.md, Errors) there are these of
 * the client's own:
 *
 * - `connect`: no proxy could be reached;
 * - `lost`: the connection broke, and whether it was done is not known;
 * - `decode`: the proxy said what makes no sense;
 * - `client_closed`: close or detach was called;
 * - `stolen`: another client attached in this one's place.
 */
export class HoldfastError extends Error {
  readonly code: string;
  /** The same may succeed later, not before `retryAfterMs` where that is given. */
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  /** Of `spawn_failed`: why. */
  readonly reason: string | undefined;
  /** Of `exited_early` and `session_exited`: how it ended. */
  readonly exit: ExitRecord | undefined;
  /** Of `input_full`, `input_gap` and `line_too_long`: input accepted so far. */
  readonly offset: number | undefined;

  constructor(
    code: string,
    message: string,
    more: { retryable?: boolean; retryAfterMs?: number; reason?: string; exit?: ExitRecord; offset?: number } = {},
  ) {
    super(message);
    this.name = 'HoldfastError';
    this.code = code;
    this.retryable = more.retryable ?? (code === 'connect' || code === 'lost');
    this.retryAfterMs = more.retryAfterMs;
    this.reason = more.reason;
    this.exit = more.exit;
    this.offset = more.offset;
  }
}

/** asError makes a HoldfastError of whatever was thrown. */
export function asError(err: unknown, code = 'decode'): HoldfastError {
  if (err instanceof HoldfastError) return err;
  return new HoldfastError(code, err instanceof Error ? err.message : String(err));
}

/**
 * lost reports whether the answer is unknown, and may be had later: the connection
 * broke, or the proxy cannot reach the supervisor.
 */
export function lost(err: HoldfastError): boolean {
  return err.code === 'lost' || err.code === 'supervisor_unreachable' || err.code === 'upgrading';
}
