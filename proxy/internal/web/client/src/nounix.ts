// This module replaces unix.ts in a browser, which has neither Unix sockets nor processes, and in
// which TLS accepts no certificate by its fingerprint.

import { HoldfastError } from './errors.js';
import type { GateOptions, SSHOptions, Transport } from './transport.js';

export function unixSocket(path: string, _signal: AbortSignal): Promise<Transport> {
  return Promise.reject(new HoldfastError('connect', `no Unix sockets here: ${path}`, { retryable: false }));
}

export function ssh(o: SSHOptions): (signal: AbortSignal) => Promise<Transport> {
  throw new HoldfastError('connect', `no ssh here: ${o.host}`, { retryable: false });
}

export function gate(o: GateOptions): (signal: AbortSignal) => Promise<Transport> {
  throw new HoldfastError('connect', `no connection through a gate here: ${o.host}`, { retryable: false });
}
