package vt

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// painter writes a snapshot. It knows where the cursor of who reads it is, and
// what pen it has.
type painter struct {
	t    *Term
	out  []byte
	pen  style
	x    int   // column; cols is a pending wrap
	end  style // of the columns from x on, if they are empty
	lost bool  // the pen is not known

	// IRM, where it is known: a snapshot says it whether or not it is needed.
	insertKnown, insert bool

	joins bool // under mode 2027: what was printed last may take what follows into its cell

	odd *oddRows // collects them, if it is not nil
}

func (p *painter) add(s string) { p.out = append(p.out, s...) }

// csi adds a control sequence of numbers and a final byte.
func (p *painter) csi(final byte, numbers ...int) {
	p.out = append(p.out, "\x1b["...)
	for i, n := range numbers {
		if i > 0 {
			p.out = append(p.out, ';')
		}
		p.out = strconv.AppendInt(p.out, int64(n), 10)
	}
	p.out = append(p.out, final)
}

// normal writes the last lines of the history and the normal screen.
func (p *painter) normal(history int) {
	t := p.t
	done, next := 0, 64
	t.hist.each(t.hist.lines-history, func(i int, l storedLine) bool {
		if l.flags&(lineASCII|lineWrapped|lineMarked) == lineASCII {
			p.newLine(done == 0)
			p.storedASCII(l)
		} else {
			t.scratch = t.storedCells(t.scratch[:0], l)
			if p.odd != nil {
				p.odd.continues = p.odd.continues || done == 0 && l.flags&lineWrapped != 0
				p.odd.normal(t.hist.lines-1-i+t.rows, t.scratch, l.marks)
			}
			p.line(t.scratch, l.marks, l.flags&lineWrapped != 0, done == 0)
		}
		if done++; done == next {
			next *= 4
			p.reserve(done, history+t.rows)
		}
		return true
	})
	for y := range t.rows {
		r := t.normal.row(y)
		cells := t.rowCells(r)
		if p.odd != nil {
			p.odd.continues = p.odd.continues || done == 0 && r.wrapped
			p.odd.normal(t.rows-1-y, cells, r.marks)
		}
		p.line(cells, r.marks, r.wrapped, done == 0)
		done++
	}
}

// reserve makes room for all of the rows, if they are like those that are done,
// but for not more than five times as much as there is: growing step by step
// would copy a long snapshot several times, and hold more.
func (p *painter) reserve(done, rows int) {
	n := len(p.out) / done * (rows - done)
	if n = min(n+n/16, 4*len(p.out)); n > cap(p.out)-len(p.out) {
		p.out = append(make([]byte, 0, len(p.out)+n), p.out...)
	}
}

// screen writes the rows of a screen that has no history, from the cursor on.
func (p *painter) screen(b *buffer) {
	p.x = 0
	for y := range p.t.rows {
		r := b.row(y)
		p.line(p.t.rowCells(r), r.marks, r.wrapped, y == 0)
	}
}

// newLine goes to the next line, with a pen that leaves nothing behind when the
// screen scrolls.
func (p *painter) newLine(first bool) {
	if first {
		return
	}
	if p.pen.bg&colorMask != 0 {
		p.look(&style{})
	}
	p.out = append(p.out, '\r', '\n')
	p.x, p.joins = 0, false
}

// storedASCII writes a line of history as it is held.
func (p *painter) storedASCII(l storedLine) {
	p.x, p.end = 0, style{}
	var s style
	from := 0
	l.eachRun(func(col int, next style) {
		p.ascii(l.text[from:col], &s)
		from, s = col, next
	})
	p.ascii(l.text[from:], &s)
}

// ascii writes text form of one look and one byte a column.
func (p *painter) ascii(text []byte, s *style) {
	for len(text) > 0 {
		n := bytes.IndexByte(text, markEmpty)
		if n < 0 {
			n = len(text)
		}
		if n > 0 {
			p.look(s)
			p.out = append(p.out, text[:n]...)
			p.x += n
			text = text[n:]
		}
		for n = 0; n < len(text) && text[n] == markEmpty; n++ {
		}
		text = text[n:]
		switch {
		case n == 0:
		case p.x+n < p.t.cols:
			p.emptyCells(n, s)
		default:
			p.emptyEnd(n, s)
		}
	}
}

// emptyCells leaves n columns empty that look like s, of which something
// follows in the same line.
func (p *painter) emptyCells(n int, s *style) {
	if s.isErased() {
		p.empty(n, s)
		return
	}
	for ; n > 0; n-- {
		p.halve(s)
	}
}

// empty leaves n columns empty, with the background of s.
func (p *painter) empty(n int, s *style) {
	if s.bg&colorMask != 0 {
		p.erase(n, s)
	}
	p.csi('C', n)
	p.x += n
}

// line writes a line's cells, after going to where it begins.
func (p *painter) line(cells []cell, marks []mark, wrapped, first bool) {
	if !wrapped || first {
		p.newLine(first)
	} else if !p.wrapsInto(cells) || len(marks) > 0 { // a mark must not stand in the line before
		p.wrapInto()
	}
	p.marksBehind(p.cells(cells, marks))
}

// wrapsInto reports whether printing cells makes them a line that continues
// this one, and nothing else: what scrolls in looks like the pen's background.
func (p *painter) wrapsInto(cells []cell) bool {
	if len(cells) == 0 || !cells[0].hasContent() || cells[0].width() == 0 {
		return false
	}
	s := &p.t.styles.all[cells[0].style()]
	if s.bg&colorMask != 0 {
		return false
	}
	if p.x == p.t.cols-1 && cells[0].isWide() { // it wrapped early, and does so again
		return sameStyle(&p.end, s)
	}
	return p.x == p.t.cols
}

// wrapInto makes the next line one that continues this one, where printing on
// would not do so: because the end of this one is empty, or the beginning of
// the next.
func (p *painter) wrapInto() {
	t := p.t
	n := 1
	if p.x < t.cols {
		// A wide character does not fit in the last column, and leaves it empty.
		p.look(&p.end)
		p.csi('G', t.cols)
		p.add("\u3000")
		n = 2
		if p.end.bg&colorMask != 0 { // the new line is full of it
			n = t.cols
		}
	} else {
		p.look(&style{})
		p.out = append(p.out, ' ')
	}
	p.out = append(p.out, '\r')
	p.erase(n, &style{})
	p.x = 0
}

// cells writes a line's cells. It returns the marks behind them.
func (p *painter) cells(cells []cell, marks []mark) []mark { return p.cellsFrom(0, cells, marks) }

// cellsFrom writes a line's cells from column x on, which is where the cursor
// is. Empty ones of default look at its end are left as they are. It returns the
// marks behind them.
func (p *painter) cellsFrom(x int, cells []cell, marks []mark) []mark {
	t := p.t
	n := min(len(cells), t.cols)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	p.x, p.end = x, style{}
	for p.x < n {
		if len(marks) > 0 {
			marks = p.marksUpTo(p.x, marks)
		}
		c := cells[p.x]
		s := &t.styles.all[c.style()]
		if !c.hasContent() || c.isWide() && p.x == t.cols-1 {
			k := p.x + 1
			for k < n && !cells[k].hasContent() && t.alike(cells[k].style(), c.style()) && (len(marks) == 0 || k < marks[0].col) {
				k++
			}
			if k == t.cols {
				if s.isErased() {
					p.emptyEnd(k-p.x, s)
				} else {
					p.emptyCells(k-p.x-1, s)
					p.halveEnd(cells, s)
					p.end = *s
				}
				return marks
			}
			p.emptyCells(k-p.x, s)
			continue
		}
		p.content(c, s)
		p.x++
		if c.isWide() {
			if p.x < n && !cells[p.x].isSpacer() {
				p.csi('G', p.x+1)
			} else {
				p.x++
			}
		}
	}
	return marks
}

// emptyEnd empties the last n columns, which look like s: the cursor stays
// before them.
func (p *painter) emptyEnd(n int, s *style) {
	p.end = *s
	p.erase(n, s)
}

// erase empties n columns with the background of s.
func (p *painter) erase(n int, s *style) {
	bg := s.erased()
	p.look(&bg)
	p.csi('X', n)
}

// halve leaves one column empty that looks like s. Erasing leaves no more than
// a background; more of a look is left where half a wide character was
// overwritten, and so it is made.
func (p *painter) halve(s *style) {
	p.look(s)
	p.add("\u3000")
	p.csi('G', p.x+2)
	p.out = append(p.out, ' ')
	p.csi('G', p.x+2)
	p.erase(1, &style{})
	p.x++
}

// halveEnd is halve for the last column: there it is the second half that is
// left, and what stands before it is written again.
func (p *painter) halveEnd(cells []cell, s *style) {
	t := p.t
	p.csi('G', t.cols-1)
	p.add("\u3000")
	p.csi('G', t.cols-1)
	p.look(s)
	p.out = append(p.out, ' ')
	x := t.cols - 2
	if x > 0 && cells[x].isSpacer() {
		x--
	}
	p.csi('G', x+1)
	if c := cells[x]; c.hasContent() {
		p.content(c, &t.styles.all[c.style()])
	} else {
		p.erase(1, &t.styles.all[c.style()])
		p.csi('C', 1)
	}
}

// printable reports whether printing the cell's text takes one cell of its
// width. What was printed under another mode may not.
func (t *Term) printable(c cell) bool {
	if c&clusterBit == 0 {
		return joinWidth(rune(c&codeMask), 0, t.modes.Graphemes).width() == c.width()
	}
	var s joinState
	for i, ch := range t.clusters.text(c) {
		if s = joinWidth(ch, s, t.modes.Graphemes); i > 0 && !s.joins() {
			return false
		}
	}
	return s.width() == c.width()
}

// content writes a cell that has text.
func (p *painter) content(c cell, s *style) {
	t := p.t
	p.look(s)
	if c&(clusterBit|widthMask) == 0 && c&codeMask < utf8.RuneSelf {
		if p.joins {
			p.joins = false
			p.add("\x0f")
		}
		p.out = append(p.out, byte(c&codeMask))
		return
	}
	if !t.printable(c) {
		p.out = append(p.out, "  "[:max(c.width(), 1)]...)
		return
	}
	// What might join the cell before has a control between.
	if c.width() == 0 || t.modes.Graphemes {
		p.add("\x0f") // shifts in what is shifted in
	}
	p.joins = t.modes.Graphemes
	p.out = t.appendContent(p.out, c)
}
