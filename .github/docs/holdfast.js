// A client of Holdfast's api for Node: a connection to whichever proxy serves, and
// views of sessions that go on at their offsets. embed-electron.md says how to use
// it, and its test runs it. Copy it: it has no interface to be kept.

const net = require('node:net')
const path = require('node:path')
const { execFile } = require('node:child_process')
const { createHash, randomBytes } = require('node:crypto')

// socket is where a proxy listens: elsewhere if the path is too long for a socket.
function socket(dir) {
  const room = (process.platform === 'darwin' ? 103 : 107) - 1 - 40 // of the longest name
  if (Buffer.byteLength(dir) <= room) return path.join(dir, 'proxy.sock')
  return `/tmp/holdfast-${process.geteuid()}-${createHash('sha256').update(dir).digest('hex').slice(0, 8)}/proxy.sock`
}

// programs is the directory of both programs, dir the app's own HOLDFAST_DIR.
class Holdfast {
  constructor(programs, dir) {
    Object.assign(this, { dir: path.resolve(dir), programs, views: new Map(), waiting: new Map(), last: 0, closed: false })
    this.ready = this.connect() // rejected where no proxy can be started
    this.ready.catch(() => {}) // who asks for something is told
  }

  run(...args) { // a command
    const env = { ...process.env, HOLDFAST_DIR: this.dir, HOLDFAST_SUPERVISOR: path.join(this.programs, 'supervisor') }
    return new Promise((done, failed) => execFile(path.join(this.programs, 'proxy'), args, { env, timeout: 30_000 },
      (err, out, errout) => err ? failed(new Error(errout || err.message)) : done(out)))
  }

  async connect() {
    for (;;) {
      await this.run('start') // waits until a proxy serves; what keeps it from that is thrown
      try {
        await this.dial()
        for (const v of this.views.values()) await v.attach().catch((err) => v.failed(err))
        return
      } catch (err) {
        if (err.code !== 'lost' && !err.retryable) throw err
      }
    }
  }

  async dial() {
    const sock = this.sock = net.connect(socket(this.dir))
    let buf = Buffer.alloc(0)
    sock.on('data', (d) => {
      buf = Buffer.concat([buf, d])
      for (let n; buf.length >= 4 && buf.length >= 4 + (n = buf.readUInt32BE()); buf = buf.subarray(4 + n)) this.take(buf[4], buf.subarray(5, 4 + n))
    })
    sock.on('error', () => {}) // close follows
    sock.on('close', () => {
      for (const w of this.waiting.values()) w.failed(Object.assign(new Error('the connection was lost'), { code: 'lost' }))
      this.waiting.clear()
      for (const v of this.views.values()) v.live = false
      if (this.up && !this.closed) {
        this.ready = this.connect()
        this.ready.catch(() => {})
      }
      this.up = false
    })
    this.welcome = await this.ask({ type: 'hello', protocol: { min: 1, max: 1 }, client: 'my app', pid: process.pid })
    this.up = true
  }

  ask(m) { // welcome has no request_id
    const id = m.type === 'hello' ? undefined : String(++this.last)
    this.frame(0, Buffer.from(JSON.stringify({ ...m, request_id: id })))
    return new Promise((done, failed) => this.waiting.set(id, { done, failed }))
  }

  async request(m) { // is asked again if the connection is lost: give spawn a token
    for (;;) {
      await this.ready
      try {
        return await this.ask(m)
      } catch (err) {
        if (err.code !== 'lost' || this.closed) throw err
      }
    }
  }

  frame(kind, payload) {
    const head = Buffer.alloc(5)
    head.writeUInt32BE(payload.length + 1)
    head[4] = kind
    this.sock.write(Buffer.concat([head, payload]))
  }

  take(kind, payload) {
    if (kind >= 1 && kind <= 4) return this.views.get(payload.readUInt32BE())?.data(kind, Number(payload.readBigUInt64BE(4)), payload.subarray(12))
    if (kind !== 0) return
    const m = JSON.parse(payload), w = this.waiting.get(m.request_id)
    if (m.type === 'goaway') return this.sock.destroy() // another serves, or is about to
    this.views.get(m.attachment)?.told(m)
    this.waiting.delete(m.request_id)
    if (m.type === 'error') w?.failed(Object.assign(new Error(m.message), m))
    else w?.done(m)
  }

  async attach(id, spec, show) { // show(bytes) writes to a terminal; spec.resume and spec.writer go on where another view stopped
    const v = new View(this, ++this.last, id, spec, show)
    await this.ready
    this.views.set(v.number, v)
    try {
      await v.attach()
    } catch (err) {
      if (err.code === 'lost') return v // connect attaches it
      this.views.delete(v.number)
      throw err
    }
    return v
  }

  close() { this.closed = true; this.sock.end() } // the sessions go on
}

// harmless errors end no attachment.
const harmless = ['input_full', 'input_gap', 'line_too_long', 'permission_denied']

// A View shows a session: to write to it types, exited tells its last message.
class View {
  constructor(hf, number, id, { resume, writer = randomBytes(8).toString('hex'), ...spec }, show) {
    Object.assign(this, { hf, number, id, spec, show, writer, left: 0, attempt: Date.now(), base: 0, sent: 0, typed: Buffer.alloc(0) })
    Object.assign(this, { instance: resume?.instance, offset: resume?.offset ?? 0, exited: new Promise((done) => { this.end = done }) })
  }

  attach() {
    const resume = this.instance && { instance: this.instance, offset: this.offset }
    return this.hf.ask({
      type: 'attach', attachment: this.number, session_id: this.id, answers: true, writer: this.writer, attempt: ++this.attempt,
      resume, snapshot: this.left > 0, ...this.spec,
    })
  }

  told(m) {
    if (m.type === 'attached' || m.type === 'resync') {
      this.stands = m.offset
      this.left = m.snapshot_bytes
      this.offset = this.left > 0 ? this.offset + m.bytes_missed : m.offset
      if (m.type === 'resync' || m.replay === 'snapshot') this.show(Buffer.from('\x1bc')) // a snapshot is for an empty terminal
    }
    if (m.type === 'attached') {
      this.live = true
      this.instance = m.session.instance
      this.again(m.input_offset)
    }
    if (m.type === 'accepted') this.accepted(m.offset)
    if (m.code === 'input_gap') this.again(m.offset)
    if (m.code === 'input_full') setTimeout(() => this.again(m.offset), 20)
    if (m.type === 'pty_exited' || m.type === 'stolen') this.failed(m)
    if (m.type === 'error' && m.request_id === undefined && !harmless.includes(m.code)) {
      if (m.retryable) this.hf.sock.destroy() // all is attached anew
      else this.failed(m)
    }
  }

  failed(why) { // a lost connection is no end
    if (why.code === 'lost' || why.retryable) throw why
    this.hf.views.delete(this.number)
    this.end(why)
  }

  data(kind, offset, bytes) {
    if (kind === 1) this.offset = offset + bytes.length
    else if (kind === 3 && (this.left -= bytes.length) === 0) this.offset = this.stands
    this.show(Buffer.from(bytes))
  }

  accepted(offset) {
    const n = Math.max(0, offset - this.base)
    this.typed = this.typed.subarray(n)
    this.base += n
    this.sent = Math.max(0, this.sent - n)
  }

  again(offset) { // what was sent may be lost: all that was not accepted goes once more
    this.accepted(offset)
    this.sent = 0
    this.write('')
  }

  write(data) { // arrives once, whatever happens to the proxy
    this.typed = Buffer.concat([this.typed, Buffer.from(data)])
    for (let part; this.live && (part = this.typed.subarray(this.sent, this.sent + 32768)).length > 0; this.sent += part.length) {
      const head = Buffer.alloc(12)
      head.writeUInt32BE(this.number)
      head.writeBigUInt64BE(BigInt(this.base + this.sent), 4)
      this.hf.frame(2, Buffer.concat([head, part]))
    }
  }

  resize(cols, rows) { Object.assign(this.spec, { cols, rows }); return this.hf.request({ type: 'resize', attachment: this.number, cols, rows }) }

  detach() { this.hf.views.delete(this.number); return this.hf.request({ type: 'detach', attachment: this.number }) }
}

module.exports = { Holdfast }
