package vt

import (
	"slices"
	"unicode/utf8"
)

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
	asciiCells(r.cells[x:x+len(p)], p, s.cell())
}

// asciiCells makes dst the cells of p, which must be ASCII of the same length. sb is their style.
func asciiCells(dst []cell, p []byte, sb cell) {
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
	fillCells(r.cells[r.n:], r.fill.cell())
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
		joined := i+1 < len(text) && text[i+1] >= utf8.RuneSelf // perhaps by a combining character
		if b == markEmpty || b >= 0x20 && b < utf8.RuneSelf && !joined {
			rest := text[i:]
			if next >= 0 {
				rest = rest[:min(len(rest), next-len(dst)+base)]
			}
			n, at := asciiRun(rest), len(dst)
			if n == 0 {
				n = 1 + repeats(rest, 1)
			}
			dst = slices.Grow(dst, n)[:at+n]
			if b == markEmpty {
				fillCells(dst[at:], sb)
			} else {
				asciiCells(dst[at:], rest[:n], sb)
			}
			i += n
			continue
		}
		n, at := 0, len(dst)
		switch b {
		case markSpacer:
			dst, n = append(dst, sb|zeroCell), 1
		case markCell:
			n = 3 + int(text[i+2])
			dst = append(dst, t.content(text[i+3:i+n])|sb|widthBits(int(text[i+1])))
			if i+n < len(text) && text[i+n] == markSpacer && len(dst)-base != next { // both halves of a wide character
				dst, n = append(dst, sb|zeroCell), n+1
			}
		case markSkip:
			k := int(text[i+1]) | int(text[i+2])<<8
			dst = slices.Grow(dst, k)[:at+k]
			fillCells(dst[at:], sb)
			i += 3
			continue
		default:
			var ch rune
			switch ch, n = utf8.DecodeRune(text[i:]); runeWidth(ch) {
			case 0:
				if last := at - 1; last >= base {
					if dst[last].isSpacer() {
						last--
					}
					dst[last] = t.combine(dst[last], ch)
				}
				i += n
				continue
			case 2:
				dst = append(dst, cell(ch)|sb|wideCell, sb|zeroCell)
			default:
				dst = append(dst, cell(ch)|sb)
			}
			for i+n < len(text) && text[i+n] >= utf8.RuneSelf {
				ch, k := utf8.DecodeRune(text[i+n:])
				if runeWidth(ch) > 0 {
					break
				}
				dst[at] = t.combine(dst[at], ch)
				n += k
			}
		}
		// REP prints the same character many times.
		w, same := len(dst)-at, repeats(text[i:], n)/n
		if next >= 0 {
			same = min(same, (next-len(dst)+base)/w)
		}
		if same > 0 {
			dst = slices.Grow(dst, same*w)[:at+w+same*w]
			repeatFirst(dst[at:], w)
		}
		i += n + same*n
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
	for x := 0; x < n; {
		c := cells[x]
		if s := c.style(); s != look {
			runs = append(runs, newRun(x, s))
			look = s
		}
		at, w := len(text), 1
		if code := rune(c & codeMask); c&(clusterBit|widthMask) == 0 && code < utf8.RuneSelf {
			text = append(text, byte(code)) // 0 is markEmpty
		} else {
			text, w = t.encodeCell(text, cells[x:n])
			ascii = false
		}
		if x += w; x < n && cells[x] == c {
			same, unit := repeats(cells[x-w:n], w), len(text)-at
			text = slices.Grow(text, same/w*unit)[:at+unit+same/w*unit]
			repeatFirst(text[at:], unit)
			x += same
		}
	}
	return text, runs, n, ascii
}

// encodeCell appends the text form of the first one of cells, or of two if they are the halves of a wide character. It
// returns their number.
func (t *Term) encodeCell(text []byte, cells []cell) (_ []byte, columns int) {
	c := cells[0]
	if c.isSpacer() {
		return append(text, markSpacer), 1
	}
	w := c.width()
	paired := w == 2 && len(cells) > 1 && cells[1] == zeroCell|c.style().cell()
	if t.natural(c, w) && (w == 1 || paired) {
		return t.appendContent(text, c), w
	}
	text = append(text, markCell, byte(w), 0)
	at := len(text)
	text = t.appendContent(text, c)
	text[at-1] = byte(len(text) - at)
	if paired {
		return append(text, markSpacer), 2
	}
	return text, 1
}

// repeats returns how many elements behind the first n of s are copies of these. It is a multiple of n.
func repeats[T comparable](s []T, n int) int {
	i := n
	for i+32 <= len(s) && *(*[32]T)(s[i:]) == *(*[32]T)(s[i-n:]) {
		i += 32
	}
	for i < len(s) && s[i] == s[i-n] {
		i++
	}
	return max(i-n, 0) / n * n
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
