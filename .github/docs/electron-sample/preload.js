// The page reaches the terminals of the main process, and nothing else.

const { contextBridge, ipcRenderer } = require('electron')

contextBridge.exposeInMainWorld('main', {
  attach: (id, spec) => ipcRenderer.invoke('terminal:attach', id, spec),
  send: (kind, ...args) => ipcRenderer.send(`terminal:${kind}`, ...args),
  on: (kind, use) => ipcRenderer.on(`terminal:${kind}`, (event, ...args) => use(...args)),
})
