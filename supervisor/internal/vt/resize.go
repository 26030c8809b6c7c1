package vt

import "bytes"

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

// layoutLine is a line of the normal screen or its history while its size
// changes: as it was stored, or as cells.
type layoutLine struct {
	stored  storedLine
	cells   []cell // as many as there are columns
	isCells bool
	wrapped bool
	marks   []mark
	columns int // that something is known of
	trimmed int // that are not empty at the end
}

// layout is the normal screen with its history while its size changes. base
// is the first line on the screen, x and y the cursor there, savedY that of
// DECSC among all lines.
type layout struct {
	t          *Term
	lines      []*layoutLine
	oldCols    int
	cols, rows int
	max        int    // lines there may be
	first      uint64 // number of the oldest line
	base, y    int
	savedY     int
}

func (t *Term) resizeNormal(cols, rows int) {
	b := &t.normal
	old := t.hist
	l := &layout{
		t: t, oldCols: t.cols, cols: cols, rows: rows, max: rows + old.maxLines,
		first: old.first, base: old.lines, y: b.y, savedY: b.saved.y,
	}
	l.gather(&old)
	added := l.changeRows(t.rows)
	if over := len(l.lines) - l.max; rows < t.rows && over > 0 {
		l.forget(over)
		l.lines = l.lines[over:]
		l.base = max(l.base-over, 0)
		l.savedY = max(l.savedY-over, 0)
	}
	b.x = min(b.x, cols-1)
	l.y = min(l.y, rows-1) + added
	b.saved.x = min(b.saved.x, cols-1)
	b.top, b.bot = 0, rows-1
	switch {
	case cols > t.cols:
		l.larger()
	case cols < t.cols:
		l.smaller()
	}
	l.scatter(&old)
	b.y, b.saved.y = l.y, l.savedY
}

// forget counts the numbers of the n oldest lines, which are about to go.
func (l *layout) forget(n int) {
	for _, line := range l.lines[1 : n+1] {
		if !line.wrapped {
			l.first++
		}
	}
}

// gather lists all lines.
func (l *layout) gather(old *history) {
	all := make([]layoutLine, old.lines+l.t.rows)
	l.lines = make([]*layoutLine, len(all), len(all)+l.rows)
	for i := range all {
		l.lines[i] = &all[i]
	}
	for _, a := range old.arenas {
		old.unpack(a)
	}
	old.each(0, func(i int, s storedLine) bool {
		line := &all[i]
		line.stored, line.wrapped, line.marks = s, s.flags&lineWrapped != 0, s.marks
		if s.flags&lineASCII != 0 {
			line.columns = len(s.text)
			line.trimmed = len(bytes.TrimRight(s.text, "\x00"))
		} else {
			l.t.scratch = l.t.storedCells(l.t.scratch[:0], s)
			line.columns = len(l.t.scratch)
			line.trimmed = trimmed(l.t.scratch)
		}
		return true
	})
	for y := range l.t.rows {
		r := l.t.normal.row(y)
		line := &all[old.lines+y]
		line.cells = append([]cell(nil), l.t.rowCells(r)...)
		line.isCells, line.wrapped, line.marks = true, r.wrapped, r.marks
		line.columns, line.trimmed = len(line.cells), trimmed(line.cells)
	}
}

// trimmed returns the columns up to the last one that has content: one more
// than there are if that is a wide character that was cut.
func trimmed(cells []cell) int {
	for i := len(cells) - 1; i >= 0; i-- {
		if cells[i].hasContent() {
			return i + cells[i].width()
		}
	}
	return 0
}

// open returns the cells of a line, cols of them at least.
func (l *layout) open(line *layoutLine, cols int) []cell {
	if !line.isCells {
		line.cells = l.t.storedCells(make([]cell, 0, cols), line.stored)
		line.isCells = true
	}
	for len(line.cells) < cols {
		line.cells = append(line.cells, 0)
	}
	return line.cells
}

func (l *layout) blank(wrapped bool) *layoutLine {
	return &layoutLine{cells: make([]cell, l.cols), isCells: true, wrapped: wrapped}
}

// changeRows makes the screen as high as it will be, and returns how many lines
// came back from the history.
func (l *layout) changeRows(oldRows int) (added int) {
	for n := oldRows; n < l.rows; n++ {
		if l.base > 0 && len(l.lines) <= l.base+l.y+added+1 {
			l.base--
			added++
		} else {
			l.lines = append(l.lines, l.blank(false))
		}
	}
	for n := oldRows; n > l.rows; n-- {
		if len(l.lines) > l.base+l.y+1 {
			l.lines = l.lines[:len(l.lines)-1]
		} else {
			l.base++
		}
	}
	return added
}

// lineLength returns the columns of the i-th of a line's rows that the next one
// continues: without the last one if a wide character did not fit there.
func (l *layout) lineLength(rows []*layoutLine, i int) int {
	if i == len(rows)-1 {
		return rows[i].trimmed
	}
	cells := l.open(rows[i], l.oldCols)
	last := cells[l.oldCols-1]
	if !last.hasContent() && last.width() == 1 && l.open(rows[i+1], 1)[0].isWide() {
		return l.oldCols - 1
	}
	return l.oldCols
}

// larger lays wrapped lines out in more columns.
func (l *layout) larger() {
	removed := make(map[int]bool)
	for y := 0; y < len(l.lines)-1; y++ {
		end := y + 1
		if !l.lines[end].wrapped {
			continue
		}
		for end < len(l.lines) && l.lines[end].wrapped {
			end++
		}
		if cursor := l.base + l.y; cursor >= y && cursor < end {
			y = end - 1
			continue
		}
		rows := l.lines[y:end]
		for i := len(rows) - l.joinRows(rows); i < len(rows); i++ {
			removed[y+i] = true
		}
		y = end - 1
	}
	if len(removed) == 0 {
		return
	}
	kept := l.lines[:0]
	for i, line := range l.lines {
		if !removed[i] {
			kept = append(kept, line)
		}
	}
	l.lines = kept
	for range removed {
		switch {
		case l.base > 0:
			l.base--
		default:
			l.y = max(l.y-1, 0)
			if len(l.lines) < l.rows {
				l.lines = append(l.lines, l.blank(false))
			}
		}
	}
	l.savedY = max(l.savedY-len(removed), 0)
}

// joinRows moves a line's rows together, and returns how many are empty then.
func (l *layout) joinRows(rows []*layoutLine) int {
	for _, r := range rows {
		l.open(r, l.cols)
	}
	to, toX := 0, l.lineLength(rows, 0)
	from, fromX := 1, 0
	for from < len(rows) {
		length := l.lineLength(rows, from)
		n := min(length-fromX, l.cols-toX)
		copy(rows[to].cells[toX:toX+n], rows[from].cells[fromX:fromX+n])
		if toX += n; toX == l.cols {
			to, toX = to+1, 0
		}
		if fromX += n; fromX == length {
			from, fromX = from+1, 0
		}
		if toX == 0 && to > 0 {
			// A wide character does not fit in the last column.
			if last := &rows[to-1].cells[l.cols-1]; last.isWide() {
				rows[to].cells[0] = *last
				*last = 0
				toX = 1
			}
		}
	}
	// What is left of the row is emptied, with a wide character that is cut.
	cells := rows[to].cells
	if toX > 0 && cells[toX-1].isWide() {
		cells[toX-1] = 0
	}
	clear(cells[toX:l.cols])
	empty := 0
	for i := len(rows) - 1; i > 0 && (i > to || trimmed(rows[i].cells) == 0); i-- {
		empty++
	}
	return empty
}

// inserted are rows that were made for the line before the row start of the
// list as it will be.
type inserted struct {
	start int
	rows  []*layoutLine
}

// smaller lays lines out that are too long for fewer columns, from the last one
// on.
func (l *layout) smaller() {
	var inserts []inserted
	count := 0
	all := l.lines // also those that leave at the bottom meanwhile
	for y := len(all) - 1; y >= 0; y-- {
		line := all[y]
		if !line.wrapped && line.trimmed <= l.cols {
			continue
		}
		end := y + 1
		for all[y].wrapped && y > 0 {
			y--
		}
		if cursor := l.base + l.y; cursor >= y && cursor < end {
			continue
		}
		rows := append([]*layoutLine(nil), all[y:end]...)
		lengths := l.splitLengths(rows)
		add := len(lengths) - len(rows)
		dropped := len(l.lines) - l.max + add
		if l.base == 0 && l.y != len(l.lines)-1 {
			dropped = l.y - l.max + add
		}
		dropped = max(dropped, 0)
		if add > 0 {
			made := make([]*layoutLine, add)
			for i := range made {
				made[i] = l.blank(true)
			}
			inserts = append(inserts, inserted{y + len(rows) + count, made})
			count += add
			rows = append(rows, made...)
		}
		l.splitRows(rows, lengths, add)
		for n := add - dropped; n > 0; n-- {
			switch {
			case l.base == 0 && l.y < l.rows-1:
				l.y++
				l.lines = l.lines[:len(l.lines)-1]
			case l.base == 0:
				l.base++
			case l.base < min(l.max, len(l.lines)+count)-l.rows:
				l.base++
			}
		}
		l.savedY = min(l.savedY+add, l.base+l.rows-1)
	}
	l.insert(inserts, count)
}

// splitLengths returns how many columns each row of a line will have: all, or
// one less where a wide character does not fit.
func (l *layout) splitLengths(rows []*layoutLine) (lengths []int) {
	need := 0
	for i := range rows {
		need += l.lineLength(rows, i)
	}
	x, i := 0, 0
	for have := 0; have < need; {
		if need-have < l.cols {
			return append(lengths, need-have)
		}
		x += l.cols
		if length := l.lineLength(rows, i); x > length {
			x -= length
			if i++; i == len(rows) {
				return lengths
			}
		}
		n := l.cols
		if cells := l.open(rows[i], l.oldCols); x <= len(cells) && cells[x-1].isWide() {
			x--
			n--
		}
		lengths = append(lengths, n)
		have += n
	}
	return lengths
}

// splitRows moves the content of rows, the last add of which are new, to where
// lengths says, from the end on.
func (l *layout) splitRows(rows []*layoutLine, lengths []int, add int) {
	for _, r := range rows {
		l.open(r, l.oldCols+1) // as much as trimmed can say; no copy grows it below
	}
	from := len(rows) - max(add, 0) - 1
	old := rows[:from+1]
	fromX := old[from].trimmed
	to := len(lengths) - 1
	toX := 0
	if to >= 0 {
		toX = lengths[to]
	}
	for from >= 0 && to >= 0 && to < len(rows) {
		n := min(fromX, toX)
		copy(rows[to].cells[toX-n:toX], rows[from].cells[fromX-n:fromX])
		if toX -= n; toX == 0 {
			to--
			if to >= 0 {
				toX = lengths[to]
			}
		}
		if fromX -= n; fromX == 0 {
			from--
			fromX = l.lineLength(rows, max(from, 0))
		}
	}
	for i, n := range lengths {
		if n < l.cols && i < len(rows) {
			rows[i].cells[n] = 0
		}
	}
}

// insert puts the rows that were made into the list; what is too much leaves at
// its beginning.
func (l *layout) insert(inserts []inserted, count int) {
	if len(inserts) == 0 {
		return
	}
	old := l.lines
	size := len(old) + count
	out := make([]*layoutLine, min(l.max, size))
	skip := size - len(out)
	next, done := 0, 0
	from := len(old) - 1
	for i := size - 1; i >= skip; i-- {
		if next < len(inserts) && inserts[next].start > from+done {
			rows := inserts[next].rows
			for k := len(rows) - 1; k >= 0; k-- {
				if i >= skip {
					out[i-skip] = rows[k]
				}
				i--
			}
			i++
			done += len(rows)
			next++
		} else if from >= 0 {
			out[i-skip] = old[from]
			from--
		}
	}
	for i := range out {
		if out[i] == nil {
			out[i] = l.blank(false)
		}
	}
	if from >= 0 { // so many have left; the first one here may be one that was made
		l.forget(from)
		if !out[0].wrapped {
			l.first++
		}
	}
	l.lines = out
}

// scatter makes history and screen of the list.
func (l *layout) scatter(old *history) {
	t := l.t
	for len(l.lines) < l.rows {
		l.lines = append(l.lines, l.blank(false))
	}
	t.hist = history{maxLines: old.maxLines, maxBytes: old.maxBytes, serials: old.serials, first: l.first}
	above := len(l.lines) - l.rows
	for _, line := range l.lines[:above] {
		l.store(line)
	}
	rows := make([]row, l.rows)
	for y, line := range l.lines[above:] {
		rows[y] = l.row(line)
	}
	t.normal.setRows(rows)
}

func (l *layout) store(line *layoutLine) {
	t := l.t
	if !line.isCells && line.columns > l.cols {
		l.open(line, l.cols)
	}
	flags := 0
	if line.wrapped {
		flags = lineWrapped
	}
	h := &t.hist
	if !line.isCells {
		runs := h.runs[:0]
		line.stored.eachRun(func(col int, s style) { runs = append(runs, newRun(col, t.styles.id(s))) })
		h.runs = runs
		t.pushText(line.stored.text, runs, line.marks, flags|line.stored.flags&lineASCII)
		return
	}
	cells := line.cells[:min(len(line.cells), l.cols)]
	text, runs, _, ascii := t.encode(h.text[:0], h.runs[:0], cells)
	h.text, h.runs = text, runs
	if ascii {
		flags |= lineASCII
	}
	t.pushText(text, runs, line.marks, flags)
}

// row makes a row of the screen, in text form if it is ASCII.
func (l *layout) row(line *layoutLine) row {
	cells := l.open(line, l.cols)[:l.cols]
	r := row{w: l.cols, wrapped: line.wrapped, marks: line.marks}
	var n int
	r.text, r.runs, n, r.ascii = l.t.encode(nil, nil, cells)
	r.n = n
	if !r.ascii {
		r.text, r.runs, r.n, r.inCells = nil, nil, len(cells), true
		r.cells = append([]cell(nil), cells...)
	}
	return r
}
