// Clients by the ws library, which know of no reconnect. Each types numbers
// into a session that echoes, and every byte has to come back, once and in
// order. A socket that closes before it is told to is a failure.
//
// The first line of stdin is JSON, [{name, url, session, token, does}]: the
// clients, those without a session on a raw WebSocket. Each other line is a
// command. Every line is answered by one of stdout: "open" or the command, or
// "failed: " and what happened, which ends the program.
//
//   does    begin                      rest
//   types   types on, all the time     gets back something typed since
//   halves  sends half a message       sends the rest, and gets it back
//   pastes  pastes on, reads no more   reads again, and gets it all back
//
// With "end" all finish and close; its answer has further JSON, {typed,
// longest_ms}: the longest time that a client that types got nothing back.
//
// Invariant: between the answer to begin and the next command half a message
// of each of halves is under way, and has arrived.
//
// Not here: what is done meanwhile (scripts/e2e).

import { createInterface } from 'node:readline';
import WebSocket from 'ws';

const OUTPUT = 1, INPUT = 2, SNAPSHOT = 3, ATTACHMENT = 1;
const HEAD = 1 + 4 + 8; // kind, attachment and offset, before the data of a message
const BEGIN = Buffer.from('<begin>');
const AHEAD = 64; // bytes that are typed before their echo has come
const PASTE = 200_000, PASTES = 2_000_000; // bytes of one, and of all before their echo has come: more than sockets hold
const LIMIT_MS = 25_000; // how long anything may take; nothing waits for it where all is well

let over = false, failed = false;
let typed = 0, longest = 0;

function fail(what) {
  if (!failed) process.stdout.write(`failed: ${what}\n`, () => process.exit(1));
  failed = true; // what follows is of the same cause
}

const quote = (bytes) => JSON.stringify(String(bytes.subarray(0, 80)));

class Client {
  constructor(about) {
    Object.assign(this, about);
    this.offset = 0; // of what is typed next
    this.pos = -1; // of what is printed next
    this.skip = 0; // bytes of a snapshot to come
    this.before = this.session ? null : Buffer.alloc(0); // a raw WebSocket's snapshot, and all before BEGIN
    this.want = []; // typed, and not come back
    this.due = 0; // bytes of it
    this.pings = []; // sent, and not answered
    this.waiting = []; // {until, done}
    this.since = Date.now(); // when something came, or was first waited for
  }

  fail(what) {
    fail(`${this.name}, where ${this.due} bytes ${quote(this.want[0] ?? Buffer.alloc(0))} and pongs [${this.pings}] are to come: ${what}`);
  }

  async open() {
    this.ws = new WebSocket(this.url, this.session ? 'holdfast.v1' : []);
    this.ws.on('open', () => this.came());
    this.ws.on('error', (err) => this.fail(err));
    this.ws.on('close', (code, reason) => this.closes(code, reason));
    this.ws.on('pong', (data) => this.ponged(String(data)));
    this.ws.on('message', (data, binary) => this.message(data, binary));
    await this.until(() => this.ws.readyState === WebSocket.OPEN);
    if (this.session) {
      this.tell({ type: 'hello', protocol: { min: 1, max: 1 }, client: 'ws', token: this.token });
      this.tell({ type: 'attach', attachment: ATTACHMENT, session_id: this.session });
      await this.until(() => this.pos >= 0 && this.skip === 0);
    } else {
      this.ws.send(BEGIN);
      await this.until(() => !this.before);
    }
  }

  closes(code, reason) {
    this.closed = true;
    if (!this.closing || code !== 1000) this.fail(`closed with ${code} ${reason}`);
    this.came();
  }

  ponged(name) {
    if (name !== this.pings.shift()) this.fail(`an unexpected pong: ${name}`);
    this.came();
  }

  message(data, binary) {
    if (!this.session) return this.printed(data);
    if (!binary) return this.told(JSON.parse(data));
    const kind = data[0], offset = Number(data.readBigUInt64BE(5)), n = data.length - HEAD;
    if (kind === SNAPSHOT && n <= this.skip) {
      this.skip -= n;
      return this.came();
    }
    if (kind !== OUTPUT || this.skip > 0 || offset !== this.pos) this.fail(`kind ${kind} at ${offset} and not ${this.pos}`);
    this.pos += n;
    this.printed(data.subarray(HEAD));
  }

  told(m) {
    if (m.type === 'attached' && this.pos < 0) {
      this.pos = m.offset;
      this.skip = m.snapshot_bytes;
      return this.came();
    }
    if (m.type !== 'welcome' && !(m.type === 'accepted' && m.offset <= this.offset)) this.fail(`told ${JSON.stringify(m)}`);
  }

  printed(data) {
    if (this.before) {
      this.before = Buffer.concat([this.before, data]);
      const at = this.before.indexOf(BEGIN);
      if (at < 0) return;
      data = this.before.subarray(at + BEGIN.length);
      this.before = null;
    }
    while (data.length > 0) {
      const want = this.want.shift() ?? Buffer.alloc(0);
      const n = Math.min(data.length, want.length);
      if (n === 0 || data.compare(want, 0, n, 0, n) !== 0) {
        this.want.unshift(want);
        return this.fail(`${data.length} bytes ${quote(data)} come`);
      }
      if (n < want.length) this.want.unshift(want.subarray(n));
      this.due -= n;
      data = data.subarray(n);
    }
    this.came();
  }

  // came lets those go on who waited for what is true now.
  came() {
    this.since = Date.now();
    this.waiting = this.waiting.filter(({ until, done }) => !until() || done());
  }

  until(until) {
    return until() ? undefined : new Promise((done) => this.waiting.push({ until, done: () => void done() }));
  }

  tell(message) {
    this.ws.send(JSON.stringify(message));
  }

  send(part, fin) {
    this.ws.send(part, { fin, binary: Boolean(this.session) });
  }

  // compose returns the message that types text, which is to come back.
  compose(text) {
    const typing = Buffer.from(text), head = Buffer.alloc(HEAD);
    head[0] = INPUT;
    head.writeUInt32BE(ATTACHMENT, 1);
    head.writeBigUInt64BE(BigInt(this.offset), 5);
    this.offset += typing.length;
    typed += typing.length;
    this.expects();
    this.want.push(typing);
    this.due += typing.length;
    return this.session ? Buffer.concat([head, typing]) : typing;
  }

  expects() {
    if (this.due === 0 && this.pings.length === 0) this.since = Date.now();
  }

  // ping returns when what was sent before has arrived, too.
  async ping(name) {
    this.expects();
    this.pings.push(name);
    this.ws.ping(name);
    await this.until(() => this.pings.length === 0);
  }

  async close() {
    await this.until(() => this.due === 0 && this.pings.length === 0);
    this.closing = true;
    this.expects();
    this.ws.close(1000);
    await this.until(() => this.closed);
  }
}

// A Typist types all the time, also while a handoff is under way.
class Typist extends Client {
  begin() {
    this.running ??= this.type();
  }

  async type() {
    for (let n = 1; !over; n++) {
      this.send(this.compose(`<${n}>`), true);
      if (n % 16 === 0) await this.ping(`ping ${n}`);
      await this.until(() => this.due < AHEAD);
    }
  }

  async rest() {
    const since = this.offset;
    await this.until(() => this.offset - this.due > since);
  }

  came() {
    if (this.running) longest = Math.max(longest, Date.now() - this.since);
    super.came();
  }

  async close() {
    await this.running;
    await super.close();
  }
}

// Halves cuts its messages in their heads and within characters.
class Halves extends Client {
  n = 0;

  async begin() {
    const message = this.compose(`[${++this.n} é and ü]`);
    const cut = this.session && this.n % 2 === 0 ? HEAD - 5 : message.indexOf('é') + 1;
    this.send(message.subarray(0, cut), false);
    this.left = message.subarray(cut);
    await this.ping(`half ${this.n}`);
  }

  async rest() {
    this.send(this.left.subarray(0, 1), false);
    await this.ping(`between ${this.n}`);
    this.send(this.left.subarray(1), true);
    await this.until(() => this.due === 0);
  }
}

// Pastes has parts of messages under way in both directions. It knows of no
// input_full, so it is for raw WebSockets.
class Pastes extends Client {
  n = 0;

  begin() {
    this.ws.pause();
    while (this.due < PASTES) this.send(this.compose(`{${++this.n}}`.repeat(PASTE / 4).slice(0, PASTE)), true);
  }

  async rest() {
    this.ws.resume();
    this.since = Date.now();
    await this.until(() => this.due === 0);
  }
}

let clients;
const kinds = { types: Typist, halves: Halves, pastes: Pastes };
const each = (f) => Promise.all(clients.map(f));

const commands = {
  async open(about) {
    clients = JSON.parse(about).map((c) => new kinds[c.does](c));
    await each((c) => c.open());
    return '';
  },
  async begin() {
    await each((c) => c.begin());
    return '';
  },
  async rest() {
    await each((c) => c.rest());
    return '';
  },
  async end() {
    over = true;
    await each((c) => c.close());
    return ' ' + JSON.stringify({ typed, longest_ms: longest });
  },
};

setInterval(() => {
  const late = clients?.find((c) => !c.closed && c.waiting.length > 0 && Date.now() - c.since > LIMIT_MS);
  late?.fail(`nothing comes for ${LIMIT_MS / 1000} s`);
}, 1000).unref();

for await (const line of createInterface({ input: process.stdin })) {
  const command = clients ? line : 'open';
  try {
    process.stdout.write(`${command}${await commands[command](line)}\n`);
  } catch (err) {
    fail(err.stack);
  }
  if (command === 'end') break;
}
