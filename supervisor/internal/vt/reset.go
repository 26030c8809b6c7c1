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
	t.work += t.rows * t.cols / 8 // eight columns are set at once
	for _, i := range t.b.order[t.b.y:] {
		r := &t.b.rows[i]
		r.clear(0)
		r.prepare(0, id)
		if cap(r.text) < r.w {
			r.text = make([]byte, 0, r.w)
		}
		r.text, r.n = r.text[:r.w], r.w
		for n := 0; n < r.w; {
			n += copy(r.text[n:], manyE)
		}
	}
	t.setCursor(0, 0)
}

const manyE = "EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE" +
	"EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE"
