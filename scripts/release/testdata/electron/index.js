// A stand-in for the part of Electron that the sample app uses in its main process. The parent process has the pages of
// the windows, in Chromium (see ../sample.mjs), and passes messages on in both directions.

const { EventEmitter } = require('node:events')
const path = require('node:path')

const directory = process.cwd() // of the app
const windows = new Map()

// tell sends a message to the parent process.
const tell = (message) => process.send(message)

// emit emits an event that a listener may prevent, and reports whether none did.
function emit(emitter, name) {
  let isPrevented = false
  emitter.emit(name, { preventDefault: () => { isPrevented = true } })
  return !isPrevented
}

class WebContents extends EventEmitter {
  constructor(id) {
    super()
    this.id = id
  }

  isDestroyed() {
    return !windows.has(this.id)
  }

  send(channel, ...args) {
    tell({ type: 'send', window: this.id, channel, args })
  }
}

class BrowserWindow {
  constructor({ show, webPreferences }) {
    this.webContents = new WebContents(windows.size + 1)
    this.preload = webPreferences.preload
    windows.set(this.webContents.id, this)
    if (show !== false) this.show()
  }

  async loadFile(file) {
    tell({ type: 'load', window: this.webContents.id, file: path.join(directory, file), preload: this.preload })
  }

  show() {
    tell({ type: 'show', window: this.webContents.id })
  }

  close() {
    this.remove()
    if (windows.size === 0) app.emit('window-all-closed')
  }

  remove() {
    windows.delete(this.webContents.id)
    tell({ type: 'close', window: this.webContents.id })
    this.webContents.emit('destroyed')
  }
}

const app = Object.assign(new EventEmitter(), {
  whenReady: async () => {},
  getVersion: () => require(path.join(directory, 'package.json')).version,
  getPath: (name) => ({ userData: process.env.SAMPLE_DATA, home: process.env.HOME })[name],
  quit() {
    if (!emit(app, 'before-quit')) return
    for (const window of windows.values()) window.remove()
    if (emit(app, 'will-quit')) app.exit()
  },
  exit: (code) => process.exit(code),
})

const handlers = new Map()
const ipcMain = Object.assign(new EventEmitter(), { handle: (channel, fn) => handlers.set(channel, fn) })

process.on('message', async ({ type, window, channel, args, call }) => {
  const sender = windows.get(window)?.webContents
  if (type === 'quit') return app.quit()
  if (type === 'send') return ipcMain.emit(channel, { sender }, ...args)
  tell({ type: 'answer', window, call, ...await handlers.get(channel)({ sender }, ...args).then((value) => ({ value }), (err) => ({ error: err.message })) })
})

process.on('disconnect', () => process.exit(1)) // the test has failed

const dialog = { showErrorBox: (title, text) => console.error(`${title}: ${text}`) }

module.exports = { app, BrowserWindow, dialog, ipcMain }
