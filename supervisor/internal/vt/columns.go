package vt

import "slices"

// A columnMap describes how the columns of a row change: first cells are erased, and then they move.
type columnMap struct {
	width int // columns of the row
	// parts are the columns of the row, from left to right, or none if no cell moves.
	parts []part
	// If erases is set, cells that DECSCA does not protect become blank, in the style erased, before the cells move.
	erases bool
	erased styleID
	varied bool // a part or a mend has a blank in another style than erased
	// mends are the halves of wide characters that must be blanked before the cells move, in the order of the
	// sequences. Each cell has at most one entry for each half, because a second one would not find that half again.
	mends  []mend
	mended []uint64 // a bit for each cell and each half in mends
}

// A part is n columns: stored cells from the column from on, or blanks of a style if from is negative.
type part struct {
	n, from int32
	blank   styleID
}

// A mend makes the cell x blank, if it is the second half of a wide character and spacer is set, or the first half and
// spacer is not set.
type mend struct {
	x      int
	spacer bool
	blank  styleID
}

// shiftColumns executes SL, SR, DECIC and DECDC: it inserts or deletes n columns at x in each
// row of the region. If the cursor is outside of the region, the sequence has no effect.
func (t *Term) shiftColumns(x, n int, insert bool) {
	b, s := t.b, t.eraseID
	if b.y < b.top || b.y > b.bot {
		return
	}
	b.deferRows(b.top, b.bot, s, func(d *deferral) {
		if !d.isFilling(filling{style: s}) {
			d.shift(x%d.width, n, insert, s)
			t.work += len(d.parts)
		}
	}, func(r *row, few bool) bool {
		if few {
			t.shiftRow(r, x, n, insert)
		}
		return few
	})
}

// shiftRow inserts or deletes n columns at x in one row. If a wrap is pending, x is the first
// column, as in xterm.js.
func (t *Term) shiftRow(r *row, x, n int, insert bool) {
	if insert {
		t.insertCells(r, x%r.w, n, t.eraseID)
	} else {
		t.deleteCells(r, x%r.w, n, t.eraseID)
	}
}

func (d *deferral) copyFrom(o *deferral) {
	parts, mends, mended := append(d.parts[:0], o.parts...), append(d.mends[:0], o.mends...), append(d.mended[:0], o.mended...)
	*d = *o
	d.parts, d.mends, d.mended = parts, mends, mended
}

// eraseDeferred blanks the cells that are not protected. It has the effect that eraseUnprotected has on a whole
// row. The blanks of earlier sequences are not protected, and a cell that one of them has moved stays
// protected or not, so the cells of the row can as well be erased first.
func (t *Term) eraseDeferred(d *deferral, s styleID) {
	switch {
	case d.fills && !(d.content.letter && t.isProtected(d.content.style.cell())):
		d.content = filling{style: s}
		d.parts, d.mends, d.erases = d.parts[:0], d.mends[:0], false
		return
	case d.erases && d.erased == s && !d.varied:
		return
	}
	d.erases, d.erased, d.varied = true, s, false
	for i := range d.parts {
		d.parts[i].blank = s
	}
	for i := range d.mends {
		d.mends[i].blank = s
	}
	t.work += len(d.parts) + len(d.mends)
}

// shift inserts or deletes n columns at x in the map. It has the effect that insertCells and
// deleteCells have on a row.
func (m *columnMap) shift(x, n int, insert bool, blank styleID) {
	if len(m.parts) == 0 {
		m.parts = append(m.parts, part{n: int32(m.width)})
		m.mended = append(m.mended[:0], make([]uint64, (2*m.width+63)/64)...)
	}
	m.varied = m.varied || blank != m.erased
	n = min(n, m.width-x)
	free := part{n: int32(n), from: -1, blank: blank}
	if insert {
		m.dropLast(int32(n))
		i := m.cut(0, x)
		m.mend(i-1, false, blank)
		m.parts = slices.Insert(m.parts, i, free)
		m.mend(len(m.parts)-1, false, blank)
		m.join(i + 1)
		m.join(i)
	} else {
		i := m.cut(0, x)
		end := m.cut(i, n)
		m.parts = append(slices.Delete(m.parts, i, end), free)
		m.mend(i-1, false, blank)
		m.mend(i, true, blank)
		m.join(len(m.parts) - 1)
		m.join(i)
	}
}

// dropLast removes the last n columns.
func (m *columnMap) dropLast(n int32) {
	k := len(m.parts)
	for ; n > 0 && m.parts[k-1].n <= n; k-- {
		n -= m.parts[k-1].n
	}
	if m.parts = m.parts[:k]; n > 0 {
		m.parts[k-1].n -= n
	}
}

// cut returns the number of the part that begins x columns behind the beginning of the part i. If none does, it cuts
// the one in two that has that column.
func (m *columnMap) cut(i, x int) int {
	for n := int32(x); n > 0; i++ {
		p := &m.parts[i]
		if n < p.n {
			behind := *p
			behind.n -= n
			if p.from >= 0 {
				behind.from += n
			}
			p.n = n
			m.parts = slices.Insert(m.parts, i+1, behind)
			return i + 1
		}
		n -= p.n
	}
	return i
}

// join makes one part of the part i and the one before it, if that is possible.
func (m *columnMap) join(i int) {
	if i == 0 || i >= len(m.parts) {
		return
	}
	p, q := &m.parts[i-1], m.parts[i]
	if p.from < 0 && q.from < 0 && p.blank == q.blank || p.from >= 0 && q.from == p.from+p.n {
		p.n += q.n
		m.parts = slices.Delete(m.parts, i, i+1)
	}
}

// mend blanks a cell of the part i, if there is that part: the first one if it is the second half of a wide character
// and spacer is set, or the last one if it is the first half and spacer is not set.
func (m *columnMap) mend(i int, spacer bool, blank styleID) {
	if i < 0 || m.parts[i].from < 0 {
		return
	}
	x := int(m.parts[i].from)
	bit := 2 * x
	if !spacer {
		x += int(m.parts[i].n) - 1
		bit = 2*x + 1
	}
	if m.mended[bit/64]>>(bit%64)&1 == 0 {
		m.mended[bit/64] |= 1 << (bit % 64)
		m.mends = append(m.mends, mend{x, spacer, blank})
	}
}

// applyMap erases and moves the cells of a row.
func (t *Term) applyMap(r *row, m *columnMap) {
	if m.erases {
		t.eraseRow(r, m.erased)
	}
	if len(m.parts) == 0 {
		return
	}
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	for _, e := range m.mends {
		if c := &r.cells[e.x]; e.spacer && c.isSpacer() || !e.spacer && c.isWide() {
			*c = e.blank.cell()
		}
	}
	t.unmoved = append(t.unmoved[:0], r.cells...)
	left := r.cells
	for _, p := range m.parts {
		if p.from < 0 {
			fillCells(left[:p.n], p.blank.cell())
		} else {
			copy(left[:p.n], t.unmoved[p.from:])
		}
		left = left[p.n:]
	}
}

// isBlank reports whether the row has no content and the style s in all columns, so that
// inserting or deleting columns in that style does not change it.
func (r *row) isBlank(s styleID) bool { return r.n == 0 && r.fill == s }

// insertColumns moves the cells from x on to the right by n columns, and blanks the columns
// that become free. Cells that would leave the row are dropped.
func insertColumns(cells []cell, x, n int, blank cell) {
	n = min(n, len(cells)-x)
	copy(cells[x+n:], cells[x:])
	fillCells(cells[x:x+n], blank)
}

// deleteColumns deletes n cells at x. The cells behind them move left, and the last n cells
// are blanked.
func deleteColumns(cells []cell, x, n int, blank cell) {
	n = min(n, len(cells)-x)
	copy(cells[x:], cells[x+n:])
	fillCells(cells[len(cells)-n:], blank)
}
