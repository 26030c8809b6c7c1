// The main process: a window with a shell that continues when the app quits, crashes or is updated.

const { app, BrowserWindow, dialog, ipcMain } = require('electron')
const path = require('node:path')
const Holdfast = require('holdfast')
const { serveTerminals } = require('./terminals.js')

const SESSION = 'shell'

async function main() {
  await app.whenReady()
  // This line starts the programs, and replaces those of an older version of the app. No session ends.
  const client = await Holdfast.start({ dir: path.join(app.getPath('userData'), 'terminals'), app: app.getVersion() })
  await client.spawn({ session_id: SESSION, argv: [process.env.SHELL || '/bin/sh', '-l'], cwd: app.getPath('home'), cols: 80, rows: 24 })
    .catch((err) => { if (err.code !== 'session_exists') throw err; return client.reopen(SESSION) }) // an earlier run of the app started it
    .catch((err) => { if (err.code !== 'session_running') throw err }) // otherwise it ended while the app did not run, and has begun again
  const window = new BrowserWindow({ show: false, backgroundColor: '#000000', webPreferences: { preload: path.join(__dirname, 'preload.js') } })
  ipcMain.once('terminal:shown', () => window.show()) // so that its first frame has the whole screen
  const terminals = serveTerminals(client, ipcMain, () => window.close())
  app.on('window-all-closed', () => app.quit())
  app.on('will-quit', (event) => { // the input must arrive before the process ends
    event.preventDefault()
    terminals.close().then(() => client.close()).finally(() => app.exit())
  })
  await window.loadFile('page.html')
}

main().catch((err) => {
  dialog.showErrorBox('The terminal does not start', err.message)
  app.exit(1)
})
