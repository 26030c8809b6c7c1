// The page of a share link: one read-only terminal without controls.

import type { SessionInfo } from 'holdfast';

import type { Client } from './client.ts';
import { connectionBar, connectionLine } from './connection.ts';
import { h } from './dom.ts';
import { Sessions } from './sessions.ts';
import { TerminalView } from './terminal.ts';
import { title } from './words.ts';

export async function sharedPage(client: Client, id: string, expires: string | undefined): Promise<HTMLElement> {
  const name = h('h1', { text: id });
  const ends = h('div', { class: 'notice', role: 'status', hidden: true });
  const badges = [h('span', { class: 'badge', text: 'read only' })];
  if (expires) badges.push(h('span', { class: 'badge until', text: `until ${new Date(expires).toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'short' })}` }));
  const session = await client.info(id);
  const called = (s: SessionInfo): void => {
    name.textContent = title(s);
    document.title = `${title(s)} — Holdfast`;
  };
  called(session);
  const sessions = new Sessions(client);
  sessions.onChange(() => {
    const s = sessions.get(id);
    if (s?.instance === session.instance) called(s);
  });
  const say = (text: string): void => {
    ends.hidden = text === '';
    ends.textContent = text;
  };
  const view = new TerminalView(client, session, {
    phase: (phase, why) => say(phase === 'ended' ? 'The session has ended.' : phase === 'failed' ? (why ?? 'It cannot be shown.') : ''),
    replaced: () => undefined,
    focused: () => undefined,
    clipboard: () => undefined,
    inputLost: () => undefined,
    recording: () => undefined,
  }, true);
  const page = h('main', { class: 'shared' },
    h('header', { class: 'bar' }, name, ...badges, connectionLine(client)),
    h('section', { class: 'pane', 'aria-label': 'Terminal, read only' }, view.element, ends));
  const pane = page.querySelector<HTMLElement>('.pane')!;
  pane.style.position = 'relative';
  pane.append(connectionBar(client, () => client.list(), 'If it stays so, ask whoever shared this link: it may have expired, or Holdfast has ended there.'));
  requestAnimationFrame(() => void view.start());
  return page;
}
