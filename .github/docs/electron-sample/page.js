// The page: an xterm.js that shows a session.

import { FitAddon } from '@xterm/addon-fit'
import { Unicode11Addon } from '@xterm/addon-unicode11'
import { UnicodeGraphemesAddon } from '@xterm/addon-unicode-graphemes'
import { Terminal } from '@xterm/xterm'
import { pasteText, receivePastes, Widths } from 'holdfast'

const SESSION = 'shell'
const { main } = window // from preload.js

const term = new Terminal({ allowProposedApi: true })
const fit = new FitAddon()
term.loadAddon(fit)
term.loadAddon(new Widths(new Unicode11Addon(), new UnicodeGraphemesAddon()))
term.open(document.body)
fit.fit()
addEventListener('resize', () => fit.fit())
receivePastes(term.element, (text) => term.paste(pasteText(text)), () => term.focus())

let shown = () => {
  shown = undefined
  const rendered = term.onRender(() => {
    rendered.dispose()
    main.send('shown')
  })
  term.refresh(0, term.rows - 1)
}
main.on('data', (bytes, isWhole) => term.write(bytes, () => isWhole && shown?.()))
term.onData((data) => main.send('write', SESSION, data))
term.onBinary((data) => main.send('write', SESSION, Uint8Array.from(data, (c) => c.charCodeAt(0))))
term.onResize(({ cols, rows }) => main.send('resize', SESSION, cols, rows))
await main.attach(SESSION, { cols: term.cols, rows: term.rows })
term.focus()
