// The line that says how the connection is. It is a live region: what it says is
// announced. A pause of no more than a moment, as of a handoff, is not worth a word.

import type { HoldfastClient } from 'holdfast-client';

import { h } from './dom.ts';
import { took } from './words.ts';

const QUIET = 300; // ms a pause may take before it is said
const STAYS = 5000; // ms for which "back after" is said

export function connectionLine(client: HoldfastClient): HTMLElement {
  const line = h('div', { class: 'connection', role: 'status', 'aria-live': 'polite', 'data-state': client.state, text: 'connected' });
  let since = 0;
  let timer = 0;
  const say = (state: string, text: string): void => {
    line.dataset.state = state;
    line.textContent = text;
  };
  client.on('state', (state) => {
    clearTimeout(timer);
    if (state === 'reconnecting') {
      since ||= performance.now();
      timer = window.setTimeout(() => say('reconnecting', 'reconnecting…'), QUIET);
    } else if (state === 'closed') {
      say('closed', 'not connected');
      line.append(h('button', { type: 'button', class: 'action', text: 'Try again', onclick: () => location.reload() }));
    } else {
      const pause = since ? performance.now() - since : 0;
      since = 0;
      say('connected', pause > QUIET ? `back after ${took(pause)}` : 'connected');
      timer = window.setTimeout(() => say('connected', 'connected'), STAYS);
    }
  });
  return line;
}
