package vt

import (
	"bytes"
	"math/bits"
	"unicode/utf8"
)

// asciiRun returns how many bytes at the beginning of p are printable ASCII.
func asciiRun(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		w := load64(p[i:])
		// The high bit of a byte is set if the byte is below 0x20, 0x7f or above. The subtraction
		// borrows only from bytes whose high bit is set already, so the lowest one is exact.
		if m := (w | (w - ones*0x20) | (w + ones)) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(p); i++ {
		if p[i]-0x20 > 0x5e {
			break
		}
	}
	return i
}

// narrow is the join state behind a character of one column.
const narrow joinState = 1 << 1

// print prints p, which must be printable ASCII.
func (t *Term) print(p []byte) {
	if t.cs != nil || t.join>>3 != 0 {
		t.printEach(p)
		return
	}
	b := t.b
	r := b.row(b.y)
	if !t.printing {
		t.beginPrinting(r)
	}
	t.join = narrow
	for {
		if b.x >= t.cols {
			if t.modes.Wraparound {
				r = t.wrap(0)
			} else if t.modes.Insert {
				t.printEach(p)
				return
			} else { // each character overwrites the one before in the last column
				b.x = t.cols - 1
				p = p[len(p)-1:]
			}
		}
		n := min(len(p), t.cols-b.x)
		if t.modes.Insert { // at once, because that moves all cells behind the cursor
			t.insertAtCursor(r, n, 1)
		}
		if b.x >= r.n && !r.inCells && !alwaysCells {
			r.prepare(b.x, t.penID)
			r.text = appendText(r.text, p[:n])
			b.x += n
			r.n = b.x
		} else {
			t.overwrite(r, p[:n])
		}
		if p = p[n:]; len(p) == 0 {
			return
		}
	}
}

// appendText appends p to dst. Most texts are short, so it copies a fixed number of bytes if both slices
// have room for them: that is faster than a copy of any length.
func appendText(dst, p []byte) []byte {
	const short = 16
	if n := len(dst); len(p) <= short && cap(p) >= short && cap(dst)-n >= short {
		*(*[short]byte)(dst[n : n+short]) = *(*[short]byte)(p[:short])
		return dst[:n+len(p)]
	}
	return append(dst, p...)
}

// skipLines returns the length of the lines at the beginning of p that need not be printed, because they
// scroll through the region and do not go to the history: enough lines of ASCII follow. It also returns
// the number of bytes that it has looked at. The cursor must be in the last row of the region, which
// scrolling has just emptied.
func (t *Term) skipLines(p []byte) (n, seen int) {
	b := t.b
	if b.x > 0 {
		return 0, 0
	}
	lines, kept := 0, b.bot-b.top // the last lines stay, above the empty row
	for {
		end := seen + asciiRun(p[seen:])
		if end+1 >= len(p) || p[end] != '\r' || p[end+1] != '\n' {
			break
		}
		lines++
		seen = end + 2
	}
	if lines <= kept {
		return 0, seen
	}
	n = seen
	for range kept {
		n = bytes.LastIndexByte(p[:n-1], '\n') + 1
	}
	return n, seen
}

// overwrite prints p at the cursor, in a row that is in cell form or has text there. p must be
// printable ASCII and must fit into the row.
func (t *Term) overwrite(r *row, p []byte) {
	b := t.b
	from := b.x
	b.x += len(p)
	if !r.inCells {
		if r.ascii && !alwaysCells && r.covered(from, b.x, t.penID) {
			r.n = max(r.n, b.x)
			r.text = append(r.text[:from], p...)[:r.n]
			return
		}
		t.toCells(r)
	}
	r.putASCII(from, p, t.penID)
	t.mendRight(r)
}

// printEach prints p, which must be printable ASCII, in any state of the terminal.
func (t *Term) printEach(p []byte) {
	for _, c := range p {
		t.printRune(rune(c))
	}
	t.printed()
}

// insertAtCursor inserts n columns for characters of w columns that are printed next.
func (t *Term) insertAtCursor(r *row, n, w int) {
	if t.b.x >= r.n && !r.inCells || t.b.x > r.n {
		return // no cell moves, and the inserted columns are overwritten
	}
	t.insertCells(r, t.b.x, n, t.penID)
	// A row may have more columns than are visible. As in xterm.js, a wide character that an insertion moves
	// into the last visible column loses its first half.
	for x := t.cols - 1; x < min(t.cols-1+n, r.w); x += w {
		if r.cells[x].isWide() {
			r.cells[x] = t.penID.cell()
		}
	}
}

// beginPrinting begins to print in r, the cursor's row. If the cursor is on the second half of a wide
// character, which printing will overwrite, it empties the first half.
func (t *Term) beginPrinting(r *row) {
	t.printing = true
	if !r.ascii { // ASCII has one byte for each column
		t.mendLeft(r)
	}
}

// mendLeft empties the column left of the cursor if it has the first half of a wide character. r is the cursor's row.
func (t *Term) mendLeft(r *row) {
	x := t.b.x
	if x == 0 || x > r.n || x == r.n && !r.inCells {
		return
	}
	t.toCells(r)
	if r.at(x - 1).isWide() {
		r.set(x-1, t.penID.cell())
	}
}

// printed must be called after one or more calls of printRune. It empties the rest of a wide
// character that they have overwritten in part.
func (t *Term) printed() {
	if r := t.b.row(t.b.y); r.inCells {
		t.mendRight(r)
	}
}

// mendRight empties the column at the cursor if it has the second half of a wide character, and the
// first half was overwritten.
func (t *Term) mendRight(r *row) {
	if x := t.b.x; x < t.cols && x < r.n && r.cells[x].isSpacer() {
		r.cells[x] = t.penID.cell()
	}
}

// wrap moves the cursor to the next row, which then continues this one, and scrolls if this is
// the last row of the region. It leaves keep columns before the cursor, and returns the row.
func (t *Term) wrap(keep int) *row {
	b := t.b
	b.x = keep
	if b.y == b.bot {
		t.scroll(true)
	} else if b.y+1 < t.rows {
		b.y++
	}
	r := b.row(b.y)
	r.wrapped = true
	return r
}

// maxCombined is the largest number of combining characters behind one character in text form.
// If there are more, the row is converted to cells, in which maxCluster is the bound.
const maxCombined = 8

// printText prints the characters at the beginning of p, of which the first is not ASCII, as
// long as the fast path can print them. It returns the number of bytes that it has printed. If
// it is 0, printRune must print the first character.
func (t *Term) printText(p []byte) int {
	if t.modes.Graphemes {
		return 0
	}
	b := t.b
	done := 0
	for done < len(p) && p[done] >= 0x80 {
		ch, n := decodeRune(p[done:])
		if n == 0 || ch < 0xa0 {
			break
		}
		w := tableWidth(ch)
		if w == 0 {
			if !t.combineText(p[done : done+n]) {
				break
			}
			done += n
			continue
		}
		if !t.printing {
			t.beginPrinting(b.row(b.y))
		}
		if b.x+w > t.cols {
			if !t.modes.Wraparound {
				break
			}
			t.wrapWide(0)
		}
		r := b.row(b.y)
		if alwaysCells || r.inCells || b.x < r.n {
			if t.modes.Insert {
				break
			}
			done += t.printCells(r, p[done:], ch, n, w)
			continue
		}
		i, x, last, combined := done, b.x, w, 0
		for {
			i += n
			x += w
			if i == len(p) {
				break
			}
			if c := p[i]; c < utf8.RuneSelf {
				if c < 0x20 || c == 0x7f || t.cs != nil {
					break
				}
				n, w = 1, 1
			} else {
				if ch, n = decodeRune(p[i:]); n == 0 || ch < 0xa0 {
					break
				}
				w = tableWidth(ch)
			}
			if x+w > t.cols {
				break
			}
			if w > 0 {
				last, combined = w, 0
			} else if combined++; combined > maxCombined {
				break
			}
		}
		r.prepare(b.x, t.penID)
		r.text = appendText(r.text, p[done:i])
		r.ascii = false
		r.n, b.x, done = x, x, i
		t.join = joinState(last)<<1 | joinState(min(combined, 1))
	}
	return done
}

// printCells prints the characters at the beginning of p into cells, as long as they have a
// width and room in the row. It returns the number of bytes that it has printed. The first
// character is ch, of n bytes and w columns; the caller must have made sure that it has room.
func (t *Term) printCells(r *row, p []byte, ch rune, n, w int) (done int) {
	t.toCells(r)
	b, sb := t.b, t.penID.cell()
	for {
		r.reach(b.x + w)
		r.cells[b.x] = cell(ch) | sb | widthBits(w)
		if w == 2 {
			r.cells[b.x+1] = sb | zeroCell
		}
		b.x += w
		done += n
		t.join = joinState(w) << 1
		if done == len(p) || p[done] < 0x80 {
			break
		}
		if ch, n = decodeRune(p[done:]); n == 0 || ch < 0xa0 {
			break
		}
		if w = tableWidth(ch); w == 0 || b.x+w > t.cols {
			break
		}
	}
	t.mendRight(r)
	return done
}

// combineText adds a combining character to the character that was printed last, if that one
// is at the end of a row in text form. It reports whether it has added it.
func (t *Term) combineText(p []byte) bool {
	b := t.b
	r := b.row(b.y)
	if !t.printing || t.join.width() == 0 || r.inCells || b.x != r.n || r.n == 0 {
		return false
	}
	combined := 0
	for text := r.text; ; combined++ {
		ch, n := utf8.DecodeLastRune(text)
		if ch < 0x20 || combined == maxCombined {
			return false
		}
		if runeWidth(ch) > 0 {
			break
		}
		text = text[:len(text)-n]
	}
	r.text = append(r.text, p...)
	r.ascii = false
	t.join |= 1
	return true
}

// decodeRune returns the character at the beginning of p, which is not ASCII, and its length
// in bytes. The length is 0 if the bytes are invalid or unfinished UTF-8, or a byte order
// mark.
func decodeRune(p []byte) (rune, int) {
	switch {
	case len(p) >= 3 && p[0]&0xf0 == 0xe0 && p[1]&0xc0 == 0x80 && p[2]&0xc0 == 0x80:
		ch := rune(p[0]&0x0f)<<12 | rune(p[1]&0x3f)<<6 | rune(p[2]&0x3f)
		if ch < 0x800 || ch >= 0xd800 && ch <= 0xdfff || ch == 0xfeff {
			return 0, 0
		}
		return ch, 3
	case len(p) >= 2 && p[0]&0xe0 == 0xc0 && p[1]&0xc0 == 0x80:
		ch := rune(p[0]&0x1f)<<6 | rune(p[1]&0x3f)
		if ch < 0x80 {
			return 0, 0
		}
		return ch, 2
	}
	ch, n := utf8.DecodeRune(p)
	if ch == utf8.RuneError && n <= 1 {
		return 0, 0
	}
	return ch, n
}

// printRune prints one character in any state of the terminal. printed must be called
// afterwards.
func (t *Term) printRune(ch rune) {
	b := t.b
	if !t.printing {
		t.beginPrinting(b.row(b.y))
	}
	if ch < 0x7f && t.cs != nil {
		ch = t.cs.at(byte(ch))
	}
	before := t.join
	t.join = joinWidth(ch, before, t.modes.Graphemes)
	w, joins, old := t.join.width(), t.join.joins(), 0
	if joins {
		old = before.width()
	}
	if b.x+w-old > t.cols {
		switch {
		case t.modes.Wraparound:
			t.wrapWide(old)
		default:
			b.x = t.cols - 1
			if w == 2 { // the character neither has room in the last column nor joins the one there
				t.join = 0
				t.toCells(b.row(b.y)) // because the caller calls printed next
				return
			}
		}
	}
	r := b.row(b.y)
	t.toCells(r)
	sb := t.penID.cell()
	if joins && b.x > 0 {
		x := b.x - 1
		if r.at(x).width() == 0 {
			x--
		}
		if x >= 0 {
			c := t.combine(r.at(x), ch)
			if w > 0 {
				c = c&^widthMask | widthBits(w)
			}
			r.set(x, c)
		}
		for ; old < w; old++ {
			r.set(b.x, sb|zeroCell)
			b.x++
		}
		return
	}
	if b.x >= t.cols { // a character without width behind a full row, with no character to join, is dropped
		t.join = 0
		return
	}
	if t.modes.Insert {
		t.insertAtCursor(r, w-old, max(w-old, 1))
	}
	r.set(b.x, cell(ch)|sb|widthBits(w))
	b.x++
	if w == 2 {
		r.set(b.x, sb|zeroCell)
		b.x++
	}
}

// wrapWide wraps before a character that is too wide for the remaining columns of the row. If
// the character has joined the old columns before it, and made them too wide, these move to
// the next row.
func (t *Term) wrapWide(old int) {
	b := t.b
	from := b.x - old
	left := b.row(b.y)
	var moved [2]cell
	if old > 0 {
		t.toCells(left)
		for i := range old {
			if from+i >= 0 {
				moved[i] = left.at(from + i)
			}
		}
	}
	// The columns that remain behind must be emptied before the row scrolls away.
	if from < t.cols && !left.inCells && from >= left.n {
		left.prepare(from, t.penID)
		for ; left.n < t.cols; left.n++ {
			left.text = append(left.text, markEmpty)
		}
		left.ascii = false // so that a painter looks at the empty end of the row
		from = t.cols
	}
	if from < t.cols {
		t.toCells(left)
		for x := max(from, 0); x < t.cols; x++ {
			left.set(x, t.penID.cell())
		}
	}
	t.wrap(old)
	if old > 0 {
		r := b.row(b.y)
		t.toCells(r)
		for i := range old {
			r.set(i, moved[i])
		}
	}
}
