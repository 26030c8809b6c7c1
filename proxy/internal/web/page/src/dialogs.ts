// Dialogs and menus. A dialog is an element of the browser, which keeps the focus in the dialog, closes it on Escape,
// and returns the focus to the element that had it before.

import { HoldfastError, type HistoryContent, type Match, type SessionInfo, type Shared } from 'holdfast';

import type { Client } from './client.ts';
import { h } from './dom.ts';
import { change, clipboard, fontSizes, onChange, read, settings, write, type Settings } from './settings.ts';
import { shortcuts } from './shortcuts.ts';
import { ago, bytes, command, ended, moment, parse, runs, says, short, title, took } from './words.ts';

export const said = (err: unknown): string => (err instanceof HoldfastError ? err.message : err instanceof Error ? err.message : String(err));

let count = 0;

// WAITS is the return value of a dialog that is shown again if its action fails.
const WAITS = 'waits';

// show shows a dialog. It returns the dialog and a promise that resolves when the dialog is closed.
function show(name: string, wide: boolean, ...content: Node[]): { dialog: HTMLDialogElement; closed: Promise<void> } {
  const id = `dialog-${++count}`;
  const dialog = h('dialog', { 'aria-labelledby': id, class: wide ? 'wide' : undefined }, h('h2', { id, text: name }), ...content);
  const back = document.activeElement;
  const closed = new Promise<void>((done) =>
    dialog.addEventListener('close', () => {
      if (dialog.returnValue === WAITS) return;
      // The browser has already returned the focus, which may have moved since.
      const at = document.activeElement;
      const lost = !at || at === document.body || dialog.contains(at);
      dialog.remove();
      if (lost && back instanceof HTMLElement && back.isConnected) back.focus();
      done();
    }),
  );
  dialog.addEventListener('pointerdown', (e) => {
    if (e.target === dialog) {
      const r = dialog.getBoundingClientRect();
      if (e.clientX < r.left || e.clientX > r.right || e.clientY < r.top || e.clientY > r.bottom) dialog.close(); // a click beside the dialog
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.scrollTop = 0; // the browser may have scrolled to the element with the focus
  return { dialog, closed };
}

// ask shows a form, and calls done when the user submits it. If done fails, the dialog stays and shows the error. If
// act.leaves is set, the dialog is closed before done is called, so that the page receives the input in the meantime. It
// is shown again if done fails.
async function ask(name: string, fields: Node[], act: { label: string; danger?: boolean; leaves?: boolean }, done: () => Promise<void> | void): Promise<void> {
  const error = h('p', { class: 'error', role: 'alert' });
  const go = h('button', { type: 'submit', class: act.danger ? 'action danger' : 'action first', text: act.label });
  const cancel = h('button', { type: 'button', class: 'action', text: 'Cancel', onclick: () => dialog.close() });
  const form = h('form', { method: 'dialog' }, ...fields, error, h('div', { class: 'actions' }, cancel, go));
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    go.disabled = true;
    cancel.textContent = 'Close'; // what was requested cannot be cancelled
    error.textContent = '';
    const left = act.leaves && new Promise((is) => dialog.addEventListener('close', is, { once: true }));
    if (act.leaves) dialog.close(WAITS);
    Promise.resolve(done()).then(
      () => {
        dialog.returnValue = '';
        if (dialog.open) dialog.close();
        else dialog.dispatchEvent(new Event('close'));
      },
      async (err: unknown) => {
        await left;
        if (!dialog.isConnected) return; // the user has closed it
        if (!dialog.open) dialog.showModal();
        dialog.returnValue = '';
        go.disabled = false;
        cancel.textContent = 'Cancel';
        error.textContent = said(err);
      },
    );
  });
  const { dialog, closed } = show(name, false, form);
  await closed;
}

export interface Wanted {
  argv: string[];
  cwd: string | undefined;
  id: string | undefined;
  integrate: boolean; // the shell reports its prompts and commands
  host: string; // of the gate, or '' on the page of one machine
}

const COMMANDS = 'holdfast.commands';
const MAX_COMMANDS = 20;

// recentCommands returns the stored commands, the last one first.
function recentCommands(): string[] {
  const stored = read<unknown>(COMMANDS, []);
  return Array.isArray(stored) ? stored.filter((c) => typeof c === 'string') : [];
}

// newSession asks what a session should run, and at a gate, on which of the hosts. The first host is the default.
export function newSession(start: (w: Wanted) => Promise<void>, cwd: string, hosts: string[] = []): Promise<void> {
  const host = h('select', { name: 'host' }, ...hosts.map((name) => h('option', { value: name, text: name })));
  const recent = recentCommands();
  const line = h('input', { name: 'command', class: 'mono', placeholder: 'your login shell', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', list: 'recent', autofocus: true });
  const dir = h('input', { name: 'cwd', class: 'mono', placeholder: 'your home directory', value: cwd, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
  const id = h('input', { name: 'id', class: 'mono', placeholder: 'made for you', pattern: '[A-Za-z0-9_\\-]{1,64}', title: 'Letters, digits, _ and -, at most 64', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
  const integrate = h('input', { type: 'checkbox', checked: settings().shellIntegration });
  return ask('New session', [
    ...(hosts.length > 0 ? [h('label', {}, 'Host', host)] : []),
    h('label', {}, 'Command', line, h('span', { class: 'hint', text: 'Pipes, variables and the like are run by /bin/sh.' })),
    h('datalist', { id: 'recent' }, ...recent.map((c) => h('option', { value: c }))),
    h('label', {}, 'Directory', dir),
    h('label', {}, 'Id', id),
    h('label', { class: 'check' }, integrate, 'bash, zsh and fish tell what runs, and how it ended (none of your files is changed)'),
  ], { label: 'Start', leaves: true }, async () => {
    await start({ argv: parse(line.value), cwd: dir.value.trim() || undefined, id: id.value.trim() || undefined, integrate: integrate.checked, host: host.value });
    change({ shellIntegration: integrate.checked });
    const c = line.value.trim();
    if (c) write(COMMANDS, [c, ...recent.filter((r) => r !== c)].slice(0, MAX_COMMANDS));
  });
}

export function rename(client: Client, s: SessionInfo): Promise<void> {
  const name = h('input', { value: s.labels?.title ?? '', placeholder: title(s), maxlength: 100, autofocus: true, autocomplete: 'off' });
  return ask('Rename', [h('label', {}, 'Title', name, h('span', { class: 'hint', text: 'For everybody who sees this session. Empty: what its program says.' }))], { label: 'Rename' },
    async () => {
      const now = name.value.trim();
      if (now !== (s.labels?.title ?? '')) await client.rename(s.id, now); // another client may have set a title meanwhile
    });
}

export function confirmKill(client: Client, s: SessionInfo): Promise<void> {
  return ask('End this session?', [
    h('p', {}, h('strong', { text: short(title(s)) }), ` (${s.id}) and everything that runs in it gets SIGHUP, and SIGKILL where that is not enough.`),
  ], { label: 'End session', danger: true }, async () => {
    needConnection(client);
    try {
      await client.kill(s.id, { instance: s.instance });
    } catch (err) {
      if (err instanceof HoldfastError && err.code === 'instance_mismatch') throw new Error('This session has ended meanwhile, and was started again. The new one was not ended.');
      throw err;
    }
  });
}

// needConnection throws an error if there is no connection. A request would wait for the next one, and could then destroy
// what the user has decided to keep meanwhile.
function needConnection(client: Client): void {
  if (client.state !== 'connected') throw new Error('There is no connection. Nothing was done.');
}

export function confirmForget(client: Client, s: SessionInfo, forget: () => Promise<void>): Promise<void> {
  return ask('Forget this session?', [
    h('p', {}, h('strong', { text: short(title(s)) }), ` (${s.id}): its last screen, its history and its files are deleted. This cannot be undone.`),
  ], { label: 'Forget', danger: true }, async () => {
    needConnection(client);
    await forget();
  });
}

const terms: [string, number][] = [['1 hour', 3600_000], ['8 hours', 8 * 3600_000], ['1 day', 24 * 3600_000], ['7 days', 7 * 24 * 3600_000]];

export async function share(client: Client, s: SessionInfo): Promise<void> {
  const term = h('select', { autofocus: true }, ...terms.map(([label, ms]) => h('option', { value: ms, text: label })));
  let made: Shared | undefined;
  let copied = false;
  await ask('Share to look', [
    h('p', { text: 'Whoever has the link sees this terminal, and can neither type nor do anything else. It works on this machine, or where its address is forwarded.' }),
    h('label', {}, 'Good for', term),
  ], { label: 'Make a link' }, async () => {
    made = await client.share(s.id, Number(term.value));
    copied = await navigator.clipboard?.writeText(made.url).then(() => true, () => false);
  });
  if (!made) return;
  const url = h('input', { class: 'mono', readonly: true, value: made.url, autofocus: true });
  url.addEventListener('focus', () => url.select());
  const status = h('span', { class: 'hint', role: 'status', text: copied ? 'Copied.' : 'Copy it from here.' });
  const { dialog, closed } = show('Link', false,
    h('label', {}, `Good until ${new Date(made.expires_at).toLocaleString()}`, url, status),
    h('div', { class: 'actions' },
      h('button', { type: 'button', class: 'action', text: 'Copy', onclick: () => void navigator.clipboard?.writeText(url.value).then(() => (status.textContent = 'Copied.'), () => url.select()) }),
      h('button', { type: 'button', class: 'action first', text: 'Done', onclick: () => dialog.close() })));
  await closed;
}

export function details(s: SessionInfo): Promise<void> {
  const rows: [string, string | undefined][] = [
    ['Id', s.id], ['Command', command(s.argv)], ['Runs', runs(s)], ['Directory', s.current_cwd || s.foreground?.cwd || s.cwd], ['State', s.frozen ? says(s) : ended(s) || s.state], ['Process', ended(s) ? undefined : String(s.pid)],
    ['Last seen', s.lost ? moment(s.lost.seen_at) : undefined], ['Screen exact up to', s.lost ? `byte ${s.lost.offset.toLocaleString()}` : undefined],
    ['Size', `${s.size.cols} × ${s.size.rows}, ${s.size_policy ?? 'latest'}`], ['Started', new Date(s.created_at).toLocaleString()],
    ['Last activity', `${new Date(s.last_io_at).toLocaleString()} (${ago(s.last_io_at)})`], ['Last command', s.command?.line],
    ['Memory', s.cage?.memory_bytes === undefined ? undefined : `${bytes(s.cage.memory_bytes)}, at most ${bytes(s.cage.memory_peak_bytes ?? s.cage.memory_bytes)}`],
    ['Processes', s.cage?.pids === undefined ? undefined : `${s.cage.pids}, at most ${s.cage.pids_peak ?? s.cage.pids}`],
    ['Processor', s.cage?.user_ms === undefined ? undefined : `${took(s.cage.user_ms)} user, ${took(s.cage.system_ms ?? 0)} system`],
    ['Killed for memory', s.cage?.oom_kills ? String(s.cage.oom_kills) : undefined],
    ['Printed', `${s.output_offset.toLocaleString()} bytes`],
    ['Viewers', (s.viewers ?? []).map((v) => `${v.client || 'somebody'}, ${v.mode}, ${ago(v.since)}`).join('; ') || String(s.attachments)],
    ['Ended by', s.exit?.ended_by], ['Last lines', s.exit?.last_lines.join('\n')],
  ];
  const { dialog, closed } = show(short(title(s)), false,
    h('table', {}, h('tbody', {}, ...rows.filter(([, v]) => v).map(([k, v]) => h('tr', {}, h('td', { text: k }), h('td', { class: 'mono', text: v }))))),
    h('div', { class: 'actions' }, h('button', { type: 'button', class: 'action first', text: 'Close', autofocus: true, onclick: () => dialog.close() })));
  return closed;
}

// preferences shows the settings. Its fields follow changes in other windows, and show the size that change has chosen.
export function preferences(): Promise<void> {
  const shown: ((s: Settings) => void)[] = []; // each sets a field
  const select = <K extends keyof Settings>(key: K, options: [Settings[K] & string, string][]): HTMLSelectElement => {
    const e = h('select', { onchange: () => change({ [key]: e.value } as Partial<Settings>) }, ...options.map(([value, text]) => h('option', { value, text })));
    shown.push((s) => (e.value = String(s[key])));
    return e;
  };
  const size = h('input', { type: 'number', min: fontSizes.min, max: fontSizes.max, onchange: () => change({ fontSize: Number(size.value) || 14 }) });
  const reader = h('input', { type: 'checkbox', onchange: () => change({ screenReader: reader.checked }) });
  const error = h('p', { class: 'error', role: 'alert' });
  shown.push((s) => (size.value = String(s.fontSize)), (s) => (reader.checked = s.screenReader));
  const { dialog, closed } = show('Settings', false,
    h('div', { class: 'two' },
      h('label', {}, 'Theme', select('theme', [['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']])),
      h('label', {}, 'Text size', size)),
    h('label', {}, 'Programs may write to the clipboard', select('clipboard', [['ask', 'Ask for each session'], ['always', 'Always'], ['never', 'Never']]),
      h('span', { class: 'hint', text: 'No program can read it.' })),
    h('label', { class: 'check' }, reader, 'Screen reader: the terminal’s rows can be read, and what is printed is announced'),
    error,
    h('div', { class: 'actions' },
      h('button', { type: 'button', class: 'action', text: 'Sign out', title: 'This browser; proxy web lets it in again', onclick: () => signOut().catch((err: unknown) => (error.textContent = `This browser is still signed in: ${said(err)}`)) }),
      h('button', { type: 'button', class: 'action first', text: 'Done', onclick: () => dialog.close() })));
  const follow = (s: Settings): void => shown.forEach((f) => f(s));
  follow(settings());
  return closed.finally(onChange(follow));
}

// pages reaches the pages in all tabs of this browser. A message tells them that the browser was signed out.
export const pages = new BroadcastChannel('holdfast.pages');

// signOut deletes the cookie of this browser, and tells the pages in all its tabs, because they would stay connected.
async function signOut(): Promise<void> {
  const answer = await fetch('/v1/sign-out', { method: 'POST' });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  pages.postMessage('signed out');
  pages.dispatchEvent(new MessageEvent('message')); // a channel does not receive its own messages
}

// The keys that the browser or xterm.js handles.
const others = [
  { keys: 'Ctrl+Shift+C', says: 'Copy what is selected' },
  { keys: 'Ctrl+Shift+V', says: 'Paste' },
  { keys: 'Shift+PageUp', says: 'Scroll back; so Shift+PageDown' },
];

export function help(): Promise<void> {
  const { dialog, closed } = show('Keyboard', true,
    h('p', { text: 'Everything else goes to the program. A shell’s line editor takes Alt+Shift with a letter as Alt with it, so nothing of it is lost.' }),
    h('table', { class: 'shortcuts' }, h('tbody', {}, ...[...shortcuts.filter((k) => k.says), ...others].map((k) => h('tr', {}, h('td', {}, ...k.keys.split('+').flatMap((p, i) => (i ? [' ', h('kbd', { text: p })] : [h('kbd', { text: p })]))), h('td', { text: k.says }))))),
    h('div', { class: 'actions' }, h('button', { type: 'button', class: 'action first', text: 'Close', autofocus: true, onclick: () => dialog.close() })));
  return closed;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

// marked returns a line in which the matches are marked. The ranges count bytes.
function marked(m: Match): HTMLElement {
  const bytes = encoder.encode(m.text);
  const line = h('span', { class: 'line' });
  let at = 0;
  for (const r of m.ranges) {
    line.append(decoder.decode(bytes.subarray(at, r.start)), h('mark', { text: decoder.decode(bytes.subarray(r.start, r.end)) }));
    at = r.end;
  }
  line.append(decoder.decode(bytes.subarray(at)) || (m.text === '' ? ' ' : ''));
  return line;
}

const AROUND = 20; // lines shown before and after a match

// searchHistory searches a regular expression in all lines that the session keeps. The terminal has only some of them.
export function searchHistory(client: Client, s: SessionInfo, text: string): Promise<void> {
  const pattern = h('input', { name: 'pattern', class: 'mono', value: text, autofocus: true, autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' });
  const insensitive = h('input', { type: 'checkbox', checked: true });
  const status = h('p', { role: 'status' });
  const list = h('ul', { class: 'matches', 'aria-label': 'Lines that match, newest first' });
  const more = h('button', { type: 'button', class: 'action', text: 'Older ones', hidden: true, onclick: () => void look(before) });
  let before: number | undefined;
  let run = 0;
  const look = async (from?: number): Promise<void> => {
    const mine = ++run;
    if (from === undefined) list.replaceChildren();
    status.textContent = 'Searching…';
    status.className = '';
    more.hidden = true;
    try {
      const found = await client.search({ session_id: s.id, pattern: pattern.value, ignore_case: insensitive.checked, limit: 200, ...(from !== undefined && { before: from }) });
      if (mine !== run) return;
      for (const m of found.matches) {
        const item = h('li', {});
        item.append(h('button', { type: 'button', onclick: () => void around(m.line, item) }, h('span', { class: 'number', text: String(m.line) }), marked(m)));
        list.append(item);
      }
      before = found.before;
      more.hidden = !found.more;
      const n = list.childElementCount;
      status.textContent = n === 0 ? 'Nothing matches.' : `${n} ${n === 1 ? 'line' : 'lines'}, newest first`;
    } catch (err) {
      if (mine !== run) return;
      status.className = 'error';
      status.textContent = said(err);
    }
  };
  const around = async (line: number, item: HTMLElement): Promise<void> => {
    const open = item.querySelector('pre');
    if (open) return open.remove();
    try {
      const got: HistoryContent = await client.history({ session_id: s.id, before: line + AROUND + 1, lines: 2 * AROUND + 1 });
      item.append(h('pre', { class: 'around', tabindex: 0, text: got.lines.map((l) => l.spans.map((x) => x.t).join('')).reverse().join('\n') }));
    } catch (err) {
      status.className = 'error';
      status.textContent = said(err);
    }
  };
  const form = h('form', { method: 'dialog' },
    h('label', {}, 'Regular expression', h('span', { class: 'beside' }, pattern, h('button', { type: 'submit', class: 'action first', text: 'Search' }))),
    h('label', { class: 'check' }, insensitive, 'Ignore case'));
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    if (pattern.value) void look();
  });
  const { dialog, closed } = show(`History of ${short(title(s))}`, true, form, status, list,
    h('div', { class: 'actions' }, more, h('button', { type: 'button', class: 'action', text: 'Close', onclick: () => dialog.close() })));
  if (text) void look();
  return closed;
}

export interface Item {
  label: string;
  does: () => void;
  keys?: string;
  danger?: boolean;
}

// menu shows items at an element. null stands for a line between two items.
export function menu(at: HTMLElement, items: (Item | null)[]): void {
  const close = (back: boolean): void => {
    e.remove();
    document.removeEventListener('pointerdown', outside, true);
    removeEventListener('resize', place);
    at.setAttribute('aria-expanded', 'false');
    if (back) at.focus();
  };
  const outside = (p: PointerEvent): void => {
    if (!e.contains(p.target as Node)) close(false);
  };
  const e = h('div', { class: 'menu', role: 'menu' }, ...items.map((i) =>
    i === null ? h('hr', { role: 'separator' }) : h('button', { type: 'button', role: 'menuitem', tabindex: -1, class: i.danger ? 'danger' : undefined, onclick: () => { close(true); i.does(); } }, i.label, i.keys ? h('kbd', { text: i.keys }) : null)));
  e.addEventListener('keydown', (k: KeyboardEvent) => {
    const all = [...e.querySelectorAll('button')];
    const i = all.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: -1 }[k.key];
    if (to !== undefined) all.at(to % all.length)?.focus();
    else if (k.key === 'Escape' || k.key === 'Tab') close(true);
    else return;
    k.preventDefault();
    k.stopPropagation();
  });
  document.body.append(e);
  at.setAttribute('aria-haspopup', 'menu');
  at.setAttribute('aria-expanded', 'true');
  const place = (): void => {
    const r = at.getBoundingClientRect();
    e.style.left = `${Math.max(8, Math.min(r.left, innerWidth - e.offsetWidth - 8))}px`;
    e.style.top = `${Math.max(8, r.bottom + e.offsetHeight + 8 > innerHeight ? r.top - e.offsetHeight - 4 : r.bottom + 4)}px`;
  };
  place();
  addEventListener('resize', place);
  document.addEventListener('pointerdown', outside, true);
  e.querySelector('button')?.focus();
}

// mayWrite reports whether a session may write to the clipboard. It returns undefined if the user must be asked.
export function mayWrite(instance: string): boolean | undefined {
  const rule = settings().clipboard;
  return rule === 'ask' ? clipboard.get(instance) : rule === 'always';
}

