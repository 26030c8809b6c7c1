package vt

import "math/bits"

// execute carries out a control of C0 or C1.
func (t *Term) execute(ch rune) {
	switch ch {
	case 0x07:
		t.event(Event{Kind: Bell})
	case 0x08:
		t.backspace()
	case 0x09:
		if t.b.x < t.cols {
			t.b.x = t.nextTab()
		}
	case 0x0a, 0x0b, 0x0c:
		t.lineFeed()
	case 0x0d:
		t.b.x = 0
	case 0x0e:
		t.shift(1)
	case 0x0f:
		t.shift(0)
	case 0x84:
		t.index()
	case 0x85:
		t.b.x = 0
		t.index()
	case 0x88:
		t.setTab()
	}
	t.join = 0
}

func (t *Term) lineFeed() {
	b := t.b
	if t.modes.NewLine {
		b.x = 0
	}
	switch {
	case b.y == b.bot:
		t.scroll(false)
	case b.y+1 < t.rows:
		b.y++
		b.row(b.y).wrapped = false
	}
	if b.x >= t.cols {
		b.x--
	}
}

// clampCursor brings the cursor into the screen, or into the scroll region with
// DECOM. maxX is the last column it may have: cols where a pending wrap may
// stay.
func (t *Term) clampCursor(maxX int) {
	b := t.b
	b.x = min(max(b.x, 0), maxX)
	if t.modes.Origin {
		b.y = min(max(b.y, b.top), b.bot)
	} else {
		b.y = min(max(b.y, 0), t.rows-1)
	}
}

func (t *Term) setCursor(x, y int) {
	if t.modes.Origin {
		y += t.b.top
	}
	t.b.x, t.b.y = x, y
	t.clampCursor(t.cols - 1)
}

// moveCursor moves by so much. As in xterm.js, with DECOM the row counts from
// the top of the region anew.
func (t *Term) moveCursor(dx, dy int) {
	t.clampCursor(t.cols - 1)
	t.setCursor(t.b.x+dx, t.b.y+dy)
}

func (t *Term) cursorUp(n int) {
	if d := t.b.y - t.b.top; d >= 0 {
		n = min(n, d)
	}
	t.moveCursor(0, -n)
}

func (t *Term) cursorDown(n int) {
	if d := t.b.bot - t.b.y; d >= 0 {
		n = min(n, d)
	}
	t.moveCursor(0, n)
}

// backspace goes one column left; with reverse wrap (mode 45) also from the
// first column to the end of the row that this one continues.
func (t *Term) backspace() {
	b := t.b
	if !t.modes.ReverseWrap {
		t.clampCursor(t.cols - 1)
		b.x = max(b.x-1, 0)
		return
	}
	t.clampCursor(t.cols)
	switch {
	case b.x > 0:
		b.x--
	case b.y > b.top && b.y <= b.bot && b.row(b.y).wrapped:
		b.row(b.y).wrapped = false
		b.y--
		b.x = t.cols - 1
		r := b.row(b.y)
		t.toCells(r)
		// A wide character that had no room left the last column empty.
		if c := r.at(b.x); !c.hasContent() && c.width() != 0 {
			b.x--
		}
	}
	t.clampCursor(t.cols - 1)
}

// index goes one row down, and scrolls at the end of the region.
func (t *Term) index() {
	t.clampCursor(t.cols - 1)
	b := t.b
	switch {
	case b.y == b.bot:
		t.scroll(false)
	case b.y+1 < t.rows:
		b.y++
	}
	t.clampCursor(t.cols - 1)
}

func (t *Term) reverseIndex() {
	t.clampCursor(t.cols - 1)
	b := t.b
	if b.y == b.top {
		b.insertRows(b.y, b.bot, 1, t.eraseID, t.cols)
		return
	}
	b.y--
	t.clampCursor(t.cols - 1)
}

// scroll moves the region up by one row. What leaves the top of the normal
// screen goes to the history, also if the region ends above the last row.
func (t *Term) scroll(wrapped bool) {
	b := t.b
	first := b.order[b.top]
	r := &b.rows[first]
	if b.top == 0 && b == &t.normal {
		t.push(r)
	}
	copy(b.order[b.top:b.bot], b.order[b.top+1:b.bot+1])
	b.order[b.bot] = first
	r.clear(t.eraseID)
	r.w, r.wrapped = t.cols, wrapped
}

// deleteRows takes n rows out at y; those below, down to bot, move up.
func (b *buffer) deleteRows(y, bot, n int, fill styleID, cols int) {
	n = min(n, bot-y+1)
	part := b.order[y : bot+1]
	rotate(part, n)
	for _, i := range part[len(part)-n:] {
		b.rows[i].clear(fill)
		b.rows[i].w = cols
	}
}

// insertRows puts n empty rows in at y; those below, down to bot, move down.
func (b *buffer) insertRows(y, bot, n int, fill styleID, cols int) {
	n = min(n, bot-y+1)
	part := b.order[y : bot+1]
	rotate(part, len(part)-n)
	for _, i := range part[:n] {
		b.rows[i].clear(fill)
		b.rows[i].w = cols
	}
}

// rotate moves the first n elements behind the others.
func rotate(s []uint16, n int) {
	switch n {
	case 1:
		first := s[0]
		copy(s, s[1:])
		s[len(s)-1] = first
		return
	case len(s) - 1:
		last := s[len(s)-1]
		copy(s[1:], s)
		s[0] = last
		return
	}
	reverse(s[:n])
	reverse(s[n:])
	reverse(s)
}

func reverse(s []uint16) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
}

// Tab stops are bits, by column; they are kept when the terminal gets narrower.

func (b *buffer) hasTab(x int) bool {
	return x>>6 < len(b.tabs) && b.tabs[x>>6]>>(x&63)&1 != 0
}

func (b *buffer) addTab(x int) {
	for x>>6 >= len(b.tabs) {
		b.tabs = append(b.tabs, 0)
	}
	b.tabs[x>>6] |= 1 << (x & 63)
}

// setTabs sets a tab stop in every eighth column from from on.
func (b *buffer) setTabs(from, cols int) {
	for ; from < cols; from += 8 {
		b.addTab(from)
	}
}

// widenTabs sets the tab stops of a screen that has got another width, from the
// last one before its end on.
func (b *buffer) widenTabs(cols int) {
	from := cols
	if !b.hasTab(from) {
		for from--; from > 0 && !b.hasTab(from); from-- {
		}
	}
	b.setTabs(max(from, 0), cols)
}

func (t *Term) setTab() { t.b.addTab(t.b.x) }

func (t *Term) nextTab() int {
	b := t.b
	x := b.x + 1
	for ; x>>6 < len(b.tabs); x = x&^63 + 64 {
		if later := b.tabs[x>>6] >> (x & 63); later != 0 {
			return min(x+bits.TrailingZeros64(later), t.cols-1)
		}
	}
	return t.cols - 1
}

func (t *Term) previousTab() int {
	b := t.b
	for x := min(b.x, len(b.tabs)*64) - 1; x > 0; x = x&^63 - 1 {
		if before := b.tabs[x>>6] << (63 - x&63); before != 0 {
			return x - bits.LeadingZeros64(before)
		}
	}
	return 0
}

func (t *Term) clearTab(mode int) {
	b := t.b
	switch mode {
	case 0:
		if b.hasTab(b.x) {
			b.tabs[b.x>>6] &^= 1 << (b.x & 63)
		}
	case 3:
		b.tabs = b.tabs[:0]
	}
}

// Character sets.

func (t *Term) shift(g int) {
	t.gl = g
	t.cs = t.gsets[g]
}

func (t *Term) designate(g int, cs *charset) {
	t.gsets[g] = cs
	if t.gl == g {
		t.cs = cs
	}
}

func (t *Term) resetCharsets() {
	t.gsets, t.gl, t.cs = [4]*charset{}, 0, nil
}

// Saving the cursor.

func (t *Term) saveCursor() {
	b := t.b
	b.saved = saved{
		x: b.x, y: t.base() + b.y, cs: t.cs,
		pen: style{fg: t.pen.fg, bg: t.pen.bg},
	}
}

// base is the number of lines above the screen that is shown.
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
	t.penID = t.styles.id(t.pen)
	if t.pen.bg&colorMask != t.styles.all[t.eraseID].bg {
		t.eraseID = t.styles.id(t.pen.erased())
	}
}

// Resetting.

// softReset is DECSTR.
func (t *Term) softReset() {
	t.modes.CursorHidden = false
	t.b.top, t.b.bot = 0, t.rows-1
	t.pen = style{}
	t.penChanged()
	t.resetModes()
	t.resetCharsets()
	t.b.saved = saved{y: t.base()}
}

// hardReset is RIS. As in xterm.js, titles, LNM, and whether the cursor is
// shown and blinks stay as they are.
func (t *Term) hardReset() {
	t.pen, t.penID, t.eraseID = style{}, 0, 0
	t.protected = false
	t.resetBuffers()
	t.tidy()
	t.resetCharsets()
	t.resetModes()
	t.modes.Mouse, t.modes.MouseEncoding = defaultModes.Mouse, defaultModes.MouseEncoding
	t.modes.Graphemes, t.modes.ColorScheme, t.modes.Win32Input = t.config.Graphemes, false, false
	t.keyboard = Keyboard{}
	t.colors = nil
}

// align is DECALN: the screen full of E.
func (t *Term) align() {
	s := style{fg: t.pen.fg, bg: t.pen.bg}
	// The style underline is not taken along, the flag that says so is.
	id := t.styles.id(s)
	t.setCursor(0, 0)
	base := t.b.y
	for y := base; y < t.rows; y++ {
		r := t.b.row(y)
		r.clear(0)
		r.prepare(0, id)
		for r.n = 0; r.n < r.w; r.n = len(r.text) {
			r.text = append(r.text, rowOfE[:min(len(rowOfE), r.w-r.n)]...)
		}
	}
	t.setCursor(0, 0)
}

const rowOfE = "EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE"
