package vt

import "unicode/utf8"

// A row is one line of a screen, in one of two forms. As text it holds what was
// printed, left to right, and where the look changes; as cells it can be
// changed anywhere. Columns from n on are empty and look like fill.
type row struct {
	text    []byte // text form: see the marks below
	runs    []run  // text form: looks, by ascending column; before the first it is the default
	cells   []cell // cell form: the first n are in use
	n       int    // columns in use
	w       int    // columns there are; on the alternate screen more than are shown, once it was shrunk
	fill    styleID
	inCells bool // cell form
	ascii   bool // text form, and one byte is one column
	wrapped bool // it continues the row above
	marks   []mark
}

// run says that columns from col on look like style.
type run uint64

func newRun(col int, s styleID) run { return run(col)<<32 | run(s) }
func (r run) col() int              { return int(r >> 32) }
func (r run) style() styleID        { return styleID(r & (1<<32 - 1)) }

// Text form, of rows and of history: UTF-8. A code point that the table calls
// wide is followed by its second half, of the same look; one without width
// shares the cell before it. What is otherwise has a mark.
const (
	markEmpty  = 0x00 // an empty cell
	markSpacer = 0x01 // an empty cell without width
	markCell   = 0x02 // width, length, text: one cell, and no second half
	markSkip   = 0x03 // low byte, high byte: so many empty cells
	markLast   = markSkip
)

// maxCluster bounds the bytes of text in one cell; what would make it longer is
// dropped. The longest emoji of Unicode 15 has 35.
const maxCluster = 255

// clear empties the row and fills it with fill.
func (r *row) clear(fill styleID) {
	r.text, r.runs, r.cells = r.text[:0], r.runs[:0], r.cells[:0]
	r.n, r.fill = 0, fill
	r.inCells, r.ascii, r.wrapped, r.marks = false, true, false, nil
}

// erase is clear, but the row continues the one above as before, and has its
// marks: shells set them before they erase what is left of the screen.
func (r *row) erase(fill styleID) {
	w, m := r.wrapped, r.marks
	r.clear(fill)
	r.wrapped, r.marks = w, m
}

// lastStyle returns the look of the last column in use, in text form.
func (r *row) lastStyle() styleID {
	if k := len(r.runs); k > 0 {
		return r.runs[k-1].style()
	}
	return 0
}

// prepare makes room in the text form for bytes that take columns from x on,
// which is not before n, and look like s.
func (r *row) prepare(x int, s styleID) {
	if r.text == nil {
		r.text = make([]byte, 0, r.w)
	}
	if x > r.n {
		if r.lastStyle() != r.fill {
			r.runs = append(r.runs, newRun(r.n, r.fill))
		}
		for ; r.n < x; r.n++ {
			r.text = append(r.text, markEmpty)
		}
	}
	if r.lastStyle() != s {
		r.runs = append(r.runs, newRun(x, s))
	}
}

// covered reports whether columns [x0, x1) look like s, in text form; those
// behind the last column in use count as what is written next there.
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

// putASCII writes p, which is printable ASCII and fits, at column x.
func (r *row) putASCII(x int, p []byte, s styleID) {
	if !r.inCells {
		if x >= r.n {
			r.prepare(x, s)
			r.text = append(r.text, p...)
			r.n = x + len(p)
			return
		}
		if e := x + len(p); r.ascii && r.covered(x, e, s) {
			if e > r.n {
				r.text = append(r.text[:x], p...)
				r.n = e
			} else {
				copy(r.text[x:], p)
			}
			return
		}
		panic("vt: row not in cells")
	}
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

// reach makes at least the first n columns of the cell form be in use.
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

// at returns the cell of column x, in cell form.
func (r *row) at(x int) cell {
	if x < r.n {
		return r.cells[x]
	}
	return r.fill.cell()
}

// set writes one cell, in cell form.
func (r *row) set(x int, c cell) {
	r.reach(x + 1)
	r.cells[x] = c
}

// cut drops columns from x on, in cell form; they look like fill then.
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

// cutText is cut in text form; it may be asked only where cutsText says so.
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

// toCells changes the row to the cell form.
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

// encode appends the text form of cells to text and runs, and returns the
// columns it has, and whether each is one byte. Empty cells of default look at
// the end are left out.
func (t *Term) encode(text []byte, runs []run, cells []cell) (_ []byte, _ []run, columns int, ascii bool) {
	ascii = true
	n := len(cells)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	cells = cells[:n]
	if n > 0 && !cells[n-1].hasContent() { // an end that whoever draws it has to look at
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

// natural reports whether the cell's text, decoded by itself, is one cell of
// width w: so that it needs no mark.
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
