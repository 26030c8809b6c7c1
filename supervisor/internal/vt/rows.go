package vt

import (
	"bytes"
	"encoding/binary"

	"holdfast/supervisor/internal/picture"
)

// A rowReader reads the rows of a history by index, oldest first. If an arena is packed, the
// reader unpacks it into its own memory, and the arena stays packed. Reading a row near the
// last one is cheap.
type rowReader struct {
	h     *history
	arena int // arena of the last row that was read
	first int // index of the first row in that arena
	open  [2]openArena
}

// openArena is an arena with the offsets of its rows.
type openArena struct {
	of    *arena
	room  []byte // memory of an arena that was unpacked, and of its styles
	space []storedLook
	b     []byte
	looks []storedLook
	rows  []int32 // offsets of the rows in b
	known []known // by look: 1 + its number in the arena of that serial, or 0 if it is the default; for madeRow
}

// look returns style i of the arena.
func (o *openArena) look(i int) style { return o.of.style(o.looks[i]) }

// seek returns the arena that holds a row.
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

// row returns a row. It is valid until rows of two other arenas have been read.
func (r *rowReader) row(row int) storedLine {
	o, b := r.stored(row)
	l, _ := parseLine(b)
	l.arena, l.looks = o.of, o.looks
	return l
}

// stored returns the encoded bytes from a row on, and its arena. They are valid until rows of
// two other arenas have been read.
func (r *rowReader) stored(row int) (*openArena, []byte) {
	o := r.opened(r.seek(row))
	return o, o.b[o.rows[row-r.first]:]
}

// wrapped reports whether a row continues the row above.
func (r *rowReader) wrapped(row int) bool {
	a := r.seek(row)
	if row == r.first {
		return a.continues()
	}
	switch rows := a.lines - 1; {
	case a.starts == a.lines || a.starts == rows && a.continues():
		return false
	case a.starts == 0 || a.starts == 1 && !a.continues():
		return true
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
		o.room, o.space = unpack(o.room[:0], o.space[:0], a.b)
		o.b, o.looks = o.room, o.space
	}
	o.rows, o.known = o.rows[:0], o.known[:0]
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

// wideText is the bound for a row with an unknown number of columns.
const wideText = maxSize

// textColumns returns a bound of the number of columns in a text form. Each column takes at
// least one byte, unless markSkip stands for several.
func textColumns(text []byte, flags int) int {
	if flags&lineASCII == 0 && bytes.IndexByte(text, markSkip) >= 0 {
		return wideText
	}
	return len(text)
}

// LimitHistory lowers the limit of lines above the screen. The limit takes effect at the next
// resize.
func (t *Term) LimitHistory(lines int) { t.hist.maxLines = min(t.hist.maxLines, lines) }

// Cursor returns the position of the cursor on the current screen. If a wrap is pending, x is
// the number of columns.
func (t *Term) Cursor() (x, y int) { return t.b.x, t.b.y }

// Alternate reports whether the alternate screen is shown.
func (t *Term) Alternate() bool { return t.b == &t.alt }

// Rows reads the rows of a terminal's history, oldest first, and then those of the current
// screen. It holds one row at a time. The terminal must not be changed meanwhile.
type Rows struct {
	t     *Term
	rows  rowReader
	cells []Cell
}

// Rows returns a reader of the terminal's rows.
func (t *Term) Rows() *Rows { return &Rows{t: t, rows: rowReader{h: &t.hist}} }

// Above returns the number of rows above the screen.
func (r *Rows) Above() int { return r.t.hist.lines }

// Len returns the number of rows.
func (r *Rows) Len() int { return r.t.hist.lines + r.t.rows }

// Wrapped reports whether the row i continues the row above.
func (r *Rows) Wrapped(i int) bool {
	if i < r.Above() {
		return r.rows.wrapped(i)
	}
	return r.t.b.wrapped(i - r.Above())
}

// sweepAt is the number of styles or texts up to which reading rows keeps those that no row
// has any more. Each takes about 60 bytes.
const sweepAt = 1 << 16

// Cells returns the cells of the row i without the empty cells of default style at its end.
// They are valid until Cells is called again. Use Look to decode the Attr of a cell.
func (r *Rows) Cells(i int) []Cell {
	t, cells := r.t, r.packedCells(i)
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	r.cells = r.cells[:0]
	var buf [maxCluster]byte
	for _, c := range cells[:n] {
		if t.isPlaceholder(c) {
			c &^= contentMask
		}
		r.cells = append(r.cells, Cell{Text: string(t.appendContent(buf[:0], c)), Width: c.width(), Attr: int(c.style())})
	}
	return r.cells
}

// packedCells returns the cells of the row i in scratch space.
func (r *Rows) packedCells(i int) []cell {
	t := r.t
	if t.styles.used() > max(t.styles.limit, sweepAt) || t.clusters.used() > max(t.clusters.limit, sweepAt) {
		t.tidy()
	}
	if i < r.Above() {
		t.scratch = t.storedCells(t.scratch[:0], r.rows.row(i))
		return t.scratch
	}
	return t.rowCells(t.b.row(i - r.Above()))
}

// A RowPicture is a picture, or a part of one, in some rows.
type RowPicture struct {
	Row, Col, Rows, Cols int
	PNG                  []byte
}

// Pictures returns the pictures in the rows [first, end), from the top. Their files have at most room bytes
// together; cut is set if there are more.
func (r *Rows) Pictures(first, end, room int) (all []RowPicture, cut bool) {
	p := &painter{t: r.t, album: album{Shows: Shows{Formats: picture.Formats(picture.ITerm2)}}} // no format that shows placeholders
	var blocks []block
	for i := first; i < end && r.t.hasPlaced(); i++ {
		blocks = append(blocks, p.collect(0, r.packedCells(i), false, false)...)
	}
	work := maxDecoded
	for _, b := range append(blocks, p.album.blocks...) {
		data := b.picture.Load()
		if data == nil {
			continue
		}
		if work -= data.Work(b.area, 0, data.Cell); work < 0 {
			return all, true
		}
		file := data.PNG(b.area)
		if room -= len(file); room < 0 {
			return all, true
		}
		if file != nil {
			all = append(all, RowPicture{first + b.line - 1, b.x, b.area.Rows, b.area.Cols, file})
		}
	}
	return all, false
}

// Look returns the style of a cell of the row that Cells has returned last.
func (r *Rows) Look(attr int) Attr { return r.t.styles.at(styleID(attr)).attr() }
