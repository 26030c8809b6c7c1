package vt

// eraseCells empties the columns [x0, x1) of a row in the style of erasing. If half of a wide
// character is in these columns, the other half is emptied, too.
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

// mendAround empties the halves of wide characters that would remain outside if the columns
// [x0, x1) were erased. The row must be in cell form.
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
	for i := range min(len(cells), 16) {
		cells[i] = c
	}
	repeatFirst(cells, 16)
}

// eraseUnprotected empties the cells in the columns [x0, x1) that DECSCA does not protect, in
// the style of erasing.
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
	t.blankUnprotected(r.cells[x0:max(x0, x1)], sb)
}

// eraseRow empties the cells of a row that DECSCA does not protect, in the style s.
func (t *Term) eraseRow(r *row, s styleID) {
	if !t.mayProtect(r) {
		r.erase(s)
		return
	}
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	t.blankUnprotected(r.cells, s.cell())
}

// blankUnprotected replaces the cells that are not protected.
func (t *Term) blankUnprotected(cells []cell, blank cell) {
	var last styleID // most cells have the style of the one before
	protected := false
	for x, c := range cells {
		if s := c.style(); s != last {
			last, protected = s, t.isProtected(c)
		}
		if !protected {
			cells[x] = blank
		}
	}
}

// mayProtect reports whether a cell of the row may be protected. It may report so for a row
// without such a cell.
func (t *Term) mayProtect(r *row) bool {
	if !t.protected || r.inCells {
		return t.protected
	}
	for _, u := range r.runs {
		if t.styles.at(u.style()).bg&bgProtected != 0 {
			return true
		}
	}
	return false
}

func (t *Term) isProtected(c cell) bool { return t.styles.at(c.style()).bg&bgProtected != 0 }

// eraseRows empties the rows from top to bot, which then no longer continue the rows above. If selective
// is set, the marks of the rows stay, and the cells that DECSCA protects.
func (t *Term) eraseRows(top, bot int, selective bool) {
	b := t.b
	if top > bot {
		return
	}
	if !selective {
		b.emptyRows(top, bot, t.eraseID)
		return
	}
	s := t.eraseID
	b.deferRows(top, bot, s, func(d *deferral) { t.eraseDeferred(d, s) }, func(r *row, _ bool) bool {
		if t.mayProtect(r) {
			return false
		}
		r.erase(s)
		return true
	})
}

// eraseInLine executes EL, or DECSEL if selective is set.
func (t *Term) eraseInLine(mode int, selective bool) {
	t.clampCursor(t.cols)
	if mode == 2 && selective && !t.b.uneven { // columns that are not visible stay
		t.eraseRows(t.b.y, t.b.y, true)
		return
	}
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

// eraseInDisplay executes ED, or DECSED if selective is set.
func (t *Term) eraseInDisplay(mode int, selective bool) {
	t.clampCursor(t.cols)
	b := t.b
	switch mode {
	case 0:
		t.publishErased(b.x == 0 && b.y == 0)
		t.eraseFromCursor(b.row(b.y), selective)
		t.eraseRows(b.y+1, t.rows-1, selective)
	case 1:
		r := b.row(b.y)
		t.erasePart(r, 0, b.x+1, selective)
		r.wrapped = false
		if b.x+1 >= t.cols && b.y+1 < t.rows {
			b.row(b.y + 1).wrapped = false
		}
		t.eraseRows(0, b.y-1, selective)
	case 2:
		t.publishErased(true)
		t.eraseRows(0, t.rows-1, selective)
	case 3:
		if b == &t.normal {
			t.clearHistory()
		}
	}
}

// insertCells inserts n empty cells of style s at x. The cells behind them move right, and the
// last n cells are dropped.
func (t *Term) insertCells(r *row, x, n int, s styleID) {
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	sb := s.cell()
	if x > 0 && r.cells[x-1].isWide() {
		r.cells[x-1] = sb
	}
	insertColumns(r.cells, x, n, sb)
	if r.cells[r.w-1].isWide() {
		r.cells[r.w-1] = sb
	}
}

// deleteCells deletes n cells at x. The cells behind them move left, and empty cells of style
// s follow.
func (t *Term) deleteCells(r *row, x, n int, s styleID) {
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	sb := s.cell()
	deleteColumns(r.cells, x, n, sb)
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

// insertLines executes IL: it inserts n rows at the cursor, if the cursor is in the region.
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

// publishErased publishes the event Erased if the whole normal screen is erased.
func (t *Term) publishErased(all bool) {
	if all && t.b == &t.normal {
		t.event(Event{Kind: Erased, Line: t.hist.first + t.hist.numbered()})
	}
}
