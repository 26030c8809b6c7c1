// A proxy in memory, with one session that echoes, for tests of what no real one does
// on demand: connections that are cut at a byte, rings that have forgotten, queues that
// are full.
//
// A terminal of this world shows what was written to it since it was emptied, and a
// snapshot is all that was printed: so a viewer is right that shows what the session
// printed, whatever happened on the way.

import * as frames from '../dist/frames.js';

export const SESSION = 'build';
const text = new TextEncoder();

/** random is a generator of numbers below 1, by mulberry32. */
export function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** seed is what HOLDFAST_SEED says, or a new one; a test that fails prints it. */
export const seed = Number(process.env.HOLDFAST_SEED ?? Math.floor(Math.random() * 2 ** 31));

export class Fake {
  constructor() {
    this.printed = ''; // all of it
    this.forgotten = 0; // the ring's beginning
    this.typed = '';
    this.accepted = new Map(); // by writer
    this.full = 0; // so many inputs are refused as input_full
    this.exit = null;
    this.instance = 'fcde2b2edba56bf4';
    this.connections = []; // all that were made
    this.asked = []; // messages
    this.cut = () => Infinity; // after how many bytes both ways the next connection breaks
    this.answers = {}; // by type: (m, connection) => messages
    this.pausable = true;
    this.refuses = false;
    this.pieces = (bytes) => [bytes]; // how what is sent is cut
  }

  transport = async () => {
    if (this.refuses) throw new Error('nobody listens');
    const c = new FakeConnection(this, this.cut());
    this.connections.push(c);
    return c.transport;
  };

  get live() {
    return this.connections.filter((c) => !c.over);
  }

  get viewers() {
    return this.live.filter((c) => c.spec);
  }

  print(s) {
    this.printed += s;
    for (const c of this.viewers) c.output();
  }

  ends(exit) {
    this.exit = exit;
    for (const c of this.viewers) c.output();
  }

  info() {
    return {
      id: SESSION, instance: this.instance, pid: 1, state: 'running', size: this.size ?? { cols: 80, rows: 24 }, argv: ['cat'], cwd: '/',
      created_at: '2026-09-01T12:00:00Z', last_io_at: '2026-09-01T12:00:00Z', output_offset: this.printed.length, ring_start: this.forgotten,
      scrollback_lines: 0, attachments: this.viewers.length,
    };
  }
}

class FakeConnection {
  constructor(fake, cut) {
    Object.assign(this, { fake, left: cut, over: false, offset: 0, gap: false, paused: false, held: [] });
    const reader = new frames.FrameReader();
    reader.max = frames.MAX_FRAME;
    this.toClient = new frames.FrameReader();
    this.toClient.max = frames.MAX_FRAME;
    const send = (raw) => {
      if (this.over) return;
      const got = this.spend(raw);
      reader.read(got, (kind, payload) => this.later(() => this.received(kind, payload)));
      if (got.length < raw.length) this.breaks();
    };
    this.transport = {
      open: (handler) => { this.handler = handler; },
      message: (s) => send(frames.frame(frames.CONTROL, text.encode(s))),
      data: (kind, payload) => send(frames.frame(kind, payload)),
      close: () => { this.over = true; this.spec = null; },
    };
    if (fake.pausable) {
      this.transport.pause = () => { this.paused = true; };
      this.transport.resume = () => {
        this.paused = false;
        for (const raw of this.held.splice(0)) this.deliver(raw);
      };
    }
  }

  later(fn) {
    setImmediate(() => { if (!this.over) fn(); });
  }

  // spend returns as much of what is sent as gets across.
  spend(raw) {
    const got = raw.subarray(0, this.left);
    this.left -= got.length;
    return got;
  }

  breaks() {
    if (this.over) return;
    this.over = true;
    this.spec = null;
    setImmediate(() => this.handler.closed());
  }

  send(kind, payload) {
    if (this.over) return;
    const raw = frames.frame(kind, payload), got = this.spend(raw);
    for (const piece of this.fake.pieces(got)) this.deliver(piece.slice());
    if (got.length < raw.length) this.breaks();
  }

  deliver(raw) {
    if (this.paused) return void this.held.push(raw);
    this.toClient.read(raw, (kind, payload) => {
      if (kind === frames.CONTROL) this.handler.message(new TextDecoder().decode(payload));
      else this.handler.data(kind, payload);
    });
  }

  tell(m) {
    this.send(frames.CONTROL, text.encode(JSON.stringify(m)));
  }

  data(kind, offset, bytes) {
    for (let i = 0; i < bytes.length && !this.over; i += frames.MAX_DATA) {
      const part = bytes.subarray(i, i + frames.MAX_DATA);
      this.send(kind, frames.inputPayload(1, kind === frames.OUTPUT ? offset + i : offset, part));
    }
  }

  received(kind, payload) {
    if (kind === frames.INPUT) return this.input(frames.parseData(payload));
    const m = JSON.parse(new TextDecoder().decode(payload));
    this.fake.asked.push(m);
    const own = this.fake.answers[m.type];
    if (own) {
      for (const answer of own(m, this) ?? []) this.tell(answer);
      return;
    }
    switch (m.type) {
      case 'hello':
        return this.tell({
          type: 'welcome', protocol: { min: 1, max: 1 }, agreed: 1, pid: 1, version: 'fake', instance: 'f',
        });
      case 'attach':
        return this.attach(m);
      case 'detach':
        this.spec = null;
        return this.tell({ type: 'detached', attachment: 1 });
      case 'input': { // of a writer, as with an attachment
        const data = Uint8Array.from(Buffer.from(m.data_b64, 'base64'));
        const had = this.fake.accepted.get(m.writer) ?? 0;
        if (this.fake.full > 0) {
          this.fake.full--;
          return this.tell({ type: 'error', request_id: m.request_id, code: 'input_full', message: 'full', retryable: true, offset: had });
        }
        this.takes(m.writer, had, data.subarray(Math.max(0, had - m.offset)));
        return this.tell({ type: 'accepted', request_id: m.request_id, offset: this.fake.accepted.get(m.writer) });
      }
    }
    if (m.request_id !== undefined) this.tell({ type: 'error', request_id: m.request_id, code: 'unsupported', message: m.type });
  }

  attach(m) {
    const { fake } = this;
    if (fake.exit && !m.resume) return this.tell({ type: 'error', attachment: 1, code: 'session_exited', message: 'over', exit: fake.exit });
    for (const c of fake.viewers) if (c.spec.writer === m.writer) c.breaks();
    this.spec = m;
    const exact = m.resume && !m.snapshot && m.resume.offset >= fake.forgotten;
    const end = fake.printed.length;
    this.offset = exact ? m.resume.offset : end;
    const snapshot = exact ? new Uint8Array(0) : text.encode(fake.printed);
    const missed = exact || !m.resume ? 0 : Math.max(0, fake.forgotten - m.resume.offset);
    this.tell({
      type: 'attached', attachment: 1, session: fake.info(), replay: exact ? 'exact' : 'snapshot', offset: this.offset, bytes_missed: missed,
      snapshot_bytes: snapshot.length, writer: m.writer, input_offset: fake.accepted.get(m.writer) ?? 0,
    });
    this.data(frames.SNAPSHOT, this.offset, snapshot);
    this.output();
  }

  // output sends what this viewer has not had, and then how the session ended.
  output() {
    if (this.over || !this.spec) return;
    const bytes = text.encode(this.fake.printed.slice(this.offset));
    const at = this.offset;
    this.offset = this.fake.printed.length;
    this.data(frames.OUTPUT, at, bytes);
    if (!this.fake.exit || this.over) return;
    this.spec = null;
    this.tell({ ...this.fake.exit, attachment: 1 });
  }

  // resync has this viewer begin anew.
  resync() {
    if (this.over || !this.spec) return;
    const snapshot = text.encode(this.fake.printed);
    const missed = this.fake.printed.length - this.offset;
    this.offset = this.fake.printed.length;
    this.tell({ type: 'resync', attachment: 1, offset: this.offset, bytes_missed: missed, snapshot_bytes: snapshot.length });
    this.data(frames.SNAPSHOT, this.offset, snapshot);
  }

  input({ offset, data }) {
    if (!this.spec) return;
    const { fake } = this, { writer } = this.spec;
    const had = fake.accepted.get(writer) ?? 0;
    if (offset > had) {
      if (!this.gap) this.tell({ type: 'error', attachment: 1, code: 'input_gap', message: 'gap', retryable: true, offset: had });
      this.gap = true;
      return;
    }
    if (fake.full > 0) {
      fake.full--;
      this.tell({ type: 'error', attachment: 1, code: 'input_full', message: 'full', retryable: true, offset: had });
      this.gap = true;
      return;
    }
    this.gap = false;
    this.takes(writer, had, data.subarray(had - offset));
    this.tell({ type: 'accepted', attachment: 1, offset: fake.accepted.get(writer) });
  }

  takes(writer, had, data) {
    this.fake.accepted.set(writer, had + data.length);
    const s = new TextDecoder().decode(data);
    this.fake.typed += s;
    this.fake.print(s.toUpperCase());
  }
}

/** A Shown is a viewer's terminal, as this world's are. */
export class Shown {
  constructor(attachment) {
    Object.assign(this, { text: '', missed: 0, watching: [] });
    const add = (data) => {
      this.text += new TextDecoder().decode(data);
      this.watching = this.watching.filter(({ is, done }) => !is() || void done());
    };
    attachment.on('output', (data, offset) => {
      if (offset !== this.text.length) throw new Error(`output at ${offset}, and ${this.text.length} bytes are shown`);
      add(data);
    });
    attachment.on('snapshot', add);
    attachment.on('resync', (what) => {
      this.text = '';
      this.missed += what.bytesMissed;
    });
  }

  until(is) {
    return is() ? Promise.resolve() : new Promise((done) => this.watching.push({ is, done }));
  }

  shows(s) {
    return this.until(() => this.text.includes(s));
  }
}
