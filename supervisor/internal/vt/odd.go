package vt

import "slices"

// An OddRow is a row that printing does not make again: with half a wide
// character, with what was printed under another mode, or with columns behind
// the last one that is shown.
type OddRow struct {
	Up    int    `json:"up"`            // rows below it on its screen
	Alt   bool   `json:"alt,omitempty"` // of the alternate screen
	From  int    `json:"from"`          // the first of the columns that are told
	Width int    `json:"width"`         // columns it has
	Cells []Cell `json:"cells"`         // empty ones of default look at the end are left out
	Marks []Mark `json:"marks,omitempty"`
}

// A Mark is what a shell has left in a row: OSC 133 or 633.
type Mark struct {
	Col  int    `json:"col"`
	Text []byte `json:"text"`
}

// maxOdd bounds what is told of odd rows, in cells: some MB as JSON. There are
// few of them, unless a program prints a history of clusters and then leaves
// mode 2027; then those furthest up stay as the snapshot makes them.
const maxOdd = 64 << 10

// oddRows collects them while a snapshot is painted. Until that is done, the
// look of a cell is its style's number.
type oddRows struct {
	t     *Term
	rows  []OddRow
	cells int // of them

	continues bool // the first row painted does
}

// normal is told of each row of the history and the normal screen that may be
// odd, from above.
func (o *oddRows) normal(up int, cells []cell, marks []mark) {
	if !o.t.oddCells(cells) && !oddMarks(cells, marks) {
		return
	}
	o.add(OddRow{Up: up, Width: max(o.t.cols, len(cells))}, cells, marks)
	if o.cells > 2*maxOdd { // those furthest up go
		o.cells = 0
		for i, r := range slices.Backward(o.rows) {
			if o.cells += len(r.Cells) + 1; o.cells > maxOdd {
				o.rows = slices.Delete(o.rows, 0, i)
				break
			}
		}
	}
}

// shown adds those of the alternate screen, if it is shown, and the cursor's row
// where placing the cursor may change it: by a blank for a wrap that is pending
// (emptyPending), or by a character set that is not what DECRC brings back.
func (o *oddRows) shown() {
	t, b := o.t, o.t.b
	changed := -1
	if _, c, _ := t.last(); b.x == t.cols && !c.hasContent() || t.cs != t.gsets[t.gl] && t.cs != b.saved.cs {
		changed = b.y
	}
	if b == &t.alt {
		for y := range t.rows {
			r := b.row(y)
			row, cells := OddRow{Up: t.rows - 1 - y, Alt: true, Width: r.w}, t.allCells(r)
			if y != changed && !t.oddCells(cells[:t.cols]) {
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

func (o *oddRows) add(row OddRow, cells []cell, marks []mark) {
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	row.Cells = make([]Cell, n)
	for i, c := range cells[:n] {
		row.Cells[i] = Cell{Text: string(o.t.appendContent(nil, c)), Width: c.width(), Attr: int(c.style())}
	}
	for _, m := range marks {
		row.Marks = append(row.Marks, Mark{m.col, []byte(m.text)})
	}
	o.rows = append(o.rows, row)
	o.cells += n + 1
}

// done returns as many as there is room for, the lowest first, and the looks
// that their cells have.
func (o *oddRows) done() (rows []OddRow, looks []Attr) {
	slices.SortStableFunc(o.rows, func(a, b OddRow) int { return a.Up - b.Up })
	numbers, room := make(map[Attr]int), maxOdd
	for _, r := range o.rows {
		if room -= len(r.Cells) + 1; room < 0 {
			break
		}
		for i := range r.Cells {
			c := &r.Cells[i]
			a := o.t.styles.all[c.Attr].attr()
			n, ok := numbers[a]
			if !ok {
				n = len(looks)
				numbers[a] = n
				looks = append(looks, a)
			}
			c.Attr = n
		}
		rows = append(rows, r)
	}
	return rows, looks
}

// oddCells reports whether printing may not make the cells of a row again. It
// may say so of more than those.
func (t *Term) oddCells(cells []cell) bool {
	n := min(len(cells), t.cols)
	for x := 0; x < n; x++ {
		c := cells[x]
		if c&(clusterBit|widthMask) == 0 && c&codeMask < 0x7f {
			continue
		}
		switch {
		case !c.hasContent(): // with a width: half of a character
			return true
		case !t.printable(c):
			return true
		case c.isWide():
			if x++; x >= n || cells[x] != zeroCell|c.style().cell() {
				return true
			}
		}
	}
	if n == t.cols && !cells[n-1].hasContent() {
		return !t.styles.all[cells[n-1].style()].isErased()
	}
	return false
}

// oddMarks reports whether a mark does not come to stand where it did.
func oddMarks(cells []cell, marks []mark) bool {
	for i, m := range marks {
		if i > 0 && m.col < marks[i-1].col || m.col >= len(cells) || cells[m.col].width() == 0 {
			return true
		}
	}
	return false
}

// allCells returns the cells of a row, those that are not shown too, in scratch
// space.
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
