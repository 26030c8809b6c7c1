package vt

import (
	"io"
	"strconv"
	"unicode/utf8"

	"holdfast/shared/termmode"
	"holdfast/supervisor/internal/picture"
)

// painter writes a snapshot or a transition. It tracks the cursor and the pen of the terminal
// that will read the bytes.
type painter struct {
	t            *Term
	out          []byte
	pen          style
	x            int   // column of the cursor; cols is a pending wrap
	end          style // style of the columns from x on, if they are empty
	isPenUnknown bool  // the pen is unknown

	// insert is the state of IRM if insertKnown is set. A snapshot writes IRM whether it is
	// needed or not, because its state in the viewer's terminal is unknown.
	insertKnown, insert bool

	joins bool // mode 2027 is set, and the next character may join the last one

	// flipped is set while mode 2027 is written the other way round: reset if t has it set, and
	// set if t has it reset. The last cells were printed under that state.
	flipped bool

	odd *oddRows // collects the odd rows, unless it is nil

	linksFrom int  // rows of the history with a smaller index are painted without links
	bounded   bool // if a link in a row has no room, it is left out; this does not hold for the pen
	linkRoom  int  // bytes that the links in rows may still take
	unlinked  bool // a link was left out of the row

	album album                            // pictures in the lines, if the terminal shows any
	sent  map[uint32]*picture.Transmission // images of kitty's graphics that the viewer has, by id

	w   io.Writer // receives the bytes in pieces, unless it is nil
	err error     // first error of w
}

// maxScreenLinks bounds the bytes of the links on the screens in a snapshot or a transition,
// because each change of link repeats up to 8 KiB. Text behind the bound is painted without
// its link.
const maxScreenLinks = 4 << 20

// maxSavedLinks bounds the bytes of the links of the history in a saved screen. If the links
// of all rows would take more, only the last rows keep theirs.
const maxSavedLinks = 32 << 20

// pieceBytes is the size of a piece that the painter passes to its writer. A piece may be
// longer by one row.
const pieceBytes = 256 << 10

// flushIfLarge passes the bytes to the writer if they are more than a piece.
func (p *painter) flushIfLarge() {
	if p.w != nil && len(p.out) > pieceBytes {
		p.flush()
	}
}

// flush passes the bytes to the writer. After an error they are dropped.
func (p *painter) flush() {
	if p.err == nil {
		_, p.err = p.w.Write(p.out)
	}
	p.out = p.out[:0]
}

func (p *painter) add(s string) { p.out = append(p.out, s...) }

// csi adds a control sequence with numbers and a final byte.
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

// normal writes the last history lines of the history, and the normal screen.
func (p *painter) normal(history int) {
	t := p.t
	done, next := 0, 64
	room := p.linkRoom
	t.hist.each(t.hist.lines-history, func(i int, l storedLine) bool {
		if p.linksFrom > 0 {
			p.bounded, p.linkRoom = i < p.linksFrom, 0
		}
		if p.odd != nil {
			p.odd.continues = p.odd.continues || done == 0 && l.flags&lineWrapped != 0
		}
		if !p.storedLine(l, done == 0) {
			t.scratch = t.storedCells(t.scratch[:0], l)
			if p.odd != nil {
				p.odd.addNormal(t.hist.lines-1-i+t.rows, t.scratch, l.marks, false)
			}
			p.line(t.scratch, l.marks, l.flags&lineWrapped != 0, done == 0)
			t.tidyReading()
		}
		if p.album.Formats != 0 && t.hasPlaced() {
			t.scratch = t.storedCells(t.scratch[:0], l)
			row := min(done, t.rows-1)
			p.paintBlocks(p.collect(row, t.scratch, l.flags&lineWrapped != 0, true), row, t.scratch)
		}
		if done++; done == next && p.w == nil {
			next *= 4
			p.reserve(done, history+t.rows)
		}
		p.flushIfLarge()
		return true
	})
	p.bounded, p.linkRoom = true, room
	for y := range t.rows {
		r := t.normal.row(y)
		cells := t.rowCells(r)
		p.unlinked = false
		p.line(cells, r.marks, r.wrapped, done == 0)
		if p.odd != nil {
			p.odd.continues = p.odd.continues || done == 0 && r.wrapped
			p.odd.addNormal(t.rows-1-y, cells, r.marks, p.unlinked)
		}
		row := min(done, t.rows-1)
		p.paintBlocks(p.collect(row, cells, r.wrapped, y < t.rows-1), row, cells)
		done++
		p.flushIfLarge()
	}
	p.finishAlbum(t.rows - 1)
	p.bounded = false
}

// tidyReading calls tidy if many numbers are in use, while rows of the history are read:
// reading a row assigns numbers to its styles and texts, and no cell keeps them.
func (t *Term) tidyReading() {
	if t.styles.used() > max(t.styles.limit, sweepAt) || t.clusters.used() > max(t.clusters.limit, sweepAt) {
		t.tidy()
	}
}

// reserve makes room for all rows, on the assumption that the others are as long as those that
// are done. It makes at most five times as much room as the rows use now. If the buffer grew
// step by step instead, a long snapshot would be copied several times, and would hold more
// memory.
func (p *painter) reserve(done, rows int) {
	n := len(p.out) / done * (rows - done)
	if n = min(n+n/16, 4*len(p.out)); n > cap(p.out)-len(p.out) {
		p.out = append(make([]byte, 0, len(p.out)+n), p.out...)
	}
}

// screen writes the rows of a screen without history. The cursor must be in the first column
// of the first row.
func (p *painter) screen(b *buffer) {
	p.x, p.bounded = 0, true
	for y := range p.t.rows {
		r := b.row(y)
		p.unlinked = false
		p.line(p.t.rowCells(r), r.marks, r.wrapped, y == 0)
		if p.odd != nil && p.unlinked {
			p.odd.unlinked = append(p.odd.unlinked, y)
		}
		cells := p.t.rowCells(r)
		p.paintBlocks(p.collect(y, cells, r.wrapped, false), y, cells)
		p.flushIfLarge()
	}
	p.finishAlbum(p.t.rows - 1)
	p.bounded = false
}

// newLine writes a line feed, unless first is set. It first gives the pen the default
// background, because the row that scrolls in takes the pen's background.
func (p *painter) newLine(first bool) {
	if first {
		return
	}
	if p.pen.bg&colorMask != 0 {
		p.setPen(&style{})
	}
	p.out = append(p.out, '\r', '\n')
	p.x, p.joins = 0, false
}

// emptyCells leaves n columns empty in the style s. Text must follow them in the same line.
func (p *painter) emptyCells(n int, s *style) {
	if s.isErased() {
		p.empty(n, s)
		return
	}
	for ; n > 0; n-- {
		p.emptyStyled(s)
	}
}

// empty leaves n columns empty with the background of s.
func (p *painter) empty(n int, s *style) {
	if s.bg&colorMask != 0 {
		p.erase(n, s)
	}
	p.csi('C', n)
	p.x += n
}

// line writes the cells and marks of a line. Before them it moves to the line's beginning: by
// a line feed, or by a wrap if the line continues the one above.
func (p *painter) line(cells []cell, marks []shellMark, wrapped, first bool) {
	if !wrapped || first {
		p.newLine(first)
	} else if !p.wrapsInto(cells) || len(marks) > 0 { // a mark would come to stand in the line above
		p.wrapInto()
	}
	p.marksBehind(p.cells(cells, marks))
}

// wrapsInto reports whether printing cells behind the last line creates a line that continues
// that line, without any other change.
func (p *painter) wrapsInto(cells []cell) bool {
	if len(cells) == 0 || !cells[0].hasContent() {
		return false
	}
	return p.wrapsBefore(cells[0].width(), p.t.styles.at(cells[0].style()))
}

// wrapsBefore reports the same for a line that begins with a character of so many columns in the
// style s. The pen's background must be the default, because the row that scrolls in takes it.
func (p *painter) wrapsBefore(width int, s *style) bool {
	if width == 0 || s.bg&colorMask != 0 {
		return false
	}
	if p.x == p.t.cols-1 && width == 2 { // it did not fit, so the terminal wraps before it again
		return sameStyle(&p.end, s)
	}
	return p.x == p.t.cols
}

// wrapInto makes the next line continue the last one in a case in which printing its text
// would not: if the last line ends with empty columns, or if the next line begins with them.
// It prints a character that wraps, and erases it.
func (p *painter) wrapInto() {
	t := p.t
	n := 1
	if p.x < t.cols {
		// A wide character does not fit into the last column, and leaves it empty.
		p.setPen(&p.end)
		p.csi('G', t.cols)
		p.add("\u3000")
		n = 2
		if p.end.bg&colorMask != 0 { // the row that scrolls in has this background in all columns
			n = t.cols
		}
	} else {
		p.setPen(&style{})
		p.out = append(p.out, ' ')
	}
	p.out = append(p.out, '\r')
	p.erase(n, &style{})
	p.x = 0
}

// cells writes the cells of a line, and returns the marks behind them.
func (p *painter) cells(cells []cell, marks []shellMark) []shellMark {
	return p.cellsFrom(0, cells, marks)
}

// cellsFrom writes the cells of a line from column x on. The cursor must be there. Empty cells
// of default style at the end of the line are not written. cellsFrom returns the marks behind
// the cells.
func (p *painter) cellsFrom(x int, cells []cell, marks []shellMark) []shellMark {
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
		s := t.styles.at(c.style())
		if !c.hasContent() || c.isWide() && p.x == t.cols-1 {
			k := p.x + 1
			for k < n && !cells[k].hasContent() && t.sameStyleID(cells[k].style(), c.style()) && (len(marks) == 0 || k < marks[0].col) {
				k++
			}
			if k == t.cols {
				if s.isErased() {
					p.emptyEnd(k-p.x, s)
				} else {
					p.emptyCells(k-p.x-1, s)
					p.emptyStyledEnd(cells, s)
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

// emptyEnd empties the last n columns in the style s. The cursor stays before them.
func (p *painter) emptyEnd(n int, s *style) {
	p.end = *s
	p.erase(n, s)
}

// erase empties n columns with the background of s. The cursor does not move.
func (p *painter) erase(n int, s *style) {
	bg := s.erased()
	p.setPen(&bg)
	p.csi('X', n)
}

// emptyStyled leaves one empty column in the style s, which has more than a background.
// Erasing leaves no more than a background. But if half of a wide character is overwritten,
// the terminal empties the other half in the style of that character. Therefore emptyStyled
// prints a wide character and overwrites its second half.
func (p *painter) emptyStyled(s *style) {
	p.setPen(s)
	p.add("\u3000")
	p.csi('G', p.x+2)
	p.out = append(p.out, ' ')
	p.csi('G', p.x+2)
	p.erase(1, &style{})
	p.x++
}

// emptyStyledEnd leaves the last column empty in the style s. A wide character has no room
// there for its second half, so the terminal must empty the second half instead of the first
// one. The cells before the last column are overwritten by this, and are printed again.
func (p *painter) emptyStyledEnd(cells []cell, s *style) {
	t := p.t
	p.csi('G', t.cols-1)
	p.add("\u3000")
	p.csi('G', t.cols-1)
	p.setPen(s)
	p.out = append(p.out, ' ')
	x := t.cols - 2
	if x > 0 && cells[x].isSpacer() {
		x--
	}
	p.csi('G', x+1)
	c := cells[x]
	if !c.hasContent() {
		p.erase(1, t.styles.at(c.style()))
	} else if p.content(c, t.styles.at(c.style())); x+c.width() == t.cols-1 {
		return
	}
	p.csi('G', t.cols) // a spacer may stand behind a cell that is not wide
}

// printable reports whether printing the cell's text makes one cell of its width, with mode
// 2027 set or reset.
func (t *Term) printable(c cell) bool {
	return t.printableUnder(t.modes.Graphemes, c) || t.printableUnder(!t.modes.Graphemes, c)
}

// printableUnder reports whether printing the cell's text with the given state of mode 2027
// makes one cell of its width. A cell that was printed before the mode was changed may need
// the other state.
func (t *Term) printableUnder(graphemes bool, c cell) bool {
	if c&clusterBit == 0 {
		return joinWidth(rune(c&codeMask), 0, graphemes).width() == c.width()
	}
	var s joinState
	for i, ch := range t.clusters.text(c) {
		if s = joinWidth(ch, s, graphemes); i > 0 && !s.joins() {
			return false
		}
	}
	return s.width() == c.width()
}

// content writes the text of a cell that has some.
func (p *painter) content(c cell, s *style) {
	t := p.t
	p.setPen(s)
	if p.hides(c) {
		c = c&^contentMask | ' '
	}
	if c&(clusterBit|widthMask) == 0 && c&codeMask < utf8.RuneSelf {
		if p.joins {
			p.joins = false
			p.add("\x0f")
		}
		p.out = append(p.out, byte(c&codeMask))
		return
	}
	graphemes := t.modes.Graphemes != p.flipped
	if !t.printableUnder(graphemes, c) {
		graphemes = !graphemes
		if !t.printableUnder(graphemes, c) {
			p.out = append(p.out, "  "[:max(c.width(), 1)]...)
			return
		}
		p.flip(!p.flipped)
	}
	// A control between two characters prevents that the second one joins the first one.
	if c.width() == 0 || graphemes {
		p.add("\x0f") // SI; it changes nothing, because G0 is shifted in
	}
	p.joins = graphemes
	p.out = t.appendContent(p.out, c)
}

// flip sets mode 2027 to the terminal's state, or to the other state if flipped is set. A
// character behind this sequence joins no character before it.
func (p *painter) flip(flipped bool) {
	if p.flipped != flipped {
		p.flipped, p.joins = flipped, false
		p.private(termmode.Graphemes, p.t.modes.Graphemes != flipped)
	}
}
