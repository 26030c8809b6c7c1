// Connects the terminals of pages with sessions, in the main process.

const { setTimeout } = require('node:timers/promises')

const FLUSH_MS = 5000

// serveTerminals lets pages attach to sessions, and calls onExit(id, exitCode) after the last output of a session. The
// method close returns when all input of the pages has arrived.
exports.serveTerminals = (client, ipcMain, onExit) => {
  const views = new Map() // the promised attachment of each page and session; input waits for it

  async function leave(key, view) {
    const a = await view
    await Promise.race([a.flush(), setTimeout(FLUSH_MS, undefined, { ref: false })]).catch(() => {}) // the session may have ended
    await a.detach()
    if (views.get(key) === view) views.delete(key)
  }

  ipcMain.handle('terminal:attach', async ({ sender: page }, id, spec) => {
    const key = `${page.id} ${id}`, before = views.get(key)
    const send = (kind, ...args) => page.isDestroyed() || page.send(`terminal:${kind}`, ...args)
    const view = client.attach(id, { answers: true, ...spec })
    views.set(key, view)
    const a = await view
    a.on('resync', ({ snapshotBytes }) => send('data', '\x1bc', snapshotBytes === 0)) // a snapshot follows, which needs an empty terminal
    a.on('snapshot', (bytes, offset, left) => send('data', bytes, left === 0))
    a.on('output', (bytes) => send('data', bytes, true))
    a.exited.then(async ({ exit_code }) => {
      await client.forget(id).catch(() => {}) // another page may have done it
      onExit(id, exit_code)
    }, () => {}) // the page was closed first
    page.once('destroyed', () => leave(key, view).catch(console.error))
    if (before) await leave(key, before).catch(() => {}) // the page was reloaded
  })

  const on = (kind, use) => ipcMain.on(`terminal:${kind}`, ({ sender }, id, ...args) => views.get(`${sender.id} ${id}`)?.then((a) => use(a, ...args), () => {}))
  on('write', (a, data) => a.write(data))
  on('resize', (a, cols, rows) => a.resize(cols, rows))

  return { close: () => Promise.allSettled([...views].map(([key, view]) => leave(key, view))) }
}
