// The state of the connection: a line in the list, and a bar over the terminal while the connection is lost. Both are
// live regions, so screen readers announce their text. A short pause, such as that of a handoff, is not shown.

import type { Client } from './client.ts';
import { h } from './dom.ts';
import { took } from './words.ts';

const QUIET = 300; // ms of a pause before the line shows it
const BAR = 1500; // ms of a pause before the bar shows it
const STAYS = 5000; // ms for which the line shows "back after"
const ASK = 10_000; // ms between requests that check the proxy, while the page is visible
const SILENT = 5000; // ms to wait for the reply

export function connectionLine(client: Client): HTMLElement {
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
    } else {
      const pause = since ? performance.now() - since : 0;
      since = 0;
      say('connected', pause > QUIET ? `back after ${took(pause)}` : 'connected');
      timer = window.setTimeout(() => say('connected', 'connected'), STAYS);
    }
  });
  return line;
}

// connectionBar returns the bar over the terminal. It shows the problem and advice, which tells how to start a proxy
// again; the client itself tries to reconnect all the time. ask makes a request from time to time, which shows whether
// the proxy replies.
export function connectionBar(client: Client, ask: () => Promise<unknown>, ...advice: (string | Node)[]): HTMLElement {
  const what = h('strong', {});
  const then = h('span', { class: 'say' });
  const again = h('button', { type: 'button', class: 'action', text: 'Reload', onclick: () => location.reload() });
  const bar = h('div', { class: 'lost', role: 'alert', hidden: true }, what, then);
  let timer = 0;
  const show = (state: string, text: string, ...more: (string | Node)[]): void => {
    bar.dataset.state = state;
    what.textContent = text;
    then.replaceChildren(...more);
    if (state === 'closed') bar.append(again);
    else again.remove();
    bar.hidden = false;
  };
  client.on('state', (state) => {
    clearTimeout(timer);
    if (state === 'connected') bar.hidden = true;
    else if (state === 'closed') show(state, 'Not connected.', ...advice);
    else timer = window.setTimeout(() => show(state, 'The connection is lost. Trying again…', ...advice, ' What you type is kept.'), BAR);
  });
  // If a proxy is stopped, or the network drops all packets, the connection is not closed.
  let asking = false;
  setInterval(() => {
    if (asking || document.hidden || client.state !== 'connected') return;
    asking = true;
    const late = setTimeout(() => client.state === 'connected' && show('silent', 'The proxy does not answer.', 'It may be stopped, or the way to it blocked. What you type is kept.'), SILENT);
    ask().then(() => true, (err: { code?: unknown }) => err.code !== 'timeout').then((answered) => {
      asking = false;
      clearTimeout(late);
      if (answered && bar.dataset.state === 'silent') bar.hidden = true;
    });
  }, ASK);
  return bar;
}
