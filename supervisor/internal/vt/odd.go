package vt

import "slices"

// An OddRow is a row that printing a snapshot does not reproduce, for example because it has
// half a wide character, or columns behind the last visible one.
type OddRow struct {
	Up    int    `json:"up"`            // number of rows below it on its screen
	Alt   bool   `json:"alt,omitempty"` // it belongs to the alternate screen
	From  int    `json:"from"`          // first column of Cells
	Width int    `json:"width"`         // number of columns of the row
	Cells []Cell `json:"cells"`         // without the empty cells of default style at the end
	Marks []Mark `json:"marks,omitempty"`
}

// A Mark is an OSC 133 or 633 that a shell has printed in a row.
type Mark struct {
	Col  int    `json:"col"`
	Text []byte `json:"text"`
}

// maxOdd bounds the odd rows of a saved screen, in cells: some MB of JSON. Usually there are
// few odd rows. If there are more, the rows furthest up keep the content that the snapshot
// gives them.
const maxOdd = 64 << 10

// oddRows collects the odd rows while a snapshot is painted.
type oddRows struct {
	t      *Term
	rows   []OddRow
	cells  int // cells of rows
	styles styleNumbers

	continues bool  // the first painted row continues a row above it
	unlinked  []int // rows of the alternate screen from which links were left out
}

// addNormal adds a row of the history or of the normal screen if it is odd. The painter calls
// it with all rows that may be odd, from the top. up is the number of rows below the row.
// unlinked is set if links were left out of it, which makes the row odd, too.
func (o *oddRows) addNormal(up int, cells []cell, marks []shellMark, unlinked bool) {
	if !unlinked && !o.t.oddCells(cells) && !o.t.oddMarks(cells, marks) {
		return
	}
	o.add(OddRow{Up: up, Width: max(o.t.cols, len(cells))}, cells, marks)
	if o.cells > 2*maxOdd { // drop the rows furthest up
		o.cells = 0
		for i, r := range slices.Backward(o.rows) {
			if o.cells += len(r.Cells) + 1; o.cells > maxOdd {
				o.rows = slices.Delete(o.rows, 0, i)
				break
			}
		}
		o.styles = renumber(o.rows, o.styles)
	}
}

// addShown adds the odd rows of the alternate screen, if it is shown. It also adds the
// cursor's row if placing the cursor may change that row: by a blank for a pending wrap
// (emptyPending), or by a character set that DECRC does not restore.
func (o *oddRows) addShown() {
	t, b := o.t, o.t.b
	changed := -1
	if _, c, _ := t.lastCharacter(); b.x == t.cols && !c.hasContent() || t.cs != t.gsets[t.gl] && t.cs != b.saved.cs {
		changed = b.y
	}
	if b == &t.alt {
		for y := range t.rows {
			r := b.row(y)
			row, cells := OddRow{Up: t.rows - 1 - y, Alt: true, Width: r.w}, t.allCells(r)
			if y != changed && !slices.Contains(o.unlinked, y) && !t.oddCells(cells[:t.cols]) {
				row.From = t.cols
			}
			if row.From < r.w {
				o.add(row, cells[row.From:], nil)
			}
		}
	} else if up := t.rows - 1 - changed; changed >= 0 && !slices.ContainsFunc(o.rows, func(r OddRow) bool { return r.Up == up }) {
		r := b.row(changed)
		o.add(OddRow{Up: up, Width: t.cols}, t.rowCells(r), r.marks)
	}
}

func (o *oddRows) add(row OddRow, cells []cell, marks []shellMark) {
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	row.Cells = make([]Cell, n)
	known := make(map[styleID]int) // it saves hashing links, which are long
	for i, c := range cells[:n] {
		attr, ok := known[c.style()]
		if !ok {
			attr = o.styles.number(o.t.styles.at(c.style()).attr())
			known[c.style()] = attr
		}
		row.Cells[i] = Cell{Text: string(o.t.appendContent(nil, c)), Width: c.width(), Attr: attr}
	}
	for _, m := range marks {
		row.Marks = append(row.Marks, Mark{m.col, []byte(m.text)})
	}
	o.rows = append(o.rows, row)
	o.cells += n + 1
}

// finish returns the rows for which there is room, from the lowest one up, and the styles to
// which their cells refer.
func (o *oddRows) finish() (rows []OddRow, styles []Attr) {
	slices.SortStableFunc(o.rows, func(a, b OddRow) int { return a.Up - b.Up })
	room := maxOdd
	for _, r := range o.rows {
		if room -= len(r.Cells) + 1; room < 0 {
			break
		}
		rows = append(rows, r)
	}
	return rows, renumber(rows, o.styles).all
}

// styleNumbers assigns numbers to the styles of the cells of odd rows.
type styleNumbers struct {
	all     []Attr
	numbers map[Attr]int
}

func (l *styleNumbers) number(a Attr) int {
	n, ok := l.numbers[a]
	if !ok {
		if l.numbers == nil {
			l.numbers = make(map[Attr]int)
		}
		n = len(l.all)
		l.numbers[a] = n
		l.all = append(l.all, a)
	}
	return n
}

// renumber gives the styles of the rows new numbers, in the order of their first use.
func renumber(rows []OddRow, from styleNumbers) (to styleNumbers) {
	known := make([]int, len(from.all)) // 1 + the new number, or 0
	for _, r := range rows {
		for i := range r.Cells {
			n := &known[r.Cells[i].Attr]
			if *n == 0 {
				*n = 1 + to.number(from.all[r.Cells[i].Attr])
			}
			r.Cells[i].Attr = *n - 1
		}
	}
	return to
}

// oddCells reports whether printing a snapshot may not reproduce the cells of a row. It may
// report so for more rows than those.
func (t *Term) oddCells(cells []cell) bool {
	n := min(len(cells), t.cols)
	for x := 0; x < n; x++ {
		c := cells[x]
		if c&(clusterBit|widthMask) == 0 && c&codeMask < 0x7f {
			continue
		}
		switch {
		case !c.hasContent(): // it has a width bit, so it is half of a character
			return true
		case !t.printable(c):
			return true
		case c.isWide():
			if x++; x >= n || !cells[x].isSpacer() || !t.sameWithoutPictures(cells[x].style(), c.style()) {
				return true
			}
		}
	}
	if n == t.cols && cells[n-1]&(contentMask|widthMask) == 0 {
		return !t.styles.at(cells[n-1].style()).isErased()
	}
	return false
}

// sameWithoutPictures reports whether two styles are the same, or look the same and no picture covers their cells.
func (t *Term) sameWithoutPictures(a, b styleID) bool {
	return a == b || t.sameStyleID(a, b) && t.styles.at(a).shownTile() == nil && t.styles.at(b).shownTile() == nil
}

// oddMarks reports whether a mark would move when the row is printed again. A line of the history
// has no cells for its empty columns at the end; a mark there does not move.
func (t *Term) oddMarks(cells []cell, marks []shellMark) bool {
	for i, m := range marks {
		if i > 0 && m.col < marks[i-1].col || m.col >= t.cols || m.col < len(cells) && cells[m.col].width() == 0 {
			return true
		}
	}
	return false
}

// allCells returns all cells of a row in scratch space, including those behind the last
// visible column.
func (t *Term) allCells(r *row) []cell {
	if r.inCells {
		t.scratch = append(t.scratch[:0], r.cells...)
	} else {
		t.scratch = t.decode(t.scratch[:0], r.text, r.runs)
	}
	for len(t.scratch) < max(r.w, t.cols) {
		t.scratch = append(t.scratch, r.fill.cell())
	}
	return t.scratch
}
