// A test for CI: the app's terminals lose no byte while the programs are killed and replaced, and connections are cut.
// It needs no Electron. Arguments are those of proxy chaos, such as --for 1m --seed 7.

const { spawn } = require('node:child_process')
const { EventEmitter } = require('node:events')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const path = require('node:path')
const { createInterface } = require('node:readline')
const Holdfast = require('holdfast')
const { serveTerminals } = require('./terminals.js')

const programs = path.join(path.dirname(require.resolve(`@holdfast/${process.platform}-${process.arch}/package.json`)), 'bin')
const dir = mkdtempSync(path.join(tmpdir(), 'chaos-'))
const daemon = path.join(dir, 'daemon')
const run = (program, ...args) => spawn(path.join(programs, program), [...args, '--dir', daemon], { stdio: ['pipe', 'pipe', 'inherit'] })
const ended = (child) => new Promise((done) => child.once('close', done))

const chaos = run('proxy', 'chaos', '--relay', path.join(dir, 'relay'), ...process.argv.slice(2))
const report = (line) => chaos.stdin.write(`${JSON.stringify(line)}\n`)
chaos.stdin.on('error', () => {}) // it has failed, and its exit code tells so

// Instead of Electron's, with one page for each session.
const handlers = new Map()
const ipcMain = Object.assign(new EventEmitter(), { handle: (channel, fn) => handlers.set(channel, fn) })
const typing = new Map()
let client

function type(page, keys) {
  report({ session_id: page.id, typed: keys })
  ipcMain.emit('terminal:write', { sender: page }, page.id, keys)
}

async function begin({ dir, sessions }) {
  client = await Holdfast.start({ dir })
  const exits = new Map()
  serveTerminals(client, ipcMain, (id, exit_code) => {
    report({ session_id: id, exit_code })
    exits.get(id)()
  })
  await Promise.all(sessions.map(async (id) => {
    const page = { id, once() {}, isDestroyed: () => false, send: (_, bytes) => report({ session_id: id, received: Buffer.from(bytes).toString('base64') }) }
    const exited = new Promise((done) => exits.set(id, done))
    await handlers.get('terminal:attach')({ sender: page }, id, { cols: 80, rows: 24 })
    let count = 0
    typing.set(id, { page, timer: setInterval(() => type(page, `${++count} `), 20) })
    await exited
  }))
  await client.close()
  chaos.stdin.end() // everything is reported
}

function stop(id, key) {
  const { page, timer } = typing.get(id)
  clearInterval(timer)
  type(page, key)
}

async function main() {
  let stopKey
  createInterface(chaos.stdout).on('line', (text) => {
    const line = JSON.parse(text)
    if (line.begin) {
      stopKey = line.begin.stop_key
      begin(line.begin).catch((err) => { console.error(err); chaos.kill() })
    } else if (line.stop) {
      stop(line.stop, stopKey)
    } else {
      console.log(JSON.stringify(line.verdict, undefined, 2))
    }
  })
  const code = await ended(chaos)
  await client?.close() // it would start programs in the directory of the relay
  await ended(run('proxy', 'stop'))
  await ended(run('supervisor', 'stop', '--sessions=end'))
  rmSync(dir, { recursive: true })
  process.exit(code ?? 1)
}
main()
