// How the connection is: a line in the list, and a bar over the terminal while it is
// lost. Both are live regions: what they say is announced. A pause of no more than a
// moment, as of a handoff, is not worth a word.

import type { HoldfastClient } from 'holdfast-client';

import { h } from './dom.ts';
import { took } from './words.ts';

const QUIET = 300; // ms a pause may take before the line says so
const BAR = 1500; // ms before the bar does
const STAYS = 5000; // ms for which "back after" is said
const ASK = 10_000; // ms between questions whether the proxy answers, while the page can be seen
const SILENT = 5000; // ms for an answer

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
    } else {
      const pause = since ? performance.now() - since : 0;
      since = 0;
      say('connected', pause > QUIET ? `back after ${took(pause)}` : 'connected');
      timer = window.setTimeout(() => say('connected', 'connected'), STAYS);
    }
  });
  return line;
}

// connectionBar is the bar over the terminal: what is wrong, and what to do. advice is
// what brings a proxy back; the client tries again by itself all the time. ask asks the
// proxy for something, now and then, to see that it answers.
export function connectionBar(client: HoldfastClient, ask: () => Promise<unknown>, ...advice: (string | Node)[]): HTMLElement {
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
  // A proxy that is stopped, or behind a link that swallows everything, closes nothing.
  let asking = false;
  setInterval(() => {
    if (asking || document.hidden || client.state !== 'connected') return;
    asking = true;
    const late = setTimeout(() => client.state === 'connected' && show('silent', 'The proxy does not answer.', 'It may be stopped, or the way to it blocked. What you type is kept.'), SILENT);
    ask().catch(() => undefined).then(() => {
      asking = false;
      clearTimeout(late);
      if (bar.dataset.state === 'silent') bar.hidden = true;
    });
  }, ASK);
  return bar;
}
