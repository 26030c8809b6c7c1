package vt

// eraseCells empties the columns [x0, x1) of a row, with the look of erasing,
// and the other halves of wide characters that reach into them.
func (t *Term) eraseCells(r *row, x0, x1 int) {
	x1 = min(x1, r.w)
	if !r.inCells {
		if r.cutsText(x0) && (x1 == r.w || x1 >= r.n && r.fill == t.eraseID) {
			r.cutText(x0, t.eraseID)
			return
		}
		t.toCells(r)
	}
	t.mendAround(r, x0, x1)
	if x1 == r.w || x1 >= r.n && r.fill == t.eraseID {
		r.cut(x0, t.eraseID)
		return
	}
	if x0 < x1 {
		r.reach(x1)
		fillCells(r.cells[x0:x1], t.eraseID.cell())
	}
}

// mendAround empties the halves of wide characters that the columns [x0, x1)
// would leave behind, in cell form.
func (t *Term) mendAround(r *row, x0, x1 int) {
	sb := t.eraseID.cell()
	if x0 > 0 && x0 <= r.n && r.at(x0-1).isWide() {
		r.set(x0-1, sb)
	}
	if x1 > 0 && x1 < r.w && r.at(x1-1).isWide() {
		r.set(x1, sb)
	}
}

func fillCells(cells []cell, c cell) {
	for i := range cells {
		cells[i] = c
	}
}

// eraseUnprotected is eraseCells but for cells that DECSCA protects.
func (t *Term) eraseUnprotected(r *row, x0, x1 int) {
	if !t.mayProtect(r) {
		t.eraseCells(r, x0, x1)
		return
	}
	t.toCells(r)
	t.work += r.w
	x1 = min(x1, r.w)
	r.reach(r.w)
	sb := t.eraseID.cell()
	if x0 > 0 && r.cells[x0-1].isWide() && !t.isProtected(r.cells[x0-1]) {
		r.cells[x0-1] = sb
	}
	if x1 > 0 && x1 < r.w && r.cells[x1-1].isWide() && !t.isProtected(r.cells[x1]) {
		r.cells[x1] = sb
	}
	for x := x0; x < x1; x++ {
		if !t.isProtected(r.cells[x]) {
			r.cells[x] = sb
		}
	}
}

// mayProtect reports whether some cell of the row may be protected.
func (t *Term) mayProtect(r *row) bool {
	if !t.protected || r.inCells {
		return t.protected
	}
	for _, u := range r.runs {
		if t.styles.all[u.style()].bg&bgProtected != 0 {
			return true
		}
	}
	return false
}

func (t *Term) isProtected(c cell) bool { return t.styles.all[c.style()].bg&bgProtected != 0 }

// clearRow empties a whole row, which no longer continues the one above.
func (t *Term) clearRow(r *row, selective bool) {
	t.work += rowWork
	if !selective || !t.mayProtect(r) {
		r.clear(t.eraseID)
		return
	}
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	for x, c := range r.cells {
		if !t.isProtected(c) {
			r.cells[x] = t.eraseID.cell()
		}
	}
	r.wrapped = false
}

// eraseInLine is EL, and DECSEL if selective.
func (t *Term) eraseInLine(mode int, selective bool) {
	t.clampCursor(t.cols)
	r := t.b.row(t.b.y)
	switch mode {
	case 0:
		t.eraseFromCursor(r, selective)
	case 1:
		t.erasePart(r, 0, t.b.x+1, selective)
	case 2:
		t.erasePart(r, 0, t.cols, selective)
		r.wrapped = false
	}
}

func (t *Term) erasePart(r *row, x0, x1 int, selective bool) {
	if selective {
		t.eraseUnprotected(r, x0, x1)
	} else {
		t.eraseCells(r, x0, x1)
	}
}

func (t *Term) eraseFromCursor(r *row, selective bool) {
	t.erasePart(r, t.b.x, t.cols, selective)
	if t.b.x == 0 {
		r.wrapped = false
	}
}

// eraseInDisplay is ED, and DECSED if selective.
func (t *Term) eraseInDisplay(mode int, selective bool) {
	t.clampCursor(t.cols)
	b := t.b
	switch mode {
	case 0:
		t.erased(b.x == 0 && b.y == 0)
		t.eraseFromCursor(b.row(b.y), selective)
		for y := b.y + 1; y < t.rows; y++ {
			t.clearRow(b.row(y), selective)
		}
	case 1:
		r := b.row(b.y)
		t.erasePart(r, 0, b.x+1, selective)
		r.wrapped = false
		if b.x+1 >= t.cols && b.y+1 < t.rows {
			b.row(b.y + 1).wrapped = false
		}
		for y := range b.y {
			t.clearRow(b.row(y), selective)
		}
	case 2:
		t.erased(true)
		for _, i := range b.order {
			t.clearRow(&b.rows[i], selective)
		}
	case 3:
		if b == &t.normal {
			t.clearHistory()
		}
	}
}

// insertCells moves the columns from x on right by n, and empties those it
// leaves, with the look s.
func (t *Term) insertCells(r *row, x, n int, s styleID) {
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	sb := s.cell()
	if x > 0 && r.cells[x-1].isWide() {
		r.cells[x-1] = sb
	}
	if n < r.w-x {
		copy(r.cells[x+n:], r.cells[x:])
		fillCells(r.cells[x:x+n], sb)
	} else {
		fillCells(r.cells[x:], sb)
	}
	if r.cells[r.w-1].isWide() {
		r.cells[r.w-1] = sb
	}
}

// deleteCells takes n columns out at x; those behind them move left.
func (t *Term) deleteCells(r *row, x, n int, s styleID) {
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	sb := s.cell()
	if n < r.w-x {
		copy(r.cells[x:], r.cells[x+n:])
		fillCells(r.cells[r.w-n:], sb)
	} else {
		fillCells(r.cells[x:], sb)
	}
	if x > 0 && r.cells[x-1].isWide() {
		r.cells[x-1] = sb
	}
	if r.cells[x].isSpacer() {
		r.cells[x] = sb
	}
}

func (t *Term) insertChars(n int) {
	t.clampCursor(t.cols - 1)
	t.insertCells(t.b.row(t.b.y), t.b.x, n, t.eraseID)
}

func (t *Term) deleteChars(n int) {
	t.clampCursor(t.cols - 1)
	t.deleteCells(t.b.row(t.b.y), t.b.x, n, t.eraseID)
}

func (t *Term) eraseChars(n int) {
	t.clampCursor(t.cols - 1)
	t.eraseCells(t.b.row(t.b.y), t.b.x, min(t.b.x+n, maxSize))
}

// shiftColumns is SL, SR, DECIC and DECDC: it inserts or deletes n columns at x
// in each row of the region, if the cursor is in it.
func (t *Term) shiftColumns(x, n int, insert bool) {
	b := t.b
	if b.y < b.top || b.y > b.bot {
		return
	}
	for y := b.top; y <= b.bot; y++ {
		r := b.row(y)
		at := x % r.w // a pending wrap counts as the first column, as in xterm.js
		if insert {
			t.insertCells(r, at, n, t.eraseID)
		} else {
			t.deleteCells(r, at, n, t.eraseID)
		}
		r.wrapped = false
	}
}

// insertLines and deleteLines are IL and DL.
func (t *Term) insertLines(n int) {
	t.clampCursor(t.cols - 1)
	if b := t.b; b.y >= b.top && b.y <= b.bot {
		t.insertRows(b.y, n, t.eraseID)
		b.x = 0
	}
}

func (t *Term) deleteLines(n int) {
	t.clampCursor(t.cols - 1)
	if b := t.b; b.y >= b.top && b.y <= b.bot {
		t.deleteRows(b.y, n, t.eraseID)
		b.x = 0
	}
}

// erased tells that the whole screen is erased, if it is.
func (t *Term) erased(all bool) {
	if all && t.b == &t.normal {
		t.event(Event{Kind: Erased, Line: t.hist.first + t.hist.numbered()})
	}
}
