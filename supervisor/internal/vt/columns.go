package vt

import "slices"

// DECIC, DECDC, SL and SR move the columns of every row between the margins, and DECSED erases the
// cells of many rows that are not protected. Such a sequence has a few bytes, but it would touch
// every cell. Therefore the cells stay in place, and a row
// refers to a columnMap, which tells from which cell each column of the row comes. One map
// serves all rows to which the same sequences have been applied. The cells of a row are moved
// when the row is read or written next (settle), once for any number of sequences.
//
// Rows have different maps if one of them was written between two sequences, or if the margins
// have changed. A screen has at most maxMaps maps. If one more is necessary, the rows of the
// map that the fewest rows refer to are settled first.

// A columnMap describes how the columns of a row are built from the cells that the row stores.
type columnMap struct {
	t *Term
	// from has an entry for each column of the row: either the blank cell in this column, or
	// fromColumn with the number of the stored cell in the lowest bits.
	from []cell
	// No column before first has moved.
	first int
	// If erases is set, cells that DECSCA does not protect become the blank cell erased before the cells move.
	erases bool
	erased cell
	// mends lists the halves of wide characters that must be blanked before the cells move, in
	// the order of the sequences. An entry holds the column of the cell, mendWide or mendSpacer
	// for the half that the cell must be, and the style of the blank. Each column has at most
	// one entry of each kind, because a second one would not find that half again.
	mends []cell

	// The fields below are about the sequence that is being executed.
	in, out int        // number of rows that the sequence changes, and of the other ones, that refer to this map
	split   *columnMap // replaces this map in the rows that the sequence changes, if out > 0
}

// These bits of columnMap.from and columnMap.mends are never set in a blank cell.
const (
	columnMask cell = maxSize - 1
	fromColumn cell = 1 << 56
	mendWide   cell = 1 << 57
	mendSpacer cell = 1 << 58
	blankMask  cell = (1<<32 - 1) << styleShift
)

// maxMaps returns the largest number of maps of a screen. It bounds the time of a sequence,
// and the memory of the maps: less than half of the memory that the cells of the screen may
// take.
func (b *buffer) maxMaps() int { return min(2+len(b.rows)/8, 32) }

// shiftColumns executes SL, SR, DECIC and DECDC: it inserts or deletes n columns at x in each
// row of the region. If the cursor is outside of the region, the sequence has no effect.
func (t *Term) shiftColumns(x, n int, insert bool) {
	b := t.b
	if b.y < b.top || b.y > b.bot {
		return
	}
	blank := t.eraseID.cell()
	t.mapRows(b.top, b.bot, func(m *columnMap) { m.shift(x%len(m.from), n, insert, blank) },
		func(r *row) { t.shiftRow(r, x, n, insert) })
}

// mapRows calls change for maps that only the rows from top to bot have. All of these rows have one then,
// except for those that are blank, which a sequence does not change, and those for which it calls now,
// because there are too many maps. No row continues the row above any more.
func (t *Term) mapRows(top, bot int, change func(*columnMap), now func(*row)) {
	b := t.b
	t.work += rowWork * len(b.order)
	if m, ok := b.onlyMap(top, bot, t.eraseID); ok {
		if m != nil {
			change(m)
			t.work += len(m.from)
		}
		return
	}
	blank := b.filling == filling{style: t.eraseID}
	b.makeRoom(b.countRows(top, bot, t.eraseID))
	var made *columnMap // serves the rows that have no map yet
	for y := top; y <= bot; y++ {
		if blank && b.order[y] >= unfilled {
			continue
		}
		r := b.rowAsIs(y)
		r.wrapped = false
		switch m := r.moved; {
		case m == nil && r.isBlank(t.eraseID):
		case m == nil:
			if made == nil || len(made.from) != r.w {
				made = t.newMap(r.w)
			}
			if r.moved = made; made == nil { // newMap has failed, because rows of too many lengths have maps
				now(r)
			}
		case m.out > 0:
			if m.split == nil {
				m.split = t.newCopy(m)
			}
			if m.split != nil {
				r.moved = m.split
				continue
			}
			r.settle() // newMap has failed, as above
			m.in--
			now(r)
		}
	}
	for _, m := range b.maps {
		if m.in > 0 && m.split == nil {
			change(m)
			t.work += len(m.from)
		}
	}
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

// onlyMap reports whether all rows from top to bot are blank or refer to one map, and no other row refers to it. It
// returns that map, or nil if all are blank. A row with a map continues no row, and the blank ones do not either then.
func (b *buffer) onlyMap(top, bot int, erase styleID) (m *columnMap, ok bool) {
	for _, i := range b.order[top : bot+1] {
		if i >= unfilled {
			if b.filling != (filling{style: erase}) {
				return nil, false
			}
			continue
		}
		switch r := &b.rows[i]; {
		case r.moved == nil && r.isBlank(erase):
			r.wrapped = false
		case r.moved == nil || m != nil && r.moved != m:
			return nil, false
		default:
			m = r.moved
		}
	}
	return m, !b.refers(b.order[:top], m) && !b.refers(b.order[bot+1:], m)
}

// refers reports whether one of the rows refers to the map m.
func (b *buffer) refers(rows []uint16, m *columnMap) bool {
	return m != nil && slices.ContainsFunc(rows, func(i uint16) bool { return i < unfilled && b.rows[i].moved == m })
}

// countRows counts the rows that refer to each map. It returns the number of rows from top to bot
// that need a map and have none.
func (b *buffer) countRows(top, bot int, erase styleID) (without int) {
	for _, m := range b.maps {
		m.in, m.out, m.split = 0, 0, nil
	}
	blank := b.filling == filling{style: erase}
	for y, i := range b.order {
		in := y >= top && y <= bot
		if i >= unfilled {
			if in && !blank {
				without++
			}
			continue
		}
		r := &b.rows[i]
		switch m := r.moved; {
		case m != nil && in:
			m.in++
		case m != nil:
			m.out++
		case in && !r.isBlank(erase):
			without++
		}
	}
	return without
}

// makeRoom settles rows until the maps that a sequence needs have room: one for the rows
// without a map, and one for each map with rows on both sides of a margin. If there are too
// many maps, makeRoom reduces them to half of the limit, so that not every sequence has to
// settle rows for one map. The maps with the fewest rows are settled first.
func (b *buffer) makeRoom(without int) {
	for limit := b.maxMaps(); ; {
		var smallest *columnMap
		need, used := min(without, 1), 0
		for _, m := range b.maps {
			if m.in+m.out == 0 {
				continue
			}
			used++
			if m.in > 0 && m.out > 0 {
				need++
			}
			if smallest == nil || m.in+m.out < smallest.in+smallest.out {
				smallest = m
			}
		}
		if used+need <= limit {
			return
		}
		limit = b.maxMaps() / 2
		b.settle(smallest)
		without += smallest.in
		smallest.in, smallest.out = 0, 0
	}
}

// newMap returns a map that leaves all columns in place, and counts one row for it. It returns
// nil if the screen has maxMaps maps already.
func (t *Term) newMap(columns int) *columnMap {
	b := t.b
	var m *columnMap
	for _, free := range b.maps {
		if free.in+free.out == 0 {
			m = free
			break
		}
	}
	if m == nil {
		if len(b.maps) >= b.maxMaps() {
			return nil
		}
		m = &columnMap{t: t}
		b.maps = append(b.maps, m)
	}
	if cap(m.from) < columns {
		m.from = make([]cell, columns)
	}
	m.from, m.first, m.mends, m.erases = m.from[:columns], columns, m.mends[:0], false
	for x := range m.from {
		m.from[x] = fromColumn | cell(x)
	}
	m.in = 1
	return m
}

// newCopy returns a copy of a map, and counts one row for it. It returns nil if newMap does.
func (t *Term) newCopy(of *columnMap) *columnMap {
	m := t.newMap(len(of.from))
	if m == nil {
		return nil
	}
	copy(m.from, of.from)
	m.first, m.mends = of.first, append(m.mends, of.mends...)
	m.erases, m.erased = of.erases, of.erased
	return m
}

// erase blanks the cells that are not protected. It has the effect that eraseUnprotected has on a whole
// row. The blanks of earlier sequences are not protected, and a cell that one of them has moved stays
// protected or not, so the cells of the row can as well be erased first.
func (m *columnMap) erase(blank cell) {
	m.erases, m.erased = true, blank
	for x, e := range m.from {
		if e&fromColumn == 0 {
			m.from[x] = blank
		}
	}
	for i, e := range m.mends {
		m.mends[i] = e&^blankMask | blank
	}
}

// shift inserts or deletes n columns at x in the map. It has the effect that insertCells and
// deleteCells have on a row.
func (m *columnMap) shift(x, n int, insert bool, blank cell) {
	m.first = min(m.first, x)
	if insert {
		m.mend(x-1, mendWide, blank)
		insertColumns(m.from, x, n, blank)
		m.mend(len(m.from)-1, mendWide, blank)
	} else {
		deleteColumns(m.from, x, n, blank)
		m.mend(x-1, mendWide, blank)
		m.mend(x, mendSpacer, blank)
	}
}

// mend blanks the cell in column x if that cell is the given half of a wide character.
func (m *columnMap) mend(x int, half, blank cell) {
	if x < 0 {
		return
	}
	e := m.from[x]
	if e&fromColumn == 0 || e&half != 0 {
		return
	}
	m.from[x] |= half
	m.mends = append(m.mends, e&columnMask|half|blank)
}

// settle moves the cells of a row to the columns that its map tells. The row must have a map. It
// is not inlined, because buffer.row would then be too long to be inlined itself.
//
//go:noinline
func (r *row) settle() { r.moved.t.settle(r) }

// settle moves the cells of a row of this terminal. The row's map may belong to another
// terminal, of which this one is a copy.
func (t *Term) settle(r *row) {
	m := r.moved
	r.moved = nil
	t.toCells(r)
	t.work += r.w
	r.reach(r.w)
	if m.erases {
		for x, c := range r.cells {
			if !t.isProtected(c) {
				r.cells[x] = m.erased
			}
		}
	}
	for _, e := range m.mends {
		c := &r.cells[e&columnMask]
		if e&mendWide != 0 && c.isWide() || e&mendSpacer != 0 && c.isSpacer() {
			*c = e & blankMask
		}
	}
	t.unmoved = append(t.unmoved[:0], r.cells...)
	from := m.from[m.first:]
	cells, unmoved := r.cells[m.first:][:len(from)], t.unmoved
	for i, e := range from {
		if e&fromColumn != 0 {
			e = unmoved[e&columnMask]
		}
		cells[i] = e
	}
}

// settle moves the cells of the rows that refer to m. If m is nil, it settles all rows that
// have a map.
func (b *buffer) settle(m *columnMap) {
	for _, i := range b.order {
		if i >= unfilled {
			continue
		}
		if r := &b.rows[i]; r.moved != nil && (m == nil || r.moved == m) {
			r.settle()
		}
	}
}

// settleAll fills the marked rows, moves the cells of all rows, and releases the maps.
func (t *Term) settleAll() {
	for _, b := range []*buffer{&t.normal, &t.alt} {
		b.fillMarked(0, len(b.order)-1)
		b.settle(nil)
		b.maps = nil
	}
	t.unmoved = nil
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
