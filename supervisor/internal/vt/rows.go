package vt

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// A rowReader reads the rows of a history by their index, the oldest first. A
// packed arena is unpacked into the reader's room and stays packed, and reading
// one row behind or before the other is cheap.
type rowReader struct {
	h     *history
	arena int // where the last row was read
	first int // the index of that arena's first row
	open  [2]openArena
}

// openArena is an arena with the places of its rows.
type openArena struct {
	of    *arena
	room  []byte // of one that was unpacked
	b     []byte
	looks []storedLook
	rows  []int32 // where in b
}

// seek finds the arena that has a row.
func (r *rowReader) seek(row int) *arena {
	for row < r.first {
		r.arena--
		r.first -= r.h.arenas[r.arena].lines
	}
	for row >= r.first+r.h.arenas[r.arena].lines {
		r.first += r.h.arenas[r.arena].lines
		r.arena++
	}
	return r.h.arenas[r.arena]
}

// row returns a row, which is valid until two other arenas were read.
func (r *rowReader) row(row int) storedLine {
	a := r.seek(row)
	o := r.opened(a)
	l, _ := parseLine(o.b[o.rows[row-r.first]:])
	l.arena, l.looks = a, o.looks
	return l
}

// wrapped reports whether a row continues the one above.
func (r *rowReader) wrapped(row int) bool {
	a := r.seek(row)
	if row == r.first {
		return a.continues()
	}
	if a.starts == a.lines {
		return false
	}
	o := r.opened(a)
	return o.b[o.rows[row-r.first]]&lineWrapped != 0
}

func (r *rowReader) opened(a *arena) *openArena {
	if r.open[0].of != a {
		r.open[0], r.open[1] = r.open[1], r.open[0]
	}
	o := &r.open[0]
	if o.of == a {
		return o
	}
	o.of, o.b, o.looks = a, a.b, a.looks
	if a.packed {
		o.room, o.looks = unpack(o.room[:0], a.b)
		o.b = o.room
	}
	o.rows = o.rows[:0]
	for at := a.start; len(o.rows) < a.lines; {
		o.rows = append(o.rows, int32(at))
		size, k := binary.Uvarint(o.b[at:])
		at += k + int(size>>lineFlags)
	}
	return o
}

// starts returns how many of the rows [from, end) begin a line.
func (r *rowReader) starts(from, end int) (n int) {
	for from < end {
		a := r.seek(from)
		if from == r.first && from+a.lines <= end {
			n += a.starts
			from += a.lines
			continue
		}
		if !r.wrapped(from) {
			n++
		}
		from++
	}
	return n
}

// wideText is that of a row of which it is not known how many columns it has.
const wideText = maxSize

// textColumns returns a bound of the columns that a text form has: none takes
// less than a byte, unless a mark says so.
func textColumns(text []byte, flags int) int {
	if flags&lineASCII == 0 && bytes.IndexByte(text, markSkip) >= 0 {
		return wideText
	}
	return len(text)
}

// LimitHistory lowers the number of lines that are kept above the screen from the
// next resize on.
func (t *Term) LimitHistory(lines int) { t.hist.maxLines = min(t.hist.maxLines, lines) }

// HistoryWithin returns how many of the last n lines of the history take about so
// many bytes uncompressed, and one block more.
func (t *Term) HistoryWithin(n, bytes int) (lines int) {
	var room []byte
	for _, a := range slices.Backward(t.hist.arenas) {
		if lines >= n {
			break
		}
		size := len(a.b) - a.start
		if a.packed {
			room, _ = unpack(room[:0], a.b)
			size = len(room)
		}
		if lines += a.lines; size > bytes {
			break
		}
		bytes -= size
	}
	return min(lines, n)
}

// Cursor returns where the cursor is on the screen that is shown; x is the number
// of columns if a wrap is pending.
func (t *Term) Cursor() (x, y int) { return t.b.x, t.b.y }

// Alternate reports whether the alternate screen is shown.
func (t *Term) Alternate() bool { return t.b == &t.alt }

// Rows are the rows of a terminal's history, the oldest first, and of the screen
// that is shown. They are read one at a time, and none of them is held. Nothing
// else is done to the terminal meanwhile.
type Rows struct {
	t     *Term
	rows  rowReader
	cells []Cell
}

// Rows returns the terminal's.
func (t *Term) Rows() *Rows { return &Rows{t: t, rows: rowReader{h: &t.hist}} }

// Above is how many rows lie above the screen.
func (r *Rows) Above() int { return r.t.hist.lines }

// Len is how many rows there are.
func (r *Rows) Len() int { return r.t.hist.lines + r.t.rows }

// Wrapped reports whether the row i continues the one above.
func (r *Rows) Wrapped(i int) bool {
	if i < r.Above() {
		return r.rows.wrapped(i)
	}
	return r.t.b.row(i - r.Above()).wrapped
}

// Cells returns the cells of the row i, until Cells is called again. Empty cells of
// default look at its end are left out. The Attr of a cell is for Look.
func (r *Rows) Cells(i int) []Cell {
	t := r.t
	if t.styles.used() > max(t.styles.limit, sweepAt) || t.clusters.used() > max(t.clusters.limit, sweepAt) {
		t.tidy()
	}
	var cells []cell
	if i < r.Above() {
		t.scratch = t.storedCells(t.scratch[:0], r.rows.row(i))
		cells = t.scratch
	} else {
		cells = t.rowCells(t.b.row(i - r.Above()))
	}
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	r.cells = r.cells[:0]
	var buf [maxCluster]byte
	for _, c := range cells[:n] {
		r.cells = append(r.cells, Cell{Text: string(t.appendContent(buf[:0], c)), Width: c.width(), Attr: int(c.style())})
	}
	return r.cells
}

// Look returns the look of a cell of the row that Cells was called for last.
func (r *Rows) Look(attr int) Attr { return r.t.styles.all[attr].attr() }
