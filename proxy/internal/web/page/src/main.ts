// The start of the page: it asks the proxy for the rights of the browser's cookie, connects, and shows the page.
//
// If there is no cookie, the page shows how to sign in. The URL contains no secret any more, because the server has
// replaced it by the cookie (proxy/internal/web/page.go).

import { HoldfastClient, HoldfastError } from 'holdfast';

import './style.css';
import { App } from './app.ts';
import type { Client } from './client.ts';
import { pages, said } from './dialogs.ts';
import { h } from './dom.ts';
import { Fleet } from './fleet.ts';
import { isDark, onChange } from './settings.ts';
import { sharedPage } from './shared.ts';

// A Page is the reply of the server about the rights of this browser.
interface Page {
  signed_in: boolean;
  expires_at?: string;
  session_id?: string;
  gate?: boolean; // the page is that of a gate
}

const shared = location.pathname.startsWith('/share/');
const beside = (name: string): URL => new URL(shared ? name : `/v1/${name}`, location.href);

function looks(): void {
  document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
}

// height sets the height of the page, because the keyboard of a phone covers a part of the window.
function height(): void {
  const v = window.visualViewport;
  if (v) document.documentElement.style.setProperty('--height', `${v.height}px`);
}

function show(page: HTMLElement): void {
  document.body.replaceChildren(page);
}

function tell(heading: string, again: boolean, ...text: (string | Node)[]): void {
  const button = h('button', { type: 'button', class: 'action first', text: 'Try again', onclick: () => location.reload() });
  const page = h('main', { class: 'alone' }, h('div', { class: 'empty' }, h('h1', { text: heading }), h('p', { role: 'alert' }, ...text), again && button));
  if (page.textContent !== document.body.textContent) show(page); // the text of each attempt must not be announced again
}

// signInAtGate asks for the token of clients. It is sent in a header, and the browser keeps a cookie instead of it.
function signInAtGate(): void {
  const token = h('input', { type: 'password', class: 'mono', autocomplete: 'off', autofocus: true, required: true, 'aria-label': 'Text of proxy gate client-token' });
  const error = h('p', { class: 'error', role: 'alert' });
  const form = h('form', { class: 'sign-in' }, token, h('button', { type: 'submit', class: 'action first', text: 'Sign in' }), error);
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    const secret = token.value.trim().split('/').pop() ?? '';
    fetch('/v1/sign-in', { method: 'POST', credentials: 'same-origin', headers: { Authorization: `Bearer ${encodeURIComponent(secret)}` } }).then((answer) => {
      if (answer.ok) location.reload();
      else error.textContent = answer.status === 401 ? 'This is not the token of this gate.' : `The gate answers ${answer.status}.`;
    }, () => (error.textContent = 'The gate does not answer.'));
  });
  show(h('main', { class: 'alone' }, h('div', { class: 'empty' }, h('h1', { text: 'Sign in' }),
    h('p', {}, 'On the gate, run ', h('kbd', { text: 'proxy gate web' }), ' and open the link that it prints. Or paste what ', h('kbd', { text: 'proxy gate client-token' }), ' prints:'), form)));
  token.focus();
}

function signedOut(atGate = false): void {
  if (atGate) signInAtGate();
  else if (shared) tell('This link is not good any more', false, 'Ask whoever shared it for another one.');
  else tell('Sign in', true, 'In a terminal on this machine, run ', h('kbd', { text: 'proxy web' }), '. It opens this page, signed in.');
}

// leave ends the page, because its browser is signed out. It does not load the page again after its connection, because a
// browser may then drop the recordings that the page saves.
let leave = (): void => location.reload();

const PATIENCE = 5000; // ms for the server to reply
const RETRY = 2000; // ms between attempts while the server does not reply

// may requests the rights of this browser. It returns undefined if the server does not reply.
async function may(): Promise<Page | undefined> {
  try {
    const answer = await fetch(beside('page'), { credentials: 'same-origin', signal: AbortSignal.timeout(PATIENCE) });
    if (answer.status === 401) return { signed_in: false };
    return answer.ok ? ((await answer.json()) as Page) : undefined;
  } catch {
    return undefined;
  }
}

async function begin(): Promise<void> {
  const page = await may();
  if (!page) {
    tell('Not connected', true, 'Holdfast does not answer. In a terminal on the machine of the sessions, run ', h('kbd', { text: 'proxy web' }), '. This page continues by itself.');
    setTimeout(start, RETRY);
    return;
  }
  if (!page.signed_in) return signedOut(page.gate);
  const url = beside(page.gate ? 'gate' : 'api');
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const fleet = page.gate ? await Fleet.connect(url) : undefined;
  const client: Client = fleet ?? (await HoldfastClient.connect({ url, client: shared ? 'shared page' : 'page' }));
  let app: App | undefined;
  leave = () => {
    app?.end();
    void client.close();
    signedOut(page.gate);
  };
  // The server may have refused the connection because the cookie has expired. A browser does not report the reason.
  client.on('error', () => void may().then((now) => now?.signed_in === false && leave()));
  if (shared) {
    show(await sharedPage(client, page.session_id ?? '', page.expires_at).catch(async (err: unknown) => {
      await client.close();
      throw err;
    }));
  } else {
    app = new App(client, fleet);
    show(app.element);
    app.focus();
  }
}

// start begins, and begins again until there is a connection.
function start(): void {
  begin().catch((err: unknown) => {
    if (err instanceof HoldfastError && (err.code === 'unauthorized' || (shared && err.code === 'session_not_found'))) return signedOut();
    tell('Not connected', true, said(err));
    if (err instanceof HoldfastError && err.retryable) setTimeout(start, RETRY);
  });
}

// noFiles refuses a file that is dragged over the page, because the browser would open it.
function noFiles(e: DragEvent): void {
  if (!e.dataTransfer?.types.includes('Files')) return;
  e.preventDefault();
  e.dataTransfer.dropEffect = 'none';
}

looks();
height();
addEventListener('dragover', noFiles);
onChange(looks);
window.visualViewport?.addEventListener('resize', height);
if (!shared) pages.onmessage = () => leave();
start();
