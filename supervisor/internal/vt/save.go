package vt

func (t *Term) saveCursor() {
	b := t.b
	b.saved = saved{
		x: b.x, y: t.base() + b.y, cs: t.cs,
		pen: style{fg: t.pen.fg, bg: t.pen.bg},
	}
}

// base returns the number of lines above the current screen.
func (t *Term) base() int {
	if t.b == &t.alt {
		return 0
	}
	return t.hist.lines
}

func (t *Term) restoreCursor() {
	b := t.b
	b.x, b.y = b.saved.x, max(b.saved.y-t.base(), 0)
	t.pen.fg, t.pen.bg = b.saved.pen.fg, b.saved.pen.bg
	t.penChanged()
	t.cs = b.saved.cs
	t.clampCursor(t.cols - 1)
}

func (t *Term) penChanged() {
	if t.pen == (style{}) {
		t.penID, t.eraseID = 0, 0
		return
	}
	t.penID = t.styles.id(t.pen)
	if t.pen.bg&colorMask != t.styles.at(t.eraseID).bg {
		t.eraseID = t.styles.id(t.pen.erased())
	}
}
