import type { ExitRecord } from './types.js';

/**
 * A HoldfastError is a failure. Its `code` is stable and for programs; its `message` is for people. Besides the codes
 * of the protocol (SPEC.md, Errors), the client has these:
 *
 * - `connect`: no proxy could be reached;
 * - `unknown_host`: no host of this name has joined the gate;
 * - `programs_missing`: there are no programs for this system;
 * - `lost`: the connection was lost, and it is not known whether the request was carried out;
 * - `decode`: the proxy sent a malformed message;
 * - `client_closed`: close or detach was called;
 * - `stolen`: another client attached with steal.
 */
export class HoldfastError extends Error {
  readonly code: string;
  /** The request may succeed later, after `retryAfterMs` if that is set. */
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  /** For `spawn_failed`: the cause. */
  readonly reason: string | undefined;
  /** For `exited_early` and `session_exited`: the exit record. */
  readonly exit: ExitRecord | undefined;
  /** For `input_full`, `input_gap` and `line_too_long`: the offset up to which the input was accepted. */
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

/** late returns the error of a request that was not answered in time. */
export function late(ms: number, retryable: boolean): HoldfastError {
  return new HoldfastError('timeout', `no answer came within ${ms} ms, so it is not known whether the request was carried out`, { retryable });
}

/** asError converts a thrown value to a HoldfastError. */
export function asError(err: unknown, code = 'decode'): HoldfastError {
  if (err instanceof HoldfastError) return err;
  return new HoldfastError(code, err instanceof Error ? err.message : String(err));
}

/**
 * lost reports whether the result of a request is unknown and may be available later, because the connection was lost
 * or the proxy cannot reach the supervisor. If the supervisor has died during the request, the proxy says that the request
 * must not be made again, because the supervisor may have died of it.
 */
export function lost(err: HoldfastError): boolean {
  return err.code === 'lost' || (err.retryable && (err.code === 'supervisor_unreachable' || err.code === 'upgrading'));
}
