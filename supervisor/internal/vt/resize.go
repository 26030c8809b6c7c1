package vt

import (
	"bytes"
	"slices"
)

// Resize changes the size. Wrapped lines of the normal screen and its history
// are laid out anew, but for the one with the cursor, which its program will
// draw again; the alternate screen is not. Which lines go to the history or
// come back, and where the cursor is then, is as in xterm.js (Buffer.ts,
// BufferReflow.ts).
func (t *Term) Resize(cols, rows int) {
	cols, rows = clampSize(cols, rows)
	if cols == t.cols && rows == t.rows {
		return
	}
	t.printing = false
	t.resizeNormal(cols, rows)
	t.resizeAlternate(cols, rows)
	t.cols, t.rows = cols, rows
	t.normal.widenTabs(cols)
	t.alt.widenTabs(cols)
	t.TellSize()
}

// resizeAlternate keeps the rows that stay; what a narrower screen does not
// show comes back when it is wider again.
func (t *Term) resizeAlternate(cols, rows int) {
	b := &t.alt
	if t.b != b {
		b.rows, b.order = nil, nil
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
	// Rows leave at the bottom as long as the cursor stays, then at the top.
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
	b.x, b.y = min(b.x, cols-1), min(max(b.y, 0), rows-1)
	b.saved.x = min(b.saved.x, cols-1)
	b.top, b.bot = 0, rows-1
}

func (b *buffer) setRows(rows []row) {
	b.rows = rows
	b.order = make([]uint16, len(rows))
	for y := range b.order {
		b.order[y] = uint16(y)
	}
}

// widen gives a row more columns, or cuts it; those it gets are empty and of
// default look.
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

// layout is the normal screen with its history while its size changes: a list of
// rows, the oldest first. The rows are read where they are and written to another
// history and another screen, a line at a time, so that no more than the result
// is held. The first pass finds how many rows come of each line, newest first as
// in xterm.js, which counts while it goes; the second one lays out those that
// are kept, the oldest first.
//
// base is the first row on the screen, x and y the cursor there, savedY the row
// of DECSC among all rows.
type layout struct {
	t       *Term
	old     *history
	rows    rowReader
	oldCols int
	oldRows int

	from   int // rows of the history that are none of the list: it begins behind them
	length int // rows of the list
	cols   int
	height int
	max    int    // rows there may be
	first  uint64 // number of the oldest row

	base, y int
	savedY  int

	cursor    int // the line that begins here stays as it is; -1 is none
	made      int // rows that there are more, or fewer, afterwards
	begin     int // where the second pass begins in the list
	beginMade int // of made, those from there on

	// Of the second pass:
	skip     int // rows that are not kept
	above    int // of the others, how many go to the history
	out      int // rows that were written, or skipped
	screen   []row
	packing  bool // the history was compressed
	released int  // arenas that are not read any more
	line     lineLayout
}

func (t *Term) resizeNormal(cols, rows int) {
	b := &t.normal
	old := t.hist
	l := &layout{
		t: t, old: &old, rows: rowReader{h: &old}, oldCols: t.cols, oldRows: t.rows,
		length: old.lines + t.rows, cols: cols, height: rows, max: rows + old.maxLines,
		first: old.first, base: old.lines, y: b.y, savedY: b.saved.y, cursor: -1,
	}
	l.line.l = l
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

// changeHeight makes the screen as high as it will be, and returns how many rows
// came back from the history.
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

// screenRow returns the row of the normal screen that is the j-th of the list; nil is
// one that the screen gets.
func (l *layout) screenRow(j int) *row {
	if y := l.from + j - l.old.lines; y < l.oldRows {
		return l.t.normal.row(y)
	}
	return nil
}

func (l *layout) inHistory(j int) bool { return l.from+j < l.old.lines }

// wrapped reports whether the j-th row continues the one above.
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

// whole returns how many rows of an arena of the history, of which the j-th of
// the list is the first or the last one, stay as they are: all or none.
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

// larger finds what comes of wrapped lines in more columns.
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

// smaller finds what comes of lines that are too long for fewer columns, from the
// last one on, until so many rows are found that the older ones are forgotten.
func (l *layout) smaller() {
	screen := l.base // no line above it has the cursor
	for j := l.length - 1; j >= 0; j-- {
		if n := l.whole(j, true); n > 0 {
			j -= n - 1
		} else if l.wrapped(j) || l.trimmed(j) > l.cols {
			end := j + 1
			for l.wrapped(j) && j > 0 {
				j--
			}
			l.splitLine(j, end)
		}
		if l.begin == 0 && l.length-j+l.made >= l.max+l.height {
			l.begin, l.beginMade = j, l.made
		}
		if l.begin > 0 && j <= screen && l.base > 0 && l.base == l.max-l.height && l.savedY >= l.base+l.height-1 {
			return // nothing changes any more
		}
	}
}

// splitLine counts the rows that are made of a line.
func (l *layout) splitLine(j, end int) {
	if cursor := l.base + l.y; cursor >= j && cursor < end {
		l.cursor = j
		return
	}
	add := l.line.split(j, end) - (end - j)
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

// trimmed returns the columns of a row up to the last one that has content: one
// more than there are if that is a wide character that was cut.
func (l *layout) trimmed(j int) int {
	if l.inHistory(j) {
		if s := l.rows.row(l.from + j); s.flags&lineASCII != 0 {
			return len(bytes.TrimRight(s.text, "\x00"))
		}
	}
	return l.line.row(j).trimmed
}

func trimmed(cells []cell) int {
	for i := len(cells) - 1; i >= 0; i-- {
		if cells[i].hasContent() {
			return i + cells[i].width()
		}
	}
	return 0
}

// lineEnd returns where the line ends that begins in the row j, before all.
func (l *layout) lineEnd(j, all int) int {
	for j++; j < all && l.wrapped(j); j++ {
	}
	return j
}

// write makes history and screen of the list, which had so many rows before the
// last pass.
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
		spare: l.old.spare, scratch: l.old.scratch, runs: l.old.runs, text: l.old.text,
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
		l.line.begin(j, end)
		if l.cols == l.oldCols || j == l.cursor || end == j+1 && (l.cols > l.oldCols || !l.wrapped(j) && l.trimmed(j) <= l.cols) {
			l.line.asIs(0)
		} else {
			l.line.write()
		}
		j = end
		l.sweep()
	}
	for len(l.screen) < l.height {
		l.screen = append(l.screen, row{w: l.cols, ascii: true})
	}
	t.normal.setRows(l.screen)
}

// adopt gives the history the arena that begins with the j-th row as it is.
func (l *layout) adopt(j int) {
	h := &l.t.hist
	l.destination(l.wrapped(j))
	a := l.rows.seek(l.from + j)
	l.old.arenas[l.rows.arena] = nil
	h.arenas = append(h.arenas, a)
	h.lines += a.lines
	h.bytes += a.size()
	l.out += a.lines - 1
	l.rows.arena++ // the one that was adopted is not to be asked any more
	l.rows.first += a.lines
}

// release lets go of the arenas before the row j, and has their room used again.
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

// sweepAt is how many looks or texts are in use while the size changes before
// those are freed that no row has: each is some 60 bytes.
const sweepAt = 1 << 16

func (l *layout) sweep() {
	t := l.t
	if len(l.screen) == 0 && (t.styles.used() > max(t.styles.limit, sweepAt) || t.clusters.used() > max(t.clusters.limit, sweepAt)) {
		t.tidy()
		l.line.forget()
	}
}

// destination counts a row, and reports whether it is kept, and in the history.
func (l *layout) destination(wrapped bool) (kept, above bool) {
	i := l.out - l.skip
	if i == 0 && (l.skip > 0 || l.begin > 0) && !wrapped {
		l.t.hist.first++
	}
	l.out++
	return i >= 0, i < l.above
}

// putText writes a row of text form.
func (l *layout) putText(text []byte, runs []run, wrapped bool, marks []mark, flags int) {
	switch kept, above := l.destination(wrapped); {
	case !kept:
	case above:
		l.push(text, runs, wrapped, marks, flags)
	default: // it is ASCII
		l.screen = append(l.screen, row{
			text: bytes.Clone(text), runs: slices.Clone(runs), n: len(text), w: l.cols,
			ascii: true, wrapped: wrapped, marks: marks,
		})
	}
}

// putCells writes a row of as many cells as there are columns.
func (l *layout) putCells(cells []cell, wrapped bool, marks []mark) {
	t := l.t
	kept, above := l.destination(wrapped)
	if !kept {
		return
	}
	if above {
		h := &t.hist
		text, runs, _, ascii := t.encode(h.text[:0], h.runs[:0], cells)
		h.text, h.runs = text, runs
		flags := 0
		if ascii {
			flags = lineASCII
		}
		l.push(text, runs, wrapped, marks, flags)
		return
	}
	r := row{w: l.cols, wrapped: wrapped, marks: marks}
	r.text, r.runs, r.n, r.ascii = t.encode(nil, nil, cells)
	if !r.ascii {
		r.text, r.runs, r.n, r.inCells = nil, nil, len(cells), true
		r.cells = slices.Clone(cells)
	}
	l.screen = append(l.screen, r)
}

// push gives the history a row. If much of it was compressed it is so again,
// because then as much has room.
func (l *layout) push(text []byte, runs []run, wrapped bool, marks []mark, flags int) {
	t, h := l.t, &l.t.hist
	if wrapped {
		flags |= lineWrapped
	}
	arenas := len(h.arenas)
	t.pushText(text, runs, marks, flags)
	if k := len(h.arenas); l.packing && k > arenas && k > 1 && h.bytes > h.maxBytes/2 {
		h.pack(h.arenas[k-2])
	}
}
