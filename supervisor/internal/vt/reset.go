package vt

// softReset executes DECSTR.
func (t *Term) softReset() {
	t.modes.CursorHidden = false
	t.b.top, t.b.bot = 0, t.rows-1
	t.pen = style{}
	t.penChanged()
	t.resetModes()
	t.resetCharsets()
	t.b.saved = saved{y: t.base()}
	t.dropPictures()
}

// hardReset executes RIS. As in xterm.js, it does not change the titles, LNM, and whether the
// cursor is visible and blinks.
func (t *Term) hardReset() {
	t.pen, t.penID, t.eraseID = style{}, 0, 0
	t.protected = false
	t.resetBuffers()
	t.publishErased(true)
	t.tidy()
	t.resetCharsets()
	t.resetModes()
	t.modes.Mouse, t.modes.MouseEncoding = defaultModes.Mouse, defaultModes.MouseEncoding
	t.modes.Graphemes, t.modes.ColorScheme, t.modes.Win32Input = t.config.Graphemes, false, false
	t.modes.SizeReports, t.modes.AlternateScroll = false, Unknown
	t.keyboard = Keyboard{}
	t.colors = nil
	t.dropPictures()
	t.event(Event{Kind: FullReset})
}

// align executes DECALN: it fills the screen with E.
func (t *Term) align() {
	s := style{fg: t.pen.fg, bg: t.pen.bg}
	// As in xterm.js, the cells get the flag of an underline, but not its kind.
	id := t.styles.id(s)
	t.setCursor(0, 0)
	t.b.fillRows(t.b.y, t.rows-1, filling{id, true})
	t.setCursor(0, 0)
}
