// What the page needs of a client: HoldfastClient on the page of one machine, and Fleet on the page of a gate.

import type { HoldfastClient } from 'holdfast';

export type Client = Pick<HoldfastClient,
  'attach' | 'clear' | 'close' | 'commands' | 'forget' | 'freeze' | 'history' | 'info' | 'kill' | 'list' | 'on' | 'past' | 'rename' | 'reopen' | 'screen' |
  'scrollback' | 'search' | 'share' | 'spawn' | 'state' | 'subscribe' | 'thaw'>;
