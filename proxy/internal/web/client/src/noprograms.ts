// This module replaces programs.ts in a browser, which can start no programs.

import type { HoldfastClient } from './client.js';
import type { StartOptions } from './dialer.js';
import { HoldfastError } from './errors.js';

export function start(o: StartOptions): Promise<HoldfastClient> {
  return Promise.reject(new HoldfastError('programs_missing', `no programs can be started here: ${o.dir}`, { retryable: false }));
}
