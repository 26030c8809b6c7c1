// Clients of real proxies, for scripts/e2e: each types numbers into a session that
// echoes, and every byte has to come back, once and in order, whatever is done to the
// processes meanwhile.
//
// The first line of stdin is JSON, [{name, does, socketPath, ssh, gate, url, token, session}]: the
// clients; gate is {text, host}. Each other line is a command. Every line is answered by one of stdout:
// "open" or the command, or "failed: " and what happened, which ends the program.
//
//   does       what it is
//   types      an attachment
//   shows      a terminal, of @xterm/headless
//   asks       at each command: starts a session, looks at it, ends it
//   overtaken  a terminal of a session that prints, at each command, more than it is
//              given time for; its WebSocket cannot be paused, as a browser's
//
// "on" is answered when each has had something back that was typed since, and "end"
// when all has come back, and each terminal shows what its session does; then those that
// show end theirs, and show that. Its answer has
// further JSON: {typed, longest_ms, reconnects,
// missed}, the last of those that are overtaken.
//
// Not here: what is done meanwhile.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import xterm from '@xterm/headless';
import WebSocket from 'ws';
import { attach, HoldfastClient, parseGate } from '../dist/index.js';

const AHEAD = 64; // bytes that are typed before their echo has come
const LIMIT_MS = 25_000; // how long anything may take; nothing waits for it where all is well
const SIZE = { cols: 80, rows: 24 };
const HISTORY = 200;

let over = false, failed = false;
let typed = 0, longest = 0, reconnects = 0, missed = 0;

function fail(what) {
  if (!failed) process.stdout.write(`failed: ${what}\n`.replaceAll(/\n(?=.)/g, ' '), () => process.exit(1));
  failed = true; // what follows is of the same cause
}

// A browser's WebSocket has no pause.
class Unpausable extends WebSocket {
  get pause() {
    return undefined;
  }
}

class Client {
  constructor(about) {
    Object.assign(this, about);
    this.want = ''; // typed, and not come back
    this.number = 0;
    this.had = 0; // bytes that came back
    this.waiting = []; // {until, done}
    this.since = Date.now();
  }

  fail(what) {
    fail(`${this.name}, where ${JSON.stringify(this.want.slice(0, 60))} is to come: ${what}`);
  }

  // options: over the Unix socket, or over TCP by npm's ws.
  async open() {
    const { socketPath, ssh, gate, url, token } = this;
    const way = socketPath ? { socketPath } : ssh ? { ssh } : gate ? { gate: { ...parseGate(gate.text), host: gate.host } } : { url, token, WebSocket: this.does === 'overtaken' ? globalThis.WebSocket ?? Unpausable : WebSocket };
    this.client = await HoldfastClient.connect({ ...way, client: this.name });
    this.client.on('error', (err) => { if (!err.retryable) this.fail(err); });
    if (this.does === 'asks') {
      this.events = [];
      this.subscription = this.client.subscribe();
      this.told = this.listen();
      return this.subscription.ready;
    }
    if (this.does === 'types') {
      const { instance, ring_start } = await this.client.info(this.session);
      this.a = await this.client.attach(this.session, { resume: { instance, offset: ring_start } });
      this.a.on('resync', (what) => this.fail(`it was resynced: ${JSON.stringify(what)}`));
      this.want = 'ready\n';
      this.a.on('output', (data, offset) => this.came(new TextDecoder().decode(data), offset));
    } else {
      this.term = new xterm.Terminal({ ...SIZE, allowProposedApi: true, scrollback: HISTORY });
      this.shown = await attach(this.term, this.client, this.session, { fit: this.does === 'shows', history: HISTORY });
      this.a = this.shown.attachment;
      this.a.on('output', (data, offset) => this.came(this.does === 'shows' ? new TextDecoder().decode(data) : '', offset, data.length));
      this.a.on('resync', (what) => { missed += what.bytesMissed; this.offset = what.offset; });
      this.a.on('resync', (what) => { if (this.does === 'shows' && this.had > 0) this.fail(`it was resynced: ${JSON.stringify(what)}`); });
    }
    this.a.on('state', (s) => { if (s === 'reconnecting') reconnects++; });
    this.a.on('error', (err) => this.fail(err));
    this.a.on('exit', (exit) => { if (!over) this.fail(`it exited: ${JSON.stringify(exit)}`); });
    if (this.does === 'types') await this.until(() => this.want === '');
    else await new Promise((done) => this.a.on('resync', done)); // its snapshot may come later, and with it a.offset
    if (this.does !== 'overtaken') this.type();
  }

  async listen() {
    for await (const e of this.subscription) {
      if (e.event === 'missed') this.fail('events are lost');
      this.events.push([e.event, e.session?.id ?? e.exit?.session_id, e.seq]);
      this.look();
    }
  }

  // asks lives a session's life.
  async asks() {
    const { client } = this, session_id = `${this.name}-${this.number++}`;
    const { session } = await client.spawn({
      session_id, argv: ['/bin/sh', '-c', 'echo hi; read x; echo got $x; exit 7'], cols: 40, rows: 10, labels: { title: 'Asks' },
    });
    assert.deepEqual(session.size, { cols: 40, rows: 10 });
    const a = await client.attach(session_id);
    const hi = new Promise((done) => {
      let text = '';
      const add = (data) => { if ((text += new TextDecoder().decode(data)).includes('hi')) done(); };
      a.on('snapshot', add);
      a.on('output', add);
    });
    await hi;
    await client.setSizePolicy(session_id, 'fixed');
    await client.resize(session_id, 50, 12);
    await this.types(session_id);
    const exit = await client.wait(session_id, { timeoutMs: LIMIT_MS });
    assert.deepEqual([exit.exit_code, exit.last_lines.at(-1)], [7, 'got there']);
    const told = await a.exited;
    assert.deepEqual([told.exit_code, told.session_title, told.last_lines], [7, 'Asks', exit.last_lines]);
    const screen = await client.screen({ session_id });
    assert.deepEqual([screen.lines, screen.cols], [['hi', 'there', 'got there'], 50]);
    const found = await client.search({ session_id, pattern: 'g.t (\\w+)' });
    assert.deepEqual(found.matches.map((m) => m.text), ['got there']);
    assert.deepEqual((await client.history({ session_id })).lines, []); // none is above the screen
    const printed = await client.scrollback(session_id, 4);
    assert.equal(new TextDecoder().decode(printed.data), 'there\r\ngot there\r\n');
    assert.ok((await client.list()).some((s) => s.id === session_id && s.exit_code === 7));
    await assert.rejects(client.attach(session_id), (err) => err.code === 'session_exited' && err.exit.exit_code === 7);
    const again = await client.reopen(session_id, { argv: ['/bin/cat'] });
    assert.notEqual(again.session.instance, session.instance);
    await client.kill(session_id, { reason: 'enough' });
    assert.deepEqual((({ signal, reason }) => [signal, reason])(await client.wait(session_id)), ['SIGHUP', 'enough']);
    await client.forget(session_id);
    await assert.rejects(client.info(session_id), { code: 'session_not_found' });
    assert.ok((await client.status()).proxy.pid > 0);
    assert.ok((await client.ticket()).ticket.length > 0);
    const events = () => this.events.filter(([what, id]) => id === session_id && ['created', 'exited', 'forgotten'].includes(what)).map(([what]) => what);
    const want = ['created', 'exited', 'forgotten', 'created', 'exited', 'forgotten'];
    await this.until(() => events().length >= want.length);
    assert.deepEqual(events(), want);
    const [created] = this.events.find(([what, id]) => id === session_id && what === 'created').slice(2);
    await this.replays(session_id, created, want.slice(1));
  }

  // replays subscribes behind an event: those of a session that followed come again.
  async replays(session_id, seq, want) {
    const { client } = this, got = [], { instance } = (await client.status()).supervisor;
    for await (const e of client.subscribe({ after: { instance, seq } })) {
      if (e.event === 'missed' || e.seq <= seq) this.fail(`behind ${seq} comes ${JSON.stringify(e)}`);
      if ((e.session?.id ?? e.exit?.session_id) === session_id && ['created', 'exited', 'forgotten'].includes(e.event)) got.push(e.event);
      if (got.length === want.length) break;
    }
    assert.deepEqual(got, want);
  }

  // types answers the session: by keys, where the proxy knows them.
  async types(session_id) {
    const { client } = this;
    const marked = await client.mark(session_id).catch((err) => { if (err.code !== 'unsupported') throw err; });
    if (marked === undefined) return client.input(session_id, 'there\n');
    await client.keys(session_id, ['t', 'h']);
    await client.paste(session_id, 'ere');
    await client.keys(session_id, ['Enter']);
    const { groups } = await client.await({ session_id, text: 'got (.*)', since: marked.mark, timeout_ms: LIMIT_MS });
    assert.deepEqual(groups, ['got there', 'there']);
  }

  // came: each byte once, and in order.
  came(text, offset, length = text.length) {
    if (this.does !== 'overtaken') {
      if (this.offset !== undefined && offset !== this.offset) return this.fail(`output at ${offset} and not ${this.offset}`);
      if (!this.want.startsWith(text)) return this.fail(`came ${JSON.stringify(text.slice(0, 80))}`);
      this.want = this.want.slice(text.length);
    }
    this.offset = offset + length;
    this.had += length;
    const now = Date.now();
    longest = Math.max(longest, now - this.since);
    this.since = now;
    this.look();
    if (this.typing) setImmediate(() => this.type());
  }

  look() {
    this.waiting = this.waiting.filter(({ until, done }) => !until() || void done());
  }

  type() {
    this.typing = true;
    while (!over && this.want.length < AHEAD) {
      const s = `${this.number++}\r\n`;
      this.want += s;
      typed += s.length;
      if (!this.a.write(s)) this.fail('its input is full');
    }
  }

  until(until) {
    if (until()) return Promise.resolve();
    return new Promise((done) => this.waiting.push({ until, done }));
  }

  async on() {
    if (this.does === 'overtaken') {
      return this.client.input(this.session, 'go\n'); // what it shows is looked at in the end
    }
    if (this.does === 'asks') return this.asks();
    const had = this.had + 3 * AHEAD;
    await this.until(() => this.had > had);
  }

  // ends: all has come, and the terminal shows what the session does.
  async end() {
    if (this.does === 'asks') {
      await this.client.close();
      return this.told;
    }
    if (this.does === 'overtaken') {
      await this.client.input(this.session, 'end\n');
    } else {
      await this.until(() => this.want === '');
      await this.a.flush();
    }
    if (this.term) await this.same();
    if (this.does === 'shows') await this.killed();
    await this.client.close();
  }

  async killed() {
    await this.client.kill(this.session);
    const exit = await this.shown.exited;
    await this.shown.shown();
    assert.deepEqual(look(this.term).slice(-2), ['[process exited with code 129]', exit.last_lines.at(-1)]);
  }

  async same() {
    for (;;) {
      const { lines, offset } = await this.client.screen({ session_id: this.session, format: 'text', scrollback: HISTORY });
      const ended = this.does === 'shows' || lines.at(-1) === 'the end';
      if (ended && this.a.offset >= offset) {
        await this.shown.shown();
        const mine = look(this.term);
        const n = Math.min(lines.length, mine.length) - 1; // the first may have its beginning further above
        if (mine.slice(-n).join('\n') === lines.slice(-n).join('\n') && n > SIZE.rows) return;
        return this.fail(`its terminal shows ${JSON.stringify(mine.slice(-4))}, and the session ${JSON.stringify(lines.slice(-4))}`);
      }
      await new Promise((done) => setTimeout(done, 20)); // the session has printed more meanwhile
    }
  }
}

/** look returns a terminal's lines, what was wrapped as one. */
function look(term) {
  const lines = [], b = term.buffer.active;
  for (let i = 0; i < b.length; i++) {
    const line = b.getLine(i), text = line.translateToString(true);
    if (line.isWrapped && lines.length > 0) lines[lines.length - 1] += text;
    else lines.push(text);
  }
  while (lines.at(-1) === '') lines.pop();
  return lines;
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const clients = JSON.parse((await lines.next()).value).map((about) => new Client(about));
const answer = (s) => process.stdout.write(`${s}\n`);
const all = async (what) => {
  const late = setTimeout(() => fail(`${what}: ${clients.filter((c) => c.waiting.length > 0).map((c) => c.name)} wait`), LIMIT_MS);
  await Promise.all(clients.map((c) => c[what]()));
  clearTimeout(late);
};
process.on('unhandledRejection', (err) => fail(err.stack));
process.on('uncaughtException', (err) => fail(err.stack));
await all('open');
answer('open');
for await (const line of lines) {
  if (line === 'end') over = true;
  await all(line);
  if (line === 'end') break;
  answer(line);
}
answer(`end ${JSON.stringify({ typed, longest_ms: longest, reconnects, missed })}`);
process.stdin.destroy();
