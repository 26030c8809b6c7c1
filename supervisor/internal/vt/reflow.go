package vt

import "bytes"

// lineLayout lays out one line at a time: the rows [j, end) of the list, as many
// of them in cells as fit into its room. Rows that are made of it keep what the
// rows in their places had: whether they continue the one above, and marks.
type lineLayout struct {
	l      *layout
	j, end int
	wraps  bool // the first row continues one that is not kept
	marks  []rowMarks
	room   [cachedRows]cachedRow
	dst    []cell
	text   []byte
	runs   []run
	from   []run // of the row that is read in text form
}

type rowMarks struct {
	j     int
	marks []mark
}

// cachedRows is how many rows are kept as cells: lines seldom have more.
const cachedRows = 16

type cachedRow struct {
	j       int // 1 + that in the list
	cells   []cell
	trimmed int
}

// forget is called when styles or clusters have other numbers.
func (n *lineLayout) forget() {
	for i := range n.room {
		n.room[i].j = 0
	}
}

// row returns the j-th row as cells, of which there is one more than there are
// columns at least.
func (n *lineLayout) row(j int) *cachedRow {
	c := &n.room[j%cachedRows]
	if c.j == j+1 {
		return c
	}
	l := n.l
	t := l.t
	c.j, c.cells = j+1, c.cells[:0]
	if l.inHistory(j) {
		c.cells = t.storedCells(c.cells, l.rows.row(l.from+j))
	} else if r := l.screenRow(j); r != nil {
		c.cells = append(c.cells, t.rowCells(r)...)
	}
	c.trimmed = trimmed(c.cells)
	for want := max(l.oldCols, l.cols) + 1; len(c.cells) < want; {
		c.cells = append(c.cells, 0)
	}
	return c
}

// begin prepares the second pass over a line.
func (n *lineLayout) begin(j, end int) {
	l := n.l
	n.j, n.end, n.wraps, n.marks = j, end, l.wrapped(j), n.marks[:0]
	for i := j; i < end; i++ {
		var marks []mark
		if !l.inHistory(i) {
			if r := l.screenRow(i); r != nil {
				marks = r.marks
			}
		} else if a := l.rows.seek(l.from + i); a.marked {
			marks = l.rows.row(l.from + i).marks
		}
		if len(marks) > 0 {
			n.marks = append(n.marks, rowMarks{i, marks})
		}
	}
}

// next says what the i-th row that comes of the line has, and whether it is in the
// list: the last rows may have left it at the bottom.
func (n *lineLayout) next(i int) (wrapped bool, marks []mark, listed bool) {
	j := n.j + i
	if j >= n.end {
		return true, nil, true
	}
	for len(n.marks) > 0 && n.marks[0].j < j {
		n.marks = n.marks[1:]
	}
	if len(n.marks) > 0 && n.marks[0].j == j {
		marks = n.marks[0].marks
	}
	l := n.l
	wrapped = i > 0 || n.wraps
	if listed = j < l.length; listed && l.out < l.skip && j > 0 && !wrapped {
		l.t.hist.first++
	}
	return wrapped, marks, listed
}

// put writes cells as the i-th row.
func (n *lineLayout) put(i int, cells []cell) {
	if wrapped, marks, listed := n.next(i); listed {
		n.l.putCells(cells[:n.l.cols], wrapped, marks)
	}
}

// asIs writes the rows from the i-th one on as they are, as far as there are
// columns for them.
func (n *lineLayout) asIs(i int) {
	l := n.l
	for ; n.j+i < n.end; i++ {
		if j := n.j + i; l.inHistory(j) && l.out-l.skip < l.above {
			s := l.rows.row(l.from + j)
			if textColumns(s.text, s.flags) <= l.cols {
				if wrapped, marks, listed := n.next(i); listed {
					l.putText(s.text, n.runsOf(s), wrapped, marks, s.flags&lineASCII)
				}
				continue
			}
		}
		n.put(i, n.row(n.j+i).cells)
	}
}

// runsOf returns a stored row's runs.
func (n *lineLayout) runsOf(s storedLine) []run {
	n.from = n.from[:0]
	s.eachRun(func(col int, look style) { n.from = append(n.from, newRun(col, n.l.t.styles.id(look))) })
	return n.from
}

// write lays the line out.
func (n *lineLayout) write() {
	if columns, ok := n.solid(n.j, n.end); ok && columns > 0 {
		n.writeSolid(columns)
	} else if n.l.cols < n.l.oldCols {
		made := n.splitCells(n.j, n.end, true)
		n.asIs(made)
	} else {
		n.joinCells(n.j, n.end, n.joinCells(n.j, n.end, 0))
	}
}

// split and joined return how many rows come of a line in fewer and in more
// columns.
func (n *lineLayout) split(j, end int) int {
	if columns, ok := n.solid(j, end); ok {
		return (columns + n.l.cols - 1) / n.l.cols
	}
	return n.splitCells(j, end, false)
}

func (n *lineLayout) joined(j, end int) int {
	if columns, ok := n.solid(j, end); ok {
		return max(1, (columns+n.l.cols-1)/n.l.cols)
	}
	return n.joinCells(j, end, 0)
}

// solid reports whether all of the line is printable ASCII, and how many columns
// it has then.
func (n *lineLayout) solid(j, end int) (columns int, ok bool) {
	for i := j; i < end; i++ {
		text, _, ascii := n.ascii(i, false)
		if !ascii || i+1 < end && len(text) != n.l.oldCols || bytes.IndexByte(text, markEmpty) >= 0 {
			return 0, false
		}
		columns += len(text)
	}
	return columns, true
}

// ascii returns the text form of a row, with its runs if they are wanted, if each
// of its columns is a byte and nothing but empty columns follows.
func (n *lineLayout) ascii(j int, runs bool) ([]byte, []run, bool) {
	l := n.l
	if l.inHistory(j) {
		s := l.rows.row(l.from + j)
		if s.flags&lineASCII == 0 {
			return nil, nil, false
		}
		if !runs {
			return s.text, nil, true
		}
		return s.text, n.runsOf(s), true
	}
	r := l.screenRow(j)
	if r == nil {
		return nil, nil, true
	}
	return r.text, r.runs, !r.inCells && r.ascii && r.fill == 0
}

// writeSolid writes a line that is solid, of so many columns.
func (n *lineLayout) writeSolid(columns int) {
	l := n.l
	j, x, k, look := n.j, 0, 0, styleID(0)
	text, runs, _ := n.ascii(j, true)
	for i := 0; columns > 0; i++ {
		n.text, n.runs = n.text[:0], n.runs[:0]
		last := styleID(0)
		for room := min(l.cols, columns); room > 0; {
			if x == len(text) {
				j, x, k, look = j+1, 0, 0, 0
				text, runs, _ = n.ascii(j, true)
			}
			for k < len(runs) && runs[k].col() <= x {
				look = runs[k].style()
				k++
			}
			to := min(len(text), x+room)
			if k < len(runs) {
				to = min(to, runs[k].col())
			}
			if look != last {
				n.runs = append(n.runs, newRun(len(n.text), look))
				last = look
			}
			n.text = append(n.text, text[x:to]...)
			room, columns, x = room-(to-x), columns-(to-x), to
		}
		if wrapped, marks, listed := n.next(i); listed {
			l.putText(n.text, n.runs, wrapped, marks, lineASCII)
		}
	}
}

// length returns the columns of the row j of a line that the next one continues:
// without the last one if a wide character did not fit there.
func (n *lineLayout) length(j, end int) int {
	c := n.row(j)
	if j == end-1 {
		return c.trimmed
	}
	cols := n.l.oldCols
	if last := c.cells[cols-1]; !last.hasContent() && last.width() == 1 && n.row(j + 1).cells[0].isWide() {
		return cols - 1
	}
	return cols
}

// splitCells lays a line out in fewer columns, and returns how many rows come of
// it: each takes all columns, or one less if a wide character does not fit.
func (n *lineLayout) splitCells(j, end int, write bool) (rows int) {
	need := 0
	for i := j; i < end; i++ {
		need += n.length(i, end)
	}
	cols := n.l.cols
	from, x := j, 0
	length := n.length(from, end)
	for ; need > 0; rows++ {
		want := min(cols, need)
		if want == cols {
			row, last := from, x+cols-1
			if last >= length {
				row, last = row+1, last-length
			}
			if n.row(row).cells[last].isWide() {
				want--
			}
		}
		need -= want
		dst := n.blank()
		if write && want < cols && j+rows < end {
			copy(dst, n.row(j + rows).cells[:cols])
		}
		for at := 0; at < want; {
			if x == length {
				from, x = from+1, 0
				length = n.length(from, end)
			}
			k := min(want-at, length-x)
			if write {
				copy(dst[at:], n.row(from).cells[x:x+k])
			}
			at, x = at+k, x+k
		}
		if write {
			if want < cols {
				dst[want] = 0
			}
			n.put(rows, dst)
		}
	}
	return rows
}

// blank returns room for a row of empty cells.
func (n *lineLayout) blank() []cell {
	if cap(n.dst) < n.l.cols {
		n.dst = make([]cell, n.l.cols)
	}
	n.dst = n.dst[:n.l.cols]
	clear(n.dst)
	return n.dst
}

// joinCells moves a line's rows together in more columns, writes the first rows
// of them, and returns how many there are up to the last one that is not empty.
func (n *lineLayout) joinCells(j, end, write int) (rows int) {
	cols := n.l.cols
	dst := n.blank()
	to, x := 0, n.length(j, end)
	copy(dst, n.row(j).cells[:x])
	rows = 1
	done := func() {
		if to > 0 && trimmed(dst) > 0 {
			rows = to + 1
		}
		if to < write {
			n.put(to, dst)
		}
	}
	for from := j + 1; from < end; from++ {
		length := n.length(from, end)
		for at := 0; at < length; {
			k := min(length-at, cols-x)
			copy(dst[x:], n.row(from).cells[at:at+k])
			at, x = at+k, x+k
			if x < cols {
				continue
			}
			last := dst[cols-1]
			if last.isWide() { // it does not fit
				dst[cols-1] = 0
			}
			done()
			clear(dst)
			to, x = to+1, 0
			if last.isWide() {
				dst[0], x = last, 1
			}
		}
	}
	if x > 0 && dst[x-1].isWide() {
		dst[x-1] = 0
	}
	done()
	return rows
}
