package vt

import "encoding/binary"

// Resize changes the size. Wrapped lines of the normal screen and its history are laid out for
// the new width, except for the line with the cursor, because its program will draw it again.
// The alternate screen is not laid out. As in xterm.js (Buffer.ts, BufferReflow.ts), the new
// size decides which lines move to the history or back, and where the cursor is afterwards.
func (t *Term) Resize(cols, rows int) {
	cols, rows = clampSize(cols, rows)
	if cols == t.cols && rows == t.rows {
		return
	}
	t.printing = false
	t.settleAll()
	t.resizeNormal(cols, rows)
	t.resizeAlternate(cols, rows)
	t.cols, t.rows = cols, rows
	t.normal.widenTabs(cols)
	t.alt.widenTabs(cols)
	t.ReportSize()
}

// resizeAlternate changes the size of the alternate screen. Columns that a narrower screen
// does not show are kept, and become visible if the screen is widened again.
func (t *Term) resizeAlternate(cols, rows int) {
	b := &t.alt
	if t.b != b {
		b.setRows(nil)
		b.bot = rows - 1
		return
	}
	lines := make([]row, 0, rows)
	for y := range b.order {
		r := *b.row(y)
		if cols > t.cols {
			t.widen(&r, cols)
		}
		lines = append(lines, r)
	}
	// Rows are removed at the bottom as long as the cursor's row stays, and then at the top.
	for len(lines) > rows {
		if len(lines) > b.y+1 {
			lines = lines[:len(lines)-1]
		} else {
			lines = lines[1:]
			b.y--
			b.saved.y = max(b.saved.y-1, 0)
		}
	}
	for len(lines) < rows {
		lines = append(lines, row{w: cols, ascii: true})
	}
	b.setRows(lines)
	b.uneven = true
	b.x, b.y = min(b.x, cols-1), min(max(b.y, 0), rows-1)
	b.saved.x = min(b.saved.x, cols-1)
	b.top, b.bot = 0, rows-1
}

func (b *buffer) setRows(rows []row) {
	b.rows, b.order, b.late = rows, make([]uint16, len(rows)), make([]uint8, len(rows))
	b.lateRows, b.deferrals, b.changed, b.spare, b.filled = 0, nil, nil, nil, 0
	for y := range b.order {
		b.order[y] = uint16(y)
	}
}

// widen changes the number of columns of a row. New columns are empty and have the default
// style.
func (t *Term) widen(r *row, cols int) {
	if cols < r.w {
		t.toCells(r)
		if cols < r.n {
			r.cells, r.n = r.cells[:cols], cols
		}
	} else if r.fill != 0 {
		t.toCells(r)
		r.reach(r.w)
		r.fill = 0
	}
	r.w = cols
	if r.inCells && cap(r.cells) < cols {
		r.cells = append(make([]cell, 0, cols), r.cells...)
	}
}

// layout is the normal screen with its history while the width changes: a list of rows, oldest
// first. The rows are read in place and written to another history and another screen, one
// line at a time, so that the memory holds little more than the result. The first pass counts
// the rows that each line will have. If the screen becomes narrower, it begins with the newest
// line, as in xterm.js, whose counts depend on this order. The second pass lays out the lines
// that are kept, oldest first.
//
// base is the first row on the screen, x and y the cursor there, and savedY the row of DECSC
// among all rows.
type layout struct {
	t       *Term
	old     *history
	rows    rowReader
	oldCols int
	oldRows int

	from   int // rows at the beginning of the history that are not in the list
	length int // number of rows in the list
	cols   int
	height int
	max    int    // largest number of rows
	first  uint64 // number of the oldest row

	base, y int
	savedY  int

	cursor    int // the line that begins here is not changed; -1 is none
	made      int // number of rows that are added, or removed if negative
	begin     int // index in the list at which the second pass begins
	beginMade int // part of made that is from there on

	// The second pass:
	skip     int // number of rows that are not kept
	above    int // number of the other rows that go to the history
	out      int // number of rows that were written or skipped
	screen   []row
	packing  bool // the history was compressed
	released int  // number of arenas that are no longer read
	line     lineLayout
	looks    lookTable

	// The first pass. If it has read all rows of an arena, and all are lines that do not change,
	// then the arena's number of columns is known.
	measured *arena
	lines    int
	widest   int
}

func (t *Term) resizeNormal(cols, rows int) {
	b := &t.normal
	old := t.hist
	l := &layout{
		t: t, old: &old, rows: rowReader{h: &old}, oldCols: t.cols, oldRows: t.rows,
		length: old.lines + t.rows, cols: cols, height: rows, max: rows + old.maxLines,
		first: old.first, base: old.lines, y: b.y, savedY: b.saved.y, cursor: -1,
	}
	l.line.l, l.line.above.h, l.line.made.j = l, &old, -1
	added := l.changeHeight()
	if over := l.length - l.max; rows < t.rows && over > 0 {
		l.first += uint64(l.starts(1, over+1))
		l.from += over
		l.length -= over
		l.base = max(l.base-over, 0)
		l.savedY = max(l.savedY-over, 0)
	}
	b.x = min(b.x, cols-1)
	l.y = min(l.y, rows-1) + added
	b.saved.x = min(b.saved.x, cols-1)
	b.top, b.bot = 0, rows-1
	all := l.length
	switch {
	case cols > t.cols:
		l.larger()
	case cols < t.cols:
		l.smaller()
	}
	l.write(all)
	b.y, b.saved.y = l.y, l.savedY
}

// changeHeight changes the number of rows on the screen. It returns the number of rows that
// have come back from the history.
func (l *layout) changeHeight() (added int) {
	for n := l.oldRows; n < l.height; n++ {
		if l.base > 0 && l.length <= l.base+l.y+added+1 {
			l.base--
			added++
		} else {
			l.length++
		}
	}
	for n := l.oldRows; n > l.height; n-- {
		if l.length > l.base+l.y+1 {
			l.length--
		} else {
			l.base++
		}
	}
	return added
}

// screenRow returns the row of the normal screen that is the j-th of the list, or nil if that
// row is new on the screen.
func (l *layout) screenRow(j int) *row {
	if y := l.from + j - l.old.lines; y < l.oldRows {
		return l.t.normal.row(y)
	}
	return nil
}

func (l *layout) inHistory(j int) bool { return l.from+j < l.old.lines }

// wrapped reports whether the j-th row continues the row above.
func (l *layout) wrapped(j int) bool {
	if l.inHistory(j) {
		return l.rows.wrapped(l.from + j)
	}
	r := l.screenRow(j)
	return r != nil && r.wrapped
}

// starts returns how many of the rows [j, end) begin a line.
func (l *layout) starts(j, end int) (n int) {
	if k := min(end, l.old.lines-l.from); j < k {
		n = l.rows.starts(l.from+j, l.from+k)
		j = k
	}
	for ; j < end; j++ {
		if !l.wrapped(j) {
			n++
		}
	}
	return n
}

// whole returns how many rows of an arena of the history do not change: all or none. The j-th
// row of the list must be the last row of the arena if last is set, and otherwise the first
// one.
func (l *layout) whole(j int, last bool) int {
	if !l.inHistory(j) {
		return 0
	}
	a := l.rows.seek(l.from + j)
	first := l.rows.first - l.from
	end := first + a.lines
	switch {
	case first < 0 || last && j != end-1 || !last && j != first:
		return 0
	case l.cols == l.oldCols:
	case a.starts != a.lines || l.cols < l.oldCols && a.widest > l.cols || l.wrapped(end):
		return 0
	}
	return a.lines
}

// larger counts the rows of wrapped lines in more columns.
func (l *layout) larger() {
	removed := 0
	for j := 0; j < l.length-1; j++ {
		if n := l.whole(j, false); n > 0 {
			j += n - 1
			continue
		}
		end := l.lineEnd(j, l.length)
		if end == j+1 {
			continue
		}
		if cursor := l.base + l.y; cursor >= j && cursor < end {
			l.cursor = j
		} else {
			removed += end - j - l.line.joined(j, end)
		}
		j = end - 1
	}
	l.made = -removed
	for n := removed; n > 0; n-- {
		if l.base > 0 {
			l.base--
		} else {
			l.y = max(l.y-1, 0)
		}
	}
	l.savedY = max(l.savedY-removed, 0)
}

// smaller counts the rows of lines that are too long for fewer columns. It begins with the
// last line, and stops when there are so many rows that older ones will be dropped.
func (l *layout) smaller() {
	screen := l.base // no line above this row has the cursor
	for j := l.length - 1; j >= 0; j-- {
		if n := l.whole(j, true); n > 0 {
			j -= n - 1
		} else if l.wrapped(j) {
			end := j + 1
			for l.wrapped(j) && j > 0 {
				j--
			}
			l.splitLine(j, end)
		} else {
			l.splitLine(j, j+1)
		}
		if l.begin == 0 && l.length-j+l.made >= l.max+l.height {
			l.begin, l.beginMade = j, l.made
		}
		if l.begin > 0 && j > 0 && j <= screen && l.base > 0 && l.base == l.max-l.height && l.savedY >= l.base+l.height-1 {
			if l.isEmptyRest() {
				l.savedY--
			}
			return // nothing more changes
		}
	}
}

// isEmptyRest reports whether the first row continues a row that was dropped, and is empty. In xterm.js such a line
// has no rows in fewer columns, and it is the only one that has fewer rows than before.
func (l *layout) isEmptyRest() bool {
	if !l.wrapped(0) || l.wrapped(1) {
		return false
	}
	rows, _, _ := l.line.split(0, 1)
	l.line.forget()
	return rows == 0
}

// splitLine counts the rows of a line in fewer columns.
func (l *layout) splitLine(j, end int) {
	if cursor := l.base + l.y; cursor >= j && cursor < end {
		l.cursor = j
		return
	}
	rows, columns, content := l.line.split(j, end)
	if end == j+1 && !l.wrapped(j) && (rows <= 1 || content <= l.cols) { // a wide character at its end may be cut
		l.line.forget()
		if columns <= l.cols {
			l.fits(j, columns)
		}
		return
	}
	if l.begin > 0 { // the line is counted, but it will be dropped
		l.line.forget()
	}
	add := rows - (end - j)
	dropped := l.length - l.max + add
	if l.base == 0 && l.y != l.length-1 {
		dropped = l.y - l.max + add
	}
	dropped = max(dropped, 0)
	l.made += max(add, 0)
	for n := add - dropped; n > 0; n-- {
		switch {
		case l.base == 0 && l.y < l.height-1:
			l.y++
			l.length--
		case l.base == 0:
			l.base++
		case l.base < min(l.max, l.length+l.made)-l.height:
			l.base++
		}
	}
	l.savedY = min(l.savedY+add, l.base+l.height-1)
}

// fits records that the j-th row does not change, and its number of columns.
func (l *layout) fits(j, columns int) {
	if !l.inHistory(j) {
		return
	}
	l.line.fit(j)
	a := l.rows.seek(l.from + j)
	if a != l.measured {
		l.measured, l.lines, l.widest = a, 0, 0
	}
	l.lines++
	l.widest = max(l.widest, columns)
	if l.lines == a.lines {
		a.widest = l.widest
	}
}

// lineEnd returns the end of the line that begins in the row j, at most all.
func (l *layout) lineEnd(j, all int) int {
	for j++; j < all && l.wrapped(j); j++ {
	}
	return j
}

// write makes the new history and screen from the list. all is the number of rows that the
// list had before the last pass.
func (l *layout) write(all int) {
	t := l.t
	made := l.made
	if l.begin > 0 {
		made = l.beginMade
	}
	rows := max(0, l.length-l.begin) + made
	l.skip = max(0, rows-l.max)
	l.above = max(0, rows-l.skip-l.height)
	l.screen = make([]row, 0, l.height)
	t.hist = history{
		maxLines: l.old.maxLines, maxBytes: l.old.maxBytes, serials: l.old.serials, first: l.first,
		spare: l.old.spare, scratch: l.old.scratch, packing: l.old.packing, runs: l.old.runs, text: l.old.text,
	}
	if l.cols < l.oldCols {
		l.line.plans.reverse()
	}
	if l.begin > 0 {
		t.hist.first += uint64(l.starts(1, min(l.begin, l.length)))
	}
	for j := l.begin; j < all; {
		if n := l.whole(j, false); n > 0 && l.out >= l.skip && l.out-l.skip+n <= l.above && j+n <= l.length {
			l.adopt(j)
			j += n
			continue
		}
		l.release(j)
		end := l.lineEnd(j, all)
		l.line.write(j, end)
		j = end
	}
	for len(l.screen) < l.height {
		l.screen = append(l.screen, row{w: l.cols, ascii: true})
	}
	t.normal.setRows(l.screen)
}

// adopt moves the arena that begins with the j-th row to the new history, unchanged.
func (l *layout) adopt(j int) {
	h := &l.t.hist
	l.destination(l.wrapped(j))
	a := l.rows.seek(l.from + j)
	l.old.arenas[l.rows.arena] = nil
	h.arenas = append(h.arenas, a)
	h.lines += a.lines
	h.bytes += a.size()
	l.out += a.lines - 1
	l.rows.arena++ // the adopted arena must not be read any more
	l.rows.first += a.lines
}

// release releases the arenas before the row j, so that their memory is used again.
func (l *layout) release(j int) {
	h := &l.t.hist
	end := len(l.old.arenas)
	if l.inHistory(j) {
		l.rows.seek(l.from + j)
		end = l.rows.arena
	}
	for ; l.released < end; l.released++ {
		a := l.old.arenas[l.released]
		l.old.arenas[l.released] = nil
		if a != nil {
			l.packing = l.packing || a.packed
			h.reuse(a)
		}
	}
}

// destination counts a row. It reports whether the row is kept, and whether it goes to the
// history.
func (l *layout) destination(wrapped bool) (kept, above bool) {
	i := l.out - l.skip
	if i == 0 && (l.skip > 0 || l.begin > 0) && !wrapped {
		l.t.hist.first++
	}
	l.out++
	return i >= 0, i < l.above
}

// packFrom is the part of the history's limit that a resize leaves uncompressed, if the old history
// was compressed. Compressing all of it would make each resize of a small history dearer. Half of a
// history of 64 MiB, with the plans of its lines, was more than the memory that a request may take.
const packFrom = 4

// push appends a row to the history. If the old history was compressed, the new one is
// compressed as well, because otherwise fewer rows would have room.
func (l *layout) push(m *madeRow, wrapped bool, marks rowMarks) {
	h := &l.t.hist
	arenas := len(h.arenas)
	flags := 0
	if m.ascii {
		flags = lineASCII
	}
	if wrapped {
		flags |= lineWrapped
	}
	if len(m.arena.looks) > arenaLooks && m.had[0] > 0 {
		l.moveRuns(m, h.newArena())
	}
	for {
		head := h.scratch[:0]
		if marks.held != nil {
			flags |= lineMarked
			head = append(head, marks.held...)
		} else if len(marks.list) > 0 {
			flags |= lineMarked
			head = appendMarks(head, marks.list)
		}
		if m.count > 0 {
			flags |= lineStyled
			head = append(binary.AppendUvarint(head, uint64(m.count)), m.runs...)
		}
		h.scratch = head
		if len(head) == 0 {
			head = nil
		}
		if h.put(m.arena, head, m.text, flags) {
			break
		}
		l.moveRuns(m, h.newest())
	}
	h.limit()
	if k := len(h.arenas); l.packing && k > arenas && k > 1 && h.bytes > h.maxBytes/packFrom {
		h.pack(h.arenas[k-2])
	}
}

// moveRuns translates the runs of a row to the style indexes of the arena to, which must be
// the newest. It removes the styles that the row has added to its old arena.
func (l *layout) moveRuns(m *madeRow, to *arena) {
	h := &l.t.hist
	from, runs := m.arena, m.runs
	m.arena, m.runs = to, make([]byte, 0, len(runs))
	for len(runs) > 0 {
		col, k := binary.Uvarint(runs)
		number, k2 := binary.Uvarint(runs[k:])
		runs = runs[k+k2:]
		s, link := from.looks[number], (*link)(nil)
		if s.link > 0 {
			link, s.link = from.links[s.link-1], 0
		}
		m.runs = binary.AppendUvarint(m.runs, col)
		m.runs = binary.AppendUvarint(m.runs, uint64(l.looks.number(h, to, s, link)))
	}
	h.cutLooks(from, m.had[0], m.had[1])
	m.had = [2]int{}
}
