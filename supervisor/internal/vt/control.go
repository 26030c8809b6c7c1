package vt

// execute executes a C0 or C1 control.
func (t *Term) execute(ch rune) {
	switch ch {
	case 0x07:
		t.event(Event{Kind: Bell})
	case 0x08:
		t.backspace()
	case 0x09:
		if t.b.x < t.cols {
			t.b.x = t.nextTab(1)
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
		b.rows[b.order[b.y]].wrapped = false // the row does not have to be settled for that
	}
	if b.x >= t.cols {
		b.x--
	}
}

// clampCursor moves the cursor into the screen, or into the scroll region if DECOM is set.
// maxX is the largest column that the cursor may have. It should be cols if a pending wrap may
// remain, and otherwise cols-1.
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

// moveCursor moves the cursor by dx columns and dy rows. If DECOM is set, the row counts from
// the top of the region once more, as in xterm.js.
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

// backspace moves the cursor one column to the left. If reverse wrap (mode 45) is set, it also
// moves the cursor from the first column to the end of the row above, if this row continues
// that one.
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
		// The last column is empty if a wide character did not fit into it.
		if c := r.at(b.x); !c.hasContent() && c.width() != 0 {
			b.x--
		}
	}
	t.clampCursor(t.cols - 1)
}

// index moves the cursor one row down. In the last row of the region it scrolls instead.
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
		t.insertRows(b.y, 1, t.eraseID)
		return
	}
	b.y--
	t.clampCursor(t.cols - 1)
}

// scroll moves the region up by one row. If the region begins in the first row of the normal
// screen, that row is copied to the history, even if the region ends above the last row.
func (t *Term) scroll(wrapped bool) {
	b := t.b
	if b.top == 0 && b == &t.normal {
		t.push()
	}
	r, first := b.drop(b.top), b.order[b.top]
	copy(b.order[b.top:b.bot], b.order[b.top+1:b.bot+1])
	b.order[b.bot] = first
	if b.lateRows > 0 {
		copy(b.late[b.top:b.bot], b.late[b.top+1:b.bot+1])
		b.late[b.bot] = 0
	}
	r.clear(t.eraseID)
	r.w, r.wrapped = t.cols, wrapped
}

// deleteRows deletes n rows at y. The rows below, down to the end of the region, move up. The
// rows that become free get the style fill.
func (t *Term) deleteRows(y, n int, fill styleID) {
	bot := t.b.bot
	n = min(n, bot+1-y)
	t.rotateRows(y, n)
	t.clearRows(bot+1-n, bot, fill)
}

// insertRows inserts n empty rows in the style fill at y. The rows below, down to the end of
// the region, move down, and the last ones are dropped.
func (t *Term) insertRows(y, n int, fill styleID) {
	all := t.b.bot + 1 - y
	n = min(n, all)
	t.rotateRows(y, all-n)
	t.clearRows(y, y+n-1, fill)
}

// rotateRows moves n rows at y behind the other ones down to the end of the region.
func (t *Term) rotateRows(y, n int) {
	b := t.b
	if part := b.order[y : b.bot+1]; n > 0 && n < len(part) {
		rotate(part, n)
		if b.lateRows > 0 {
			rotate(b.late[y:b.bot+1], n)
		}
		t.work += len(part) / 8
	}
}

// clearRows empties the rows from top to bot of the current screen. They have no more columns than are visible.
func (t *Term) clearRows(top, bot int, fill styleID) {
	b := t.b
	b.emptyRows(top, bot, fill)
	if b.uneven {
		for _, i := range b.order[top : bot+1] {
			b.rows[i].w = t.cols
		}
		t.work += rowWork * (bot + 1 - top)
	}
}

// rotate moves the first n elements of s behind the others.
func rotate[T any](s []T, n int) {
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
	var room [256]T // copies are faster than a loop
	if back := len(s) - n; back < n {
		for back > 0 {
			k := min(back, len(room))
			copy(room[:k], s[len(s)-k:])
			copy(s[k:], s)
			copy(s, room[:k])
			back -= k
		}
		return
	}
	for n > 0 {
		k := min(n, len(room))
		copy(room[:k], s)
		copy(s, s[k:])
		copy(s[len(s)-k:], room[:k])
		n -= k
	}
}
