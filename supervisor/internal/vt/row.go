package vt

import "unicode/utf8"

// A row is one line of a screen, in one of two forms. The text form holds the text that was
// printed from left to right, and the columns in which the style changes. In the cell form any
// column can be changed. Columns from n on are empty and have the style fill.
type row struct {
	text    []byte // text form: see the marks below
	runs    []run  // text form: styles by ascending column; before the first run the style is the default
	cells   []cell // cell form: the first n are in use
	n       int    // columns in use
	w       int    // columns of the row; on the alternate screen they may be more than are visible, after it was shrunk
	fill    styleID
	inCells bool // cell form
	ascii   bool // text form, and one byte is one column
	wrapped bool // the row continues the row above
	marks   []shellMark
}

// run begins a style at the column col.
type run uint64

func newRun(col int, s styleID) run { return run(col)<<32 | run(s) }
func (r run) col() int              { return int(r >> 32) }
func (r run) style() styleID        { return styleID(r & (1<<32 - 1)) }

// The text form of rows and of history lines is UTF-8. A character that the width table calls
// wide is followed by its second half in the same style. A character without width shares the
// cell before it. Every other cell is encoded by a mark.
const (
	markEmpty  = 0x00 // an empty cell
	markSpacer = 0x01 // an empty cell without width
	markCell   = 0x02 // width, length, text: one cell, without a second half
	markSkip   = 0x03 // low byte, high byte: number of empty cells
	markLast   = markSkip
)

// maxCluster bounds the bytes of text in one cell. A character that would exceed it is
// dropped. The longest emoji of Unicode 15 has 35 bytes.
const maxCluster = 255

// clear empties the row and gives it the style fill.
func (r *row) clear(fill styleID) {
	r.text, r.runs, r.cells = r.text[:0], r.runs[:0], r.cells[:0]
	r.n, r.fill = 0, fill
	r.inCells, r.ascii, r.wrapped, r.marks = false, true, false, nil
}

// erase empties the row as clear does, but keeps its marks and whether it continues the row
// above: shells set their marks before they erase the remaining screen.
func (r *row) erase(fill styleID) {
	w, m := r.wrapped, r.marks
	r.clear(fill)
	r.wrapped, r.marks = w, m
}

// lastStyle returns the style of the last column in use. The row must be in text form.
func (r *row) lastStyle() styleID {
	if k := len(r.runs); k > 0 {
		return r.runs[k-1].style()
	}
	return 0
}

var manyEmpty = make([]byte, 64) // each is markEmpty

// prepare makes room in the text form for text of style s at column x. x must be at least n.
func (r *row) prepare(x int, s styleID) {
	if r.text == nil {
		r.text = make([]byte, 0, r.w)
	}
	if x > r.n {
		if r.lastStyle() != r.fill {
			r.runs = append(r.runs, newRun(r.n, r.fill))
		}
		for r.n < x {
			gap := manyEmpty[:min(x-r.n, len(manyEmpty))]
			r.text = appendText(r.text, gap)
			r.n += len(gap)
		}
	}
	if r.lastStyle() != s {
		r.runs = append(r.runs, newRun(x, s))
	}
}

// covered reports whether the columns [x0, x1) have the style s. The row must be in text form.
// Columns behind the last one in use get the style of the text that is printed there next.
func (r *row) covered(x0, x1 int, s styleID) bool {
	k := len(r.runs)
	for k > 0 && r.runs[k-1].col() > x0 {
		k--
		if r.runs[k].col() < x1 {
			return false
		}
	}
	if k == 0 {
		return s == 0
	}
	return r.runs[k-1].style() == s
}

// putASCII writes p at column x. p must be printable ASCII and must fit into the row, which must be
// in cell form.
func (r *row) putASCII(x int, p []byte, s styleID) {
	r.reach(x + len(p))
	dst := r.cells[x : x+len(p)]
	sb := s.cell()
	for len(p) >= 8 && len(dst) >= 8 { // one load, eight stores, no bounds checks
		w := load64(p)
		d := (*[8]cell)(dst)
		d[0] = cell(w&0xff) | sb
		d[1] = cell(w>>8&0xff) | sb
		d[2] = cell(w>>16&0xff) | sb
		d[3] = cell(w>>24&0xff) | sb
		d[4] = cell(w>>32&0xff) | sb
		d[5] = cell(w>>40&0xff) | sb
		d[6] = cell(w>>48&0xff) | sb
		d[7] = cell(w>>56) | sb
		p, dst = p[8:], dst[8:]
	}
	for i, c := range p {
		dst[i] = cell(c) | sb
	}
}

// reach extends the cell form to at least n columns in use.
func (r *row) reach(n int) {
	if n <= r.n {
		return
	}
	r.cells = r.cells[:n]
	f := r.fill.cell()
	for i := r.n; i < n; i++ {
		r.cells[i] = f
	}
	r.n = n
}

// at returns the cell of column x. The row must be in cell form.
func (r *row) at(x int) cell {
	if x < r.n {
		return r.cells[x]
	}
	return r.fill.cell()
}

// set writes one cell. The row must be in cell form.
func (r *row) set(x int, c cell) {
	r.reach(x + 1)
	r.cells[x] = c
}

// cut drops the columns from x on, which then have the style fill. The row must be in cell
// form.
func (r *row) cut(x int, fill styleID) {
	if fill != r.fill {
		r.reach(min(x, r.w))
		r.fill = fill
	}
	if x < r.n {
		r.cells, r.n = r.cells[:x], x
	}
	if r.n == 0 {
		r.erase(fill)
	}
}

// cutText drops the columns from x on, which then have the style fill. The row must be in text
// form, and cutsText must report true for x.
func (r *row) cutText(x int, fill styleID) {
	switch {
	case x == 0:
		r.erase(fill)
		return
	case x < r.n:
		r.text, r.n = r.text[:x], x
		for k := len(r.runs); k > 0 && r.runs[k-1].col() >= x; k-- {
			r.runs = r.runs[:k-1]
		}
	case x > r.n && fill != r.fill:
		r.prepare(x, r.fill)
	}
	r.fill = fill
}

// cutsText reports whether the text form can be cut at column x.
func (r *row) cutsText(x int) bool { return r.ascii || x == 0 || x >= r.n }

// toCells converts the row to the cell form.
func (t *Term) toCells(r *row) {
	if r.inCells {
		return
	}
	t.work += r.w
	if cap(r.cells) < r.w {
		r.cells = make([]cell, 0, r.w)
	}
	r.cells = t.decode(r.cells[:0], r.text, r.runs)
	r.n = len(r.cells)
	r.inCells, r.ascii = true, false
	r.text, r.runs = r.text[:0], r.runs[:0]
}

// decode appends the cells of a text form to dst.
func (t *Term) decode(dst []cell, text []byte, runs []run) []cell {
	var sb cell
	base, next := len(dst), -1
	k := 0
	if len(runs) > 0 {
		next = runs[0].col()
	}
	for i := 0; i < len(text); {
		if len(dst)-base == next {
			sb = runs[k].style().cell()
			k++
			next = -1
			if k < len(runs) {
				next = runs[k].col()
			}
		}
		b := text[i]
		if b >= 0x20 && b < utf8.RuneSelf {
			dst = append(dst, cell(b)|sb)
			i++
			continue
		}
		if b <= markLast {
			switch b {
			case markEmpty:
				dst = append(dst, sb)
				i++
			case markSpacer:
				dst = append(dst, sb|zeroCell)
				i++
			case markCell:
				n := int(text[i+2])
				dst = append(dst, t.content(text[i+3:i+3+n])|sb|widthBits(int(text[i+1])))
				i += 3 + n
			case markSkip:
				for n := int(text[i+1]) | int(text[i+2])<<8; n > 0; n-- {
					dst = append(dst, sb)
				}
				i += 3
			}
			continue
		}
		ch, n := utf8.DecodeRune(text[i:])
		switch runeWidth(ch) {
		case 0:
			if last := len(dst) - 1; last >= base {
				if dst[last].isSpacer() {
					last--
				}
				dst[last] = t.combine(dst[last], ch)
			}
		case 2:
			dst = append(dst, cell(ch)|sb|wideCell, sb|zeroCell)
		default:
			dst = append(dst, cell(ch)|sb)
		}
		i += n
	}
	return dst
}

// encode appends the text form of cells to text and runs. It returns the number of its
// columns, and whether each is one byte. Empty cells of default style at the end are left out.
func (t *Term) encode(text []byte, runs []run, cells []cell) (_ []byte, _ []run, columns int, ascii bool) {
	ascii = true
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	cells = cells[:n]
	if n > 0 && !cells[n-1].hasContent() { // a painter must look at the empty cell at the end
		ascii = false
	}
	var look styleID
	for x := 0; x < n; x++ {
		c := cells[x]
		if s := c.style(); s != look {
			runs = append(runs, newRun(x, s))
			look = s
		}
		code := rune(c & codeMask)
		if c&(clusterBit|widthMask) == 0 && code < utf8.RuneSelf {
			text = append(text, byte(code)) // 0 is markEmpty
			continue
		}
		ascii = false
		if c.isSpacer() {
			text = append(text, markSpacer)
			continue
		}
		w := c.width()
		paired := w == 2 && x+1 < n && cells[x+1] == zeroCell|look.cell()
		if t.natural(c, w) && (w == 1 || paired) {
			text = t.appendContent(text, c)
			if paired {
				x++
			}
			continue
		}
		text = append(text, markCell, byte(w), 0)
		at := len(text)
		text = t.appendContent(text, c)
		text[at-1] = byte(len(text) - at)
	}
	return text, runs, n, ascii
}

// natural reports whether decoding the cell's text gives one cell of width w, so that it needs
// no mark.
func (t *Term) natural(c cell, w int) bool {
	if c&clusterBit == 0 {
		return runeWidth(rune(c&codeMask)) == w && w > 0
	}
	for i, ch := range t.clusters.text(c) {
		want := 0
		if i == 0 {
			want = w
		}
		if runeWidth(ch) != want {
			return false
		}
	}
	return w > 0
}
