package vt

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// A place is between two cells of a row in text form: behind so many bytes and
// columns of the row, and behind skip columns of the markSkip that begins there.
type place struct {
	row       int32 // counts from the first row of the line
	at        int32
	col, skip uint16
}

// A rowEnd is where a row ends that the next one continues, if that is not where
// its text ends: it may have fewer columns, or an empty one where a wide
// character had no room.
type rowEnd struct {
	place
	pad uint16 // empty columns behind the text
}

// A linePlan says how a line is laid out anew: where each of its rows begins, as
// the first pass has found it, so that the second one only copies.
type linePlan struct {
	j      int32 // the first row of the line, in the list
	rows   int32 // that come of it
	begun  int32 // of these, how many at the beginning are not in places: they are not kept
	places int32 // index of the first of the others in lineLayout.places; behind the last is where the line ends
	ends   int32 // index in lineLayout.ends of the line's first one
	endsTo int32 // and behind its last

	endsInHalf bool // its last column is the first half of a wide character
}

// chunks is a list that is not copied when it grows: there may be millions of places, and the
// copies of a slice would take as much memory again until they are collected.
type chunks[T any] struct {
	all []*[chunkLen]T
	n   int
}

// chunkLen is a power of two.
const chunkLen = 1 << 12

// at returns the i-th of the list.
func (c *chunks[T]) at(i int) *T { return &c.all[uint(i)/chunkLen][uint(i)%chunkLen] }

// add appends v.
func (c *chunks[T]) add(v T) {
	if c.n == len(c.all)*chunkLen {
		c.all = append(c.all, new([chunkLen]T))
	}
	*c.at(c.n) = v
	c.n++
}

// reverse puts the list into the opposite order.
func (c *chunks[T]) reverse() {
	for i, j := 0, c.n-1; i < j; i, j = i+1, j-1 {
		a, b := c.at(i), c.at(j)
		*a, *b = *b, *a
	}
}

// lineLayout lays out one line at a time: the rows [j, end) of the list. All rows
// are read and written in text form, because making cells of them and text of the
// cells takes ten times as long. Rows that are made keep what the rows in their
// places had: whether they continue the one above, and marks.
type lineLayout struct {
	l      *layout
	plans  chunks[linePlan] // of the lines that change; ascending for the second pass
	places chunks[place]
	ends   chunks[rowEnd]
	fits   []uint64 // a bit for each row of the history that has no more columns than there will be
	walked lineWalk
	screen [2]encodedRow // the last rows of the screen that were read

	// Of the line that is written:
	j, end int
	wraps  bool      // the first row continues one that is not kept
	plan   int       // the next of plans
	nextAt int       // the next of ends
	above  rowReader // of the marks of the rows in whose places others are written
	made   madeRow
}

// An encodedRow is a row of the screen in text form.
type encodedRow struct {
	j    int // 1 + that in the list
	text []byte
	runs []run
	flat bool
	room []byte
	list []run
}

// A textRow is a row of the list in text form.
type textRow struct {
	text  []byte
	ascii bool       // each byte is a column, and nothing but default blanks follows
	arena *openArena // of a row of the history
	runs  []byte     // there: as they are held
	list  []run      // on the screen
}

// row returns the j-th row, which is valid until two others were read.
func (n *lineLayout) row(j int) (r textRow) {
	l := n.l
	if l.inHistory(j) {
		o, b := l.rows.stored(l.from + j)
		p := lineParts(b)
		return textRow{text: p.text, ascii: p.flags&lineASCII != 0, arena: o, runs: p.runs}
	}
	s := l.screenRow(j)
	if s == nil {
		return textRow{ascii: true}
	}
	c := &n.screen[j&1]
	if c.j != j+1 {
		c.j, c.text, c.runs, c.flat = j+1, s.text, s.runs, s.ascii
		if s.inCells || s.fill != 0 {
			c.room, c.list, _, c.flat = l.t.encode(c.room[:0], c.list[:0], l.t.rowCells(s))
			c.text, c.runs = c.room, c.list
		}
	}
	return textRow{text: c.text, ascii: c.flat, list: c.runs}
}

// joined returns how many rows come of a line in more columns, and keeps its plan.
func (n *lineLayout) joined(j, end int) int {
	w := n.walk(j, end)
	if !w.blank {
		w.content = w.rows - 1
	}
	// A wide character that is the last thing of all and has no second half is dropped.
	if p, c := w.end, w.cutWide; p.col == 0 && c.row == p.row-1 && int(c.col) == n.l.oldCols-1 || w.blank && c.row == p.row && c.col+1 == p.col {
		w.end, w.content = c, w.cutContent
	}
	rows := max(w.content+1, 1)
	if rows < w.rows { // those at the end have no content
		n.places.n -= w.rows - rows - 1
		if p := n.places.at(n.places.n - 1); p.row > w.end.row || p.row == w.end.row && p.col > w.end.col {
			*p = w.end
		}
	} else {
		n.places.add(w.end)
	}
	n.keep(j, rows, w)
	return rows
}

// split returns how many rows come of a line in fewer columns, and keeps its plan. Of its last
// row it returns how many columns there are, and up to which the content extends.
func (n *lineLayout) split(j, end int) (rows, columns, content int) {
	w := n.walk(j, end)
	for rows = w.rows; rows > 0; rows-- {
		k := n.places.n - 1
		if p := n.places.at(k); p.row < w.end.row || p.col < w.end.col {
			break
		}
		n.places.n = k
	}
	n.places.add(w.end)
	n.keep(j, rows, w)
	columns, content = w.x, int(w.end.col)
	if w.endsInHalf() { // it counts with its second half
		columns, content = columns+1, content+1
	}
	return rows, columns, content
}

// endsInHalf reports whether the row that was read last ends with the first half of a wide character.
func (w *lineWalk) endsInHalf() bool { return w.cutWide.row == w.row && int(w.cutWide.col) == w.x-1 }

func (n *lineLayout) keep(j, rows int, w *lineWalk) {
	n.plans.add(linePlan{int32(j), int32(rows), int32(w.begun), int32(w.places), int32(w.ends), int32(n.ends.n), w.endsInHalf() && w.x == n.l.oldCols})
}

// forget drops the plan that was made last.
func (n *lineLayout) forget() {
	n.plans.n--
	p := n.plans.at(n.plans.n)
	n.places.n, n.ends.n = int(p.places), int(p.ends)
}

// A lineWalk reads a line and finds where its rows begin in other columns.
type lineWalk struct {
	n      *lineLayout
	cols   int
	places int // index of the line's first place
	ends   int
	begun  int // places that were dropped
	rows   int // that were begun
	d      int // columns that the last one has

	// Of the row that is read:
	row   int32
	x     int   // columns that have been read
	last  bool  // the row is the last one of the line
	until int   // limit of the columns that are read; without limit unless the next row begins with a wide character
	after place // if blank, the place from which on the text has no content

	blank      bool  // the text that was read last has no content
	content    int   // if blank, the row that has the last content; -1 is none
	end        place // behind the content of the line's last row
	cutWide    place // the last wide character whose second half is not its own; its row is -1 if there is none
	cutContent int   // content before it
}

// walk reads the line [j, end). It keeps where the rows of other columns begin, and which of
// those that are read end elsewhere than their text.
func (n *lineLayout) walk(j, end int) *lineWalk {
	l := n.l
	w := &n.walked
	*w = lineWalk{n: n, cols: l.cols, places: n.places.n, ends: n.ends.n, blank: true, content: -1, cutWide: place{row: -1}}
	w.begin(place{})
	r := n.row(j)
	for i := j; i < end; i++ {
		w.row, w.x, w.until = int32(i-j), 0, wideText
		cols := l.oldCols
		var next textRow
		if w.last = i == end-1; w.last {
			w.blankFrom(place{row: w.row})
			w.after = place{row: w.row}
		} else if next = n.row(i + 1); beginsWide(next.text) {
			w.until = cols - 1
		}
		var p place
		if r.ascii {
			p = w.flat(r.text)
		} else {
			p = w.text(r.text)
		}
		if w.last {
			if w.end = p; w.blank {
				w.end = w.after
			}
			break
		}
		if w.x <= w.until && w.until < cols {
			cols--
		}
		if pad := cols - w.x; w.x != l.oldCols || int(p.at) < len(r.text) {
			n.ends.add(rowEnd{p, uint16(max(pad, 0))})
			if pad > 0 {
				w.blankFrom(p)
				w.columns(p, pad, 0, 0)
			}
		}
		r = next
	}
	return w
}

// begin begins a row of the result.
func (w *lineWalk) begin(p place) {
	n := w.n
	// No more rows than these are kept, whatever comes of the lines above. The rows of the
	// line's last row come on top, because split drops those that turn out to have no content.
	if most := n.l.max + n.l.height + n.l.oldCols/w.cols + 3; n.places.n-w.places >= 2*most+1024 {
		drop := n.places.n - w.places - most
		for i := range most {
			*n.places.at(w.places + i) = *n.places.at(w.places + drop + i)
		}
		n.places.n -= drop
		w.begun += drop
	}
	n.places.add(p)
	w.rows++
	w.d = 0
}

// blankFrom says that the text from p on has no content.
func (w *lineWalk) blankFrom(p place) {
	if !w.blank {
		w.blank, w.content, w.after = true, w.rows-1, p
	}
}

// columns counts columns from p on, of so many bytes each or of a markSkip.
func (w *lineWalk) columns(p place, count, bytes, skip int) {
	for {
		k := min(count, w.cols-w.d)
		w.d, count = w.d+k, count-k
		if count == 0 {
			return
		}
		p.at += int32(k * bytes)
		p.col += uint16(k)
		p.skip += uint16(k * skip)
		w.begin(p)
	}
}

// flat reads a row of which each byte is a column, and returns where it ends.
func (w *lineWalk) flat(text []byte) place {
	content, end := len(text), len(text)
	if end > 0 && text[end-1] == markEmpty {
		content = len(bytes.TrimRight(text, "\x00"))
		if end > w.until {
			end = w.until
		}
	}
	w.x = len(text)
	if content > 0 {
		w.blank = false
		w.columns(place{row: w.row}, content, 1, 0)
	}
	if w.last {
		return place{w.row, int32(content), uint16(content), 0}
	}
	if end > content {
		p := place{w.row, int32(content), uint16(content), 0}
		w.blankFrom(p)
		w.columns(p, end-content, 1, 0)
	}
	w.x = end
	return place{w.row, int32(end), uint16(end), 0}
}

// text reads a row in any text form, and returns where it ends.
func (w *lineWalk) text(text []byte) place {
	d, cols := w.d, w.cols
	single := -1           // the row of the last character that has nothing to combine with, if that is behind others
	at, x, cut := 0, 0, -1 // cut is the column behind a wide character without its second half
	for at < len(text) {
		b := text[at]
		switch {
		case b >= utf8.RuneSelf:
			ch, size := rune(0), 2
			switch {
			case b < 0xe0 && at+1 < len(text):
				ch = rune(b&0x1f)<<6 | rune(text[at+1]&0x3f)
			case b < 0xf0 && at+2 < len(text):
				ch, size = rune(b&0x0f)<<12|rune(text[at+1]&0x3f)<<6|rune(text[at+2]&0x3f), 3
			default:
				ch, size = utf8.DecodeRune(text[at:])
			}
			width := tableWidth(ch)
			if width > 0 {
				if d+width > cols {
					w.begin(place{w.row, int32(at), uint16(x), 0})
					d = 0
				}
				w.blank = false
				x, d = x+width, d+width
			}
			at += size
		case b > markLast:
			k := 1
			if at+8 <= len(text) {
				k = max(asciiWord(load64(text[at:])), 1)
			}
			if d == cols {
				w.begin(place{w.row, int32(at), uint16(x), 0})
				d = 0
			}
			k = min(k, cols-d)
			w.blank = false
			at, x, d = at+k, x+k, d+k
		case b == markEmpty && x < w.until && x != cut:
			if !w.blank {
				w.blank, w.content, w.after = true, w.rows-1, place{w.row, int32(at), uint16(x), 0}
			}
			if d == cols {
				w.begin(place{w.row, int32(at), uint16(x), 0})
				d = 0
			}
			at, x, d = at+1, x+1, d+1
		default:
			w.d = d
			p := place{w.row, int32(at), uint16(x), 0}
			size, columns, skip, kind := 1, 1, 0, b
			switch b {
			case markCell:
				size = 3 + int(text[at+2])
			case markSkip:
				size, columns, skip = 3, int(text[at+1])|int(text[at+2])<<8, 1
			}
			if x+columns > w.until && (b == markEmpty || b == markSkip) { // the last column is left out
				columns = w.until - x
				if b == markEmpty || columns == 0 {
					w.x = x
					return p
				}
				w.blankFrom(p)
				w.columns(p, columns, 0, 1)
				w.x = x + columns
				return place{w.row, int32(at), uint16(w.x), uint16(columns)}
			}
			if kind == markCell && size > 3 {
				wide, before := text[at+1] == 2, w.rows-1
				if w.d == w.cols || wide && w.d == w.cols-1 {
					w.begin(p)
				}
				switch {
				case wide:
					cut = x + 1
					w.cutWide, w.cutContent = p, w.content
					if !w.blank {
						w.cutContent = before
					}
					w.blank = false
				case text[at+1] == 0 && w.last: // it is left out unless more content follows
					if w.blank && single >= 0 {
						w.content = max(w.content, single)
					}
					if single = -1; w.d > 0 {
						single = w.rows - 1
					}
					if !w.blank {
						w.blank, w.content = true, before
					}
					w.after = p
				case text[at+1] == 0 && w.d == 0: // a row of it alone counts as empty
					if !w.blank {
						w.blank, w.content, w.after = true, before, p
					}
				default:
					w.blank = false
				}
				at, x, d = at+size, x+1, w.d+1
				continue
			}
			if !w.blank && x == cut { // what is counted as the second half
				w.blankFrom(place{w.row, int32(at + size), uint16(x + 1), 0})
				if columns > 1 {
					w.after = place{w.row, int32(at), uint16(x + 1), 1}
				}
			} else {
				w.blankFrom(p)
			}
			w.columns(p, columns, 1-skip, skip)
			at, x, d = at+size, x+columns, w.d
		}
	}
	w.x, w.d = x, d
	return place{w.row, int32(at), uint16(x), 0}
}

// asciiWord returns how many of eight bytes at the beginning are printable ASCII.
func asciiWord(w uint64) int {
	return bits.TrailingZeros64((w|(w-ones*0x20)|(w+ones))&highs) >> 3
}

// fit notes that the j-th row, which is in the history, has no more columns than there will be.
func (n *lineLayout) fit(j int) {
	if n.fits == nil {
		n.fits = make([]uint64, n.l.old.lines/64+1)
	}
	n.fits[(n.l.from+j)/64] |= 1 << uint((n.l.from+j)%64)
}

// fitting reports whether a row has no more columns than there will be, if that is known.
func (n *lineLayout) fitting(j int, r *textRow) bool {
	i := n.l.from + j
	return n.l.cols >= n.l.oldCols || n.fits != nil && i/64 < len(n.fits) && n.fits[i/64]>>uint(i%64)&1 != 0 || textColumns(r.text, 0) <= n.l.cols
}

// write writes the line [j, end): as it was planned, or else as it is.
func (n *lineLayout) write(j, end int) {
	l := n.l
	n.j, n.end, n.wraps = j, end, l.wrapped(j)
	n.made.j = -1
	if l.inHistory(j) {
		l.rows.seek(l.from + j)
		n.above.arena, n.above.first = l.rows.arena, l.rows.first
	}
	for n.plan < n.plans.n && int(n.plans.at(n.plan).j) < j {
		n.plan++
	}
	if n.plan == n.plans.n || int(n.plans.at(n.plan).j) != j {
		n.asIs(0)
		return
	}
	p := n.plans.at(n.plan)
	n.nextAt = int(p.ends)
	for i := range int(p.rows) {
		if i >= int(p.begun) {
			k := int(p.places) + i - int(p.begun)
			n.writeRow(p, i, *n.places.at(k), *n.places.at(k + 1))
			continue
		}
		if wrapped, _, listed := n.next(i); listed {
			l.destination(wrapped)
		}
	}
	if l.cols < l.oldCols {
		n.asIs(int(p.rows))
	}
}

// writeRow writes the content between two places as the i-th row of the line.
func (n *lineLayout) writeRow(p *linePlan, i int, from, to place) {
	wrapped, marks, listed := n.next(i)
	if !listed {
		return
	}
	kept, above := n.l.destination(wrapped)
	if !kept {
		return
	}
	m := &n.made
	m.begin(n, above)
	for ; from.row < to.row; from = (place{row: from.row + 1}) {
		m.load(n, n.j+int(from.row))
		end := place{from.row, int32(len(m.src.text)), uint16(n.l.oldCols), 0}
		if e := n.rowEnd(p, from.row); e != nil {
			end = e.place
			end.col += e.pad
		}
		n.copy(p, from, end)
	}
	if from != to {
		m.load(n, n.j+int(from.row))
		n.copy(p, from, to)
	}
	if n.l.cols < n.l.oldCols && i == int(p.rows)-1 {
		if p.endsInHalf && m.gap == 0 && m.n < n.l.cols { // xterm.js copies its second half, which it does not have, as a cell of width 0
			m.half(n)
		}
		if n.j+i == n.end-1 {
			n.leftOver(to)
		}
	}
	m.finish(n, wrapped, marks)
}

// rowEnd returns where a row of the line ends, if that is not where its text does.
func (n *lineLayout) rowEnd(p *linePlan, row int32) *rowEnd {
	for n.nextAt < int(p.endsTo) && n.ends.at(n.nextAt).row < row {
		n.nextAt++
	}
	if n.nextAt < int(p.endsTo) && n.ends.at(n.nextAt).row == row {
		return n.ends.at(n.nextAt)
	}
	return nil
}

// copy appends the content between two places of the row that was loaded.
func (n *lineLayout) copy(p *linePlan, from, to place) {
	e := n.rowEnd(p, from.row)
	if e == nil || to.col <= e.col {
		n.made.copy(n, from, to)
		return
	}
	if from.col < e.col {
		n.made.copy(n, from, e.place)
	}
	n.made.gap += int(to.col - max(from.col, e.col))
}

// leftOver appends the cells that xterm.js leaves behind the end of a line that has as many rows as
// before: the looks of blanks of its last row, which was loaded.
func (n *lineLayout) leftOver(end place) {
	m, cols := &n.made, n.l.cols
	have := m.n + m.gap
	if end.row != int32(n.end-1-n.j) || have >= cols {
		return
	}
	m.load(n, n.end-1)
	from := cutText(m.src.text, place{row: end.row}, have+1)
	if to := cutText(m.src.text, from, cols); to.col > from.col {
		m.gap++
		m.copy(n, from, to)
	}
}

// asIs writes the rows from the i-th one on as they are, as far as there are
// columns for them.
func (n *lineLayout) asIs(i int) {
	l, m := n.l, &n.made
	for ; n.j+i < n.end; i++ {
		j := n.j + i
		wrapped, marks, listed := n.next(i)
		if !listed {
			continue
		}
		kept, above := l.destination(wrapped)
		if !kept {
			continue
		}
		if !above && !l.inHistory(j) {
			r := row{w: l.cols, ascii: true}
			if s := l.screenRow(j); s != nil {
				r = *s
				l.t.widen(&r, l.cols)
			}
			r.wrapped, r.marks = wrapped, marks.list
			l.screen = append(l.screen, r)
			continue
		}
		m.begin(n, above)
		m.load(n, j)
		to := place{at: int32(len(m.src.text)), col: wideText}
		if !n.fitting(j, &m.src) {
			to = cutText(m.src.text, place{}, l.cols)
		}
		m.copy(n, place{}, to)
		if int(to.at) < len(m.src.text) && int(to.col) < l.cols { // the first half of a wide character
			m.looks(n, int(to.col), int(to.col)+1)
			cell := m.src.text[to.at:]
			cell = cell[:cellSize(cell)]
			m.text = append(append(m.text, markCell, 2, byte(len(cell))), cell...)
			m.ascii = false
		}
		m.finish(n, wrapped, marks)
	}
}

// cellSize returns the bytes of the cell that a text form begins with, which is no mark.
func cellSize(text []byte) int {
	_, size := utf8.DecodeRune(text)
	for size < len(text) && combines(text[size:]) {
		_, k := utf8.DecodeRune(text[size:])
		size += k
	}
	return size
}

// cutText returns the place of a column in a text form, at or behind from; it is that of the end
// if there are less, and before a wide character that is on both sides.
func cutText(text []byte, from place, cols int) place {
	p := from
	for int(p.at) < len(text) {
		size, columns := 1, 1
		switch b := text[p.at]; {
		case b == markCell:
			size = 3 + int(text[p.at+2])
		case b == markSkip:
			size, columns = 3, int(text[p.at+1])|int(text[p.at+2])<<8-int(p.skip)
			if int(p.col)+columns > cols {
				k := uint16(cols) - p.col
				p.col, p.skip = p.col+k, p.skip+k
				return p
			}
		case b >= utf8.RuneSelf:
			var ch rune
			ch, size = utf8.DecodeRune(text[p.at:])
			columns = tableWidth(ch)
		}
		if int(p.col)+columns > cols {
			return p
		}
		p = place{p.row, p.at + int32(size), p.col + uint16(columns), 0}
	}
	return p
}

// rowMarks are the marks of a row. A row of the history has them encoded, and a row of the screen has a list.
type rowMarks struct {
	held []byte
	list []shellMark
}

// next returns the marks of the i-th row that the line is split into, and whether that row wraps. listed is false if the
// row was cut off at the bottom.
func (n *lineLayout) next(i int) (wrapped bool, marks rowMarks, listed bool) {
	j := n.j + i
	if j >= n.end {
		return true, rowMarks{}, true
	}
	l := n.l
	if l.inHistory(j) {
		if a := n.above.seek(l.from + j); a.marked {
			_, b := n.above.stored(l.from + j)
			marks.held = lineParts(b).marks
		}
	} else if r := l.screenRow(j); r != nil {
		marks.list = r.marks
	}
	wrapped = i > 0 || n.wraps
	if listed = j < l.length; listed && l.out < l.skip && j > 0 && !wrapped {
		l.t.hist.first++
	}
	return wrapped, marks, listed
}

// A madeRow is a row that is put together, and the row from which its content is copied.
type madeRow struct {
	text  []byte
	n     int    // columns
	gap   int    // empty columns behind them, if anything follows
	ascii bool   // each byte is a column
	look  uint32 // of the last column: 0 is the default, others 1 + the number in the arena, or a styleID

	above bool // it goes to the history: to this arena, which has had so many looks and links
	arena *arena
	had   [2]int
	runs  []byte // as they are held
	count int    // of them
	last  int    // column of the last one
	list  []run  // of a row that goes to the screen

	j        int // that is copied from; -1 is none
	src      textRow
	left     int // of its runs that were not read
	nextCol  int // where the next one is, wideText if there is none
	nextLook int
	srcLook  int // -1 is the default
}

func (m *madeRow) begin(n *lineLayout, above bool) {
	m.text, m.runs, m.list = m.text[:0], m.runs[:0], m.list[:0]
	m.n, m.gap, m.ascii, m.look, m.count, m.last = 0, 0, true, 0, 0, 0
	if m.above = above; above {
		m.arena = n.l.t.hist.newest()
		m.had = [2]int{len(m.arena.looks), len(m.arena.links)}
	}
}

// load makes the j-th row of the list the one that is copied from. If it is that already,
// the next text that is copied lies behind the last one.
func (m *madeRow) load(n *lineLayout, j int) {
	if m.j == j {
		return
	}
	m.j, m.src, m.srcLook = j, n.row(j), -1
	m.left = len(m.src.list)
	if m.src.arena != nil && len(m.src.runs) > 0 {
		v, k := binary.Uvarint(m.src.runs)
		m.left, m.src.runs = int(v), m.src.runs[k:]
	}
	m.nextCol = 0
	m.readRun()
}

// readRun reads the next run of the row that is copied from.
func (m *madeRow) readRun() {
	if m.left == 0 {
		m.nextCol = wideText + 1
		return
	}
	m.left--
	if m.src.arena == nil {
		u := m.src.list[len(m.src.list)-m.left-1]
		m.nextCol, m.nextLook = u.col(), int(u.style())
		return
	}
	b := m.src.runs
	if len(b) > 1 && b[0]|b[1] < 0x80 {
		m.nextCol, m.nextLook, m.src.runs = m.nextCol+int(b[0]), int(b[1]), b[2:]
		return
	}
	col, k := binary.Uvarint(b)
	look, k2 := binary.Uvarint(b[k:])
	m.nextCol, m.nextLook, m.src.runs = m.nextCol+int(col), int(look), b[k+k2:]
}

// copy appends the content between two places of the row that was loaded.
func (m *madeRow) copy(n *lineLayout, from, to place) {
	if from.at == to.at && from.skip == to.skip {
		return
	}
	m.looks(n, int(from.col), int(to.col))
	m.n += int(to.col - from.col)
	text := m.src.text
	if from.at == to.at {
		m.skip(int(to.skip - from.skip))
		return
	}
	if from.skip > 0 {
		m.skip((int(text[from.at+1]) | int(text[from.at+2])<<8) - int(from.skip))
		from.at += 3
	}
	text = text[from.at:to.at]
	m.ascii = m.ascii && (m.src.ascii || asciiRun(text) == len(text))
	m.text = append(m.text, text...)
	if to.skip > 0 {
		m.skip(int(to.skip))
	}
}

// skip appends empty columns.
func (m *madeRow) skip(columns int) {
	m.ascii = false
	m.text = append(m.text, markSkip, byte(columns), byte(columns>>8))
}

// half appends the second half of a wide character in the default style.
func (m *madeRow) half(n *lineLayout) {
	m.change(n, 0)
	m.text, m.n, m.ascii = append(m.text, markSpacer), m.n+1, false
}

// looks appends the looks of the columns [from, to) of the row that was loaded.
func (m *madeRow) looks(n *lineLayout, from, to int) {
	if m.gap > 0 {
		m.change(n, 0)
		if m.gap < 8 {
			for range m.gap {
				m.text = append(m.text, markEmpty)
			}
		} else {
			m.skip(m.gap)
		}
		m.n, m.gap = m.n+m.gap, 0
	}
	at := m.n
	for m.nextCol <= from {
		m.srcLook = m.nextLook
		m.readRun()
	}
	m.change(n, m.lookOf(n, m.srcLook))
	for m.nextCol < to {
		if m.above && m.src.arena != nil {
			m.knownLooks(at-from, to)
			if m.nextCol >= to {
				break
			}
		}
		m.n = at + m.nextCol - from
		m.srcLook = m.nextLook
		m.change(n, m.lookOf(n, m.srcLook))
		m.readRun()
	}
	m.n = at
}

// knownLooks appends the looks of the columns before to, until a run has a look or a number that is
// not simple. Rows may have a run in each column, so that most of the time of a resize is spent here.
// shift is added to a column of the row that was loaded.
func (m *madeRow) knownLooks(shift, to int) {
	from, out, known, serial := m.src.runs, m.runs, m.src.arena.known, m.arena.serial
	left, col, look, last := m.left, m.nextCol, m.nextLook, m.last
	for look < len(known) && left > 0 && len(from) > 1 && from[0]|from[1] < 0x80 {
		k := known[look]
		d, number := uint(col+shift-last), k.index-1
		if k.serial != serial || number >= 0x80 || d >= 0x80 {
			break
		}
		if k.index != m.look {
			m.look = k.index
			out = append(out, byte(d), byte(number))
			m.count++
			last = col + shift
		}
		m.srcLook = look
		col, look, from = col+int(from[0]), int(from[1]), from[2:]
		left--
		if col >= to {
			break
		}
	}
	m.src.runs, m.runs = from, out
	m.left, m.nextCol, m.nextLook, m.last = left, col, look, last
}

// change makes the columns from n on have a look.
func (m *madeRow) change(n *lineLayout, look uint32) {
	if look == m.look {
		return
	}
	m.look = look
	if !m.above {
		m.list = append(m.list, newRun(m.n, styleID(look)))
		return
	}
	number := look - 1
	if look == 0 {
		number = n.l.looks.number(&n.l.t.hist, m.arena, storedLook{}, nil)
	}
	m.count++
	if d := m.n - m.last; d < 0x80 && number < 0x80 {
		m.runs = append(m.runs, byte(d), byte(number))
	} else {
		m.runs = binary.AppendUvarint(m.runs, uint64(d))
		m.runs = binary.AppendUvarint(m.runs, uint64(number))
	}
	m.last = m.n
}

// lookOf translates a look of the row that is copied from, to that of the row that is made. Both are numbers in an arena
// if the row is in the history, and a styleID otherwise.
func (m *madeRow) lookOf(n *lineLayout, look int) uint32 {
	if look < 0 {
		return 0
	}
	l := n.l
	o := m.src.arena
	if o == nil {
		if !m.above || look == 0 {
			return uint32(look)
		}
		s := l.t.styles.at(styleID(look))
		return 1 + l.looks.number(&l.t.hist, m.arena, storedLook{fg: s.fg, bg: s.bg, extended: s.extended}, s.link)
	}
	if !m.above {
		return uint32(l.t.styles.id(o.look(look)))
	}
	if len(o.known) < len(o.looks) {
		o.known = append(o.known[:0], make([]known, len(o.looks))...)
	}
	k := &o.known[look]
	if k.serial != m.arena.serial {
		*k = known{serial: m.arena.serial}
		s := o.looks[look]
		var link *link
		if s.link > 0 {
			link, s.link = o.of.links[s.link-1], 0
		}
		if link != nil || s != (storedLook{}) {
			k.index = 1 + l.looks.number(&l.t.hist, m.arena, s, link)
		}
	}
	return k.index
}

// finish puts the row where it belongs.
func (m *madeRow) finish(n *lineLayout, wrapped bool, marks rowMarks) {
	l := n.l
	if k := len(m.text); k > 0 && m.text[k-1] == markEmpty { // the end needs a check when the row is drawn
		m.ascii = false
	}
	if m.above {
		l.push(m, wrapped, marks)
		return
	}
	if marks.held != nil {
		marks.list, _ = parseMarks(marks.held)
	}
	r := row{w: l.cols, wrapped: wrapped, marks: marks.list}
	if m.ascii {
		r.text, r.runs, r.n, r.ascii = bytes.Clone(m.text), slices.Clone(m.list), len(m.text), true
	} else {
		r.cells = l.t.decode(make([]cell, 0, l.cols), m.text, m.list)
		r.n, r.inCells = len(r.cells), true
	}
	l.screen = append(l.screen, r)
}

// A lookTable finds the number that a look has in the arena that is written to.
type lookTable struct {
	serial uint32 // of the arena
	count  int
	slots  []known // by open addressing: in the arena of that serial, the number
}

// number returns the number of a look in the arena a of h, the newest, which gets it if it
// does not have it.
func (t *lookTable) number(h *history, a *arena, s storedLook, l *link) uint32 {
	if t.serial != a.serial || 2*(t.count+1) > len(t.slots) {
		if 4*(len(a.looks)+1) > len(t.slots) {
			t.slots = make([]known, max(1<<12, 4<<bits.Len(uint(len(a.looks)))))
		} else if t.serial == a.serial {
			clear(t.slots)
		}
		t.serial, t.count = a.serial, 0
		for i, s := range a.looks {
			var l *link
			if s.link > 0 {
				l, s.link = a.links[s.link-1], 0
			}
			if slot := t.find(a, s, l); slot.serial != t.serial {
				*slot = known{t.serial, uint32(i)}
				t.count++
			}
		}
	}
	slot := t.find(a, s, l)
	if slot.serial != t.serial {
		*slot = known{t.serial, h.addLook(a, s, l)}
		t.count++
	}
	return slot.index
}

// find returns the slot of a look, or the free one where it belongs.
func (t *lookTable) find(a *arena, s storedLook, l *link) *known {
	v := style{fg: s.fg, bg: s.bg, extended: s.extended, link: l}
	mask := uint32(len(t.slots) - 1)
	for i := v.hash() & mask; ; i = (i + 1) & mask {
		k := &t.slots[i]
		if k.serial != t.serial {
			return k
		}
		o := a.looks[k.index]
		if o.fg == s.fg && o.bg == s.bg && o.extended == s.extended && (o.link == 0) == (l == nil) && (l == nil || a.links[o.link-1] == l) {
			return k
		}
	}
}
