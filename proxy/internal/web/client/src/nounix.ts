// This module replaces unix.ts in a browser, which has no Unix sockets.

import { HoldfastError } from './errors.js';
import type { Transport } from './transport.js';

export function unixSocket(path: string): Promise<Transport> {
  return Promise.reject(new HoldfastError('connect', `no Unix sockets here: ${path}`, { retryable: false }));
}
