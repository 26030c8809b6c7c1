package vt

import (
	"bytes"
	"net/url"
	"strconv"
	"unicode/utf8"
)

// Snapshot is AppendSnapshot with the whole history.
func (t *Term) Snapshot() []byte { return t.AppendSnapshot(nil, t.hist.lines) }

// AppendSnapshot appends bytes to dst that bring a fresh terminal of the same size to
// this state, as far as a terminal can be told: with as many as history lines
// of what lies above the screen. They ask nothing and ring nothing, and they
// end where the next byte that the program prints goes on, within a sequence
// too.
//
// What is restored by which sequence, and in which order, stands in
// ARCHITECTURE.md.
func (t *Term) AppendSnapshot(dst []byte, history int) []byte {
	p := &painter{t: t, out: dst}
	p.private(2027, t.modes.Graphemes)
	p.normal(min(history, t.hist.lines))
	p.tabs(&t.normal)
	p.saved(&t.normal, t.hist.lines)
	p.keyboard(t.keyboard.Kitty[0])
	if t.b == &t.alt {
		p.region(&t.normal)
		p.csi('H', t.normal.y+1, min(t.normal.x, t.cols-1)+1)
		p.look(&style{})
		p.add("\x1b[?1047h\x1b[H")
		p.screen(&t.alt)
		p.tabs(&t.alt)
		p.saved(&t.alt, 0)
		p.keyboard(t.keyboard.Kitty[1])
	}
	p.titles()
	p.colors()
	p.modes()
	p.region(t.b)
	p.charsets()
	p.cursor()
	return t.pending(p.out)
}

// painter writes a snapshot. It knows where the cursor of who reads it is, and
// what pen it has.
type painter struct {
	t    *Term
	out  []byte
	pen  style
	x    int   // column; cols is a pending wrap
	end  style // of the columns from x on, if they are empty
	lost bool  // the pen is not known
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

// look changes the pen.
func (p *painter) look(s *style) {
	if *s == p.pen && !p.lost {
		return
	}
	if v := s.visible(); v != p.pen.visible() || p.lost {
		p.out = append(appendSGR(append(p.out, "\x1b["...), v), 'm')
		if s.bg&bgProtected != 0 { // which SGR 0 resets
			p.add("\x1b[1\"q")
		}
	}
	if l := s.shownLink(); l != p.pen.shownLink() {
		p.add("\x1b]8;")
		if l != nil {
			if l.id != "" {
				p.add("id=" + l.id)
			}
			p.add(";" + l.uri)
		} else {
			p.add(";")
		}
		p.add("\x1b\\")
	}
	p.pen, p.lost = *s, false
}

// appendSGR appends the parameters that make the pen look like s, which is
// visible, whatever it was.
func appendSGR(dst []byte, s style) []byte {
	dst = append(dst, '0')
	for _, f := range [...]struct {
		word, bit uint32
		code      string
	}{
		{s.fg, fgBold, ";1"}, {s.bg, bgDim, ";2"}, {s.bg, bgItalic, ";3"}, {s.fg, fgBlink, ";5"},
		{s.fg, fgInverse, ";7"}, {s.fg, fgInvisible, ";8"}, {s.fg, fgStrike, ";9"}, {s.bg, bgOverline, ";53"},
	} {
		if f.word&f.bit != 0 {
			dst = append(dst, f.code...)
		}
	}
	switch n := s.extended >> underlineShift; n {
	case 0:
	case 1:
		dst = append(dst, ";4"...)
	default:
		dst = append(append(dst, ";4:"...), byte('0'+n))
	}
	dst = appendColor(dst, s.fg&colorMask, 30)
	dst = appendColor(dst, s.bg&colorMask, 40)
	if c := s.extended & colorMask; c != 0 {
		v := int64(c & 0xffffff)
		if c&^0xffffff == colorModeRG {
			dst = append(dst, ";58:2::"...)
			dst = append(strconv.AppendInt(dst, v>>16, 10), ':')
			dst = append(strconv.AppendInt(dst, v>>8&255, 10), ':')
			dst = strconv.AppendInt(dst, v&255, 10)
		} else {
			dst = strconv.AppendInt(append(dst, ";58:5:"...), v, 10)
		}
	}
	return dst
}

// appendColor appends a colour; base is 30 for the foreground and 40 for the
// background.
func appendColor(dst []byte, c uint32, base int64) []byte {
	v := int64(c & 0xffffff)
	switch c &^ 0xffffff {
	case colorMode16:
		if v >= 8 {
			v += 60 - 8
		}
		dst = strconv.AppendInt(append(dst, ';'), base+v, 10)
	case colorModeP:
		dst = strconv.AppendInt(append(dst, ';'), base+8, 10)
		dst = strconv.AppendInt(append(dst, ";5;"...), v, 10)
	case colorModeRG:
		dst = strconv.AppendInt(append(dst, ';'), base+8, 10)
		dst = append(dst, ";2;"...)
		dst = append(strconv.AppendInt(dst, v>>16, 10), ';')
		dst = append(strconv.AppendInt(dst, v>>8&255, 10), ';')
		dst = strconv.AppendInt(dst, v&255, 10)
	}
	return dst
}

// normal writes the last lines of the history and the normal screen.
func (p *painter) normal(history int) {
	t := p.t
	first := true
	t.hist.each(t.hist.lines-history, func(_ int, l storedLine) bool {
		if l.flags&lineASCII != 0 && l.flags&lineWrapped == 0 {
			p.newLine(first)
			p.storedASCII(l)
		} else {
			t.line2 = t.storedCells(t.line2[:0], l)
			p.line(t.line2, l.flags&lineWrapped != 0, first)
		}
		first = false
		return true
	})
	for y := range t.rows {
		r := t.normal.row(y)
		p.line(t.rowCells(r), r.wrapped, first)
		first = false
	}
}

// screen writes the rows of a screen that has no history, from the cursor on.
func (p *painter) screen(b *buffer) {
	p.x = 0
	for y := range p.t.rows {
		r := b.row(y)
		p.line(p.t.rowCells(r), r.wrapped, y == 0)
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
	p.x = 0
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
	if *s == s.erased() {
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
func (p *painter) line(cells []cell, wrapped, first bool) {
	if !wrapped || first {
		p.newLine(first)
	} else if !p.wrapsInto(cells) {
		p.wrapInto()
	}
	p.cells(cells)
}

// wrapsInto reports whether printing cells makes them a line that continues
// this one, and nothing else: what scrolls in looks like the pen's background.
func (p *painter) wrapsInto(cells []cell) bool {
	if len(cells) == 0 || !cells[0].hasContent() {
		return false
	}
	s := &p.t.styles.all[cells[0].style()]
	if s.bg&colorMask != 0 {
		return false
	}
	if p.x == p.t.cols-1 && cells[0].isWide() { // it wrapped early, and does so again
		return p.end == *s
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

// cells writes cells from the beginning of a line on. Empty ones of default
// look at its end are left as they are.
func (p *painter) cells(cells []cell) {
	t := p.t
	n := min(len(cells), t.cols)
	for n > 0 && cells[n-1] == 0 {
		n--
	}
	p.x, p.end = 0, style{}
	for p.x < n {
		c := cells[p.x]
		s := &t.styles.all[c.style()]
		if !c.hasContent() || c.isWide() && p.x == t.cols-1 {
			k := p.x + 1
			for k < n && !cells[k].hasContent() && cells[k].style() == c.style() {
				k++
			}
			if k == t.cols {
				if *s == s.erased() {
					p.emptyEnd(k-p.x, s)
				} else {
					p.emptyCells(k-p.x-1, s)
					p.halveEnd(cells, s)
					p.end = *s
				}
				return
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
	p.out = t.appendContent(p.out, c)
}

// tabs sets the tab stops, if they are not as they are at first.
func (p *painter) tabs(b *buffer) {
	t := p.t
	plain := true
	for x := range t.cols {
		if b.hasTab(x) != (x%8 == 0) {
			plain = false
			break
		}
	}
	if plain {
		return
	}
	p.add("\x1b[3g")
	for x := range t.cols {
		if b.hasTab(x) {
			p.csi('G', x+1)
			p.add("\x1bH")
		}
	}
}

// saved restores what DECSC has kept.
func (p *painter) saved(b *buffer, base int) {
	t, s := p.t, b.saved
	y := min(max(s.y-base, 0), t.rows-1)
	if s.x == 0 && y == 0 && s.pen == (style{}) && s.cs == nil {
		return
	}
	p.csi('H', y+1, min(s.x, t.cols-1)+1)
	pen := s.pen
	if pen.bg&bgExtended != 0 {
		if pen.fg&fgUnderline != 0 {
			pen.extended = 1 << underlineShift
		} else { // only a link can have been meant
			pen.link = &link{uri: "about:blank"}
		}
	}
	p.look(&pen)
	p.designate(0, s.cs)
	p.add("\x0f\x1b7")
	p.designate(0, nil)
	p.look(&style{})
}

func (p *painter) designate(g int, cs *charset) {
	d := byte('B')
	if cs != nil {
		d = cs.designator
	}
	p.out = append(p.out, 0x1b, "()*+"[g], d)
}

// keyboard restores a screen's flags of the kitty protocol.
func (p *painter) keyboard(k KittyKeyboard) {
	if k.Flags == 0 && len(k.Stack) == 0 {
		return
	}
	for i, flags := range append(k.Stack[:len(k.Stack):len(k.Stack)], k.Flags) {
		if i == 0 {
			p.add("\x1b[=" + strconv.Itoa(flags) + ";1u")
		} else {
			p.add("\x1b[>" + strconv.Itoa(flags) + "u")
		}
	}
}

// titles restores titles, icon names and the directory.
func (p *painter) titles() {
	t := p.t
	for _, s := range t.titleStack {
		p.add("\x1b]2;" + s + "\x1b\\\x1b[22;2t")
	}
	for _, s := range t.iconStack {
		p.add("\x1b]1;" + s + "\x1b\\\x1b[22;1t")
	}
	if t.title != "" || len(t.titleStack) > 0 {
		p.add("\x1b]2;" + t.title + "\x1b\\")
	}
	if t.icon != "" || len(t.iconStack) > 0 {
		p.add("\x1b]1;" + t.icon + "\x1b\\")
	}
	if t.workDir != "" {
		u := url.URL{Scheme: "file", Path: t.workDir}
		p.add("\x1b]7;" + u.String() + "\x1b\\")
	}
}

// colors restores the colours that were set.
func (p *painter) colors() {
	for n, rgb := range p.t.colors {
		if n < foreground {
			p.add("\x1b]4;" + strconv.Itoa(n) + ";")
		} else {
			p.add("\x1b]" + strconv.Itoa(10+n-foreground) + ";")
		}
		p.add(hexColor(rgb) + "\x1b\\")
	}
}

func hexColor(rgb uint32) string {
	return "#" + strconv.FormatUint(uint64(rgb)|1<<24, 16)[1:]
}

// modes restores the modes that do not change what printing does, whether they
// are on or off.
func (p *painter) modes() {
	t, m := p.t, &p.t.modes
	for _, mode := range [...]struct {
		n  int
		on bool
	}{
		{1, m.ApplicationCursor}, {12, m.CursorBlink}, {25, !m.CursorHidden}, {45, m.ReverseWrap},
		{66, m.ApplicationKeypad}, {1004, m.Focus}, {2004, m.BracketedPaste}, {2031, m.ColorScheme}, {9001, m.Win32Input},
	} {
		p.private(mode.n, mode.on)
	}
	mouse := map[string]int{"X10": 9, "VT200": 1000, "DRAG": 1002, "ANY": 1003}[m.Mouse]
	for _, n := range [...]int{9, 1000, 1002, 1003} {
		if n != mouse {
			p.private(n, false)
		}
	}
	if mouse != 0 {
		p.private(mouse, true)
	}
	encoding := map[string]int{"SGR": 1006, "SGR_PIXELS": 1016}[m.MouseEncoding]
	for _, n := range [...]int{1006, 1016} {
		if n != encoding {
			p.private(n, false)
		}
	}
	if encoding != 0 {
		p.private(encoding, true)
	}
	p.out = append(strconv.AppendInt(append(p.out, "\x1b["...), int64(m.CursorStyle), 10), " q"...)
	if n := t.keyboard.ModifyOtherKeys; n != 0 {
		p.add("\x1b[>4;" + strconv.Itoa(n) + "m")
	}
}

func (p *painter) private(n int, on bool) {
	p.out = strconv.AppendInt(append(p.out, "\x1b[?"...), int64(n), 10)
	p.out = append(p.out, modeFinal(on))
}

func modeFinal(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// region restores the scroll region.
func (p *painter) region(b *buffer) {
	if b.top != 0 || b.bot != p.t.rows-1 {
		p.csi('r', b.top+1, b.bot+1)
	}
}

// charsets restores the character sets. After DECRC the one in use may be
// another than the one shifted in: then DECRC is what brings it back.
func (p *painter) charsets() {
	t := p.t
	for g, cs := range t.gsets {
		if cs != nil {
			p.designate(g, cs)
		}
	}
	switch t.gl {
	case 1:
		p.add("\x0e")
	case 2:
		p.add("\x1bn")
	case 3:
		p.add("\x1bo")
	}
	if t.cs != t.gsets[t.gl] {
		p.add("\x1b8")
		p.lost = true
	}
}

// cursor restores the modes that change what printing does, the pen, and last
// the cursor. A wrap that is pending, and what a combining character or REP
// would refer to, come back by printing the last character again.
func (p *painter) cursor() {
	t, b, m := p.t, p.t.b, &p.t.modes
	p.private(7, m.Wraparound)
	p.csi(modeFinal(m.NewLine), 20)
	p.private(6, m.Origin)
	p.private(2026, m.Synchronized)
	y := b.y
	if m.Origin {
		y -= b.top
	}
	x, again := b.x, cell(0)
	if b.x == t.cols || t.join != 0 {
		if w := max(t.join.width(), 1); b.x-w >= 0 {
			cells := t.rowCells(b.row(b.y))
			at := min(b.x, t.cols) - 1
			if at > 0 && cells[at].isSpacer() {
				at--
			}
			if c := cells[at]; at+max(c.width(), 1) == b.x && t.printable(c) {
				x, again = at, cells[at]
			}
		}
	}
	if !again.hasContent() {
		x, again = b.x, 0
		if b.x == t.cols { // erased meanwhile
			p.emptyPending(y)
			return
		}
	}
	p.csi('H', y+1, x+1)
	// What was printed last has the pen's look; if it has another it cannot be
	// joined any more, and is printed for the wrap alone.
	joins := t.join != 0 && again.style() == t.penID && !m.Insert
	switch {
	case again == 0 || !joins && b.x < t.cols:
		if again != 0 {
			p.csi('H', y+1, b.x+1)
		}
		p.look(&t.pen)
	case joins:
		p.csi('l', 4)
		p.look(&t.pen)
		p.reprint(again)
		return
	default:
		p.look(&t.styles.all[again.style()])
		p.reprint(again)
		p.look(&t.pen)
	}
	p.csi(modeFinal(m.Insert), 4)
}

// emptyPending leaves a wrap pending in a row whose last column is empty. Only
// erasing the whole row leaves the cursor there; where the row has content, a
// blank at its end is what can be had.
func (p *painter) emptyPending(y int) {
	t := p.t
	row := t.rowCells(t.b.row(t.b.y))
	s := &t.styles.all[row[0].style()]
	same := *s == s.erased()
	for _, c := range row {
		same = same && c == row[0]
	}
	p.csi('H', y+1, t.cols)
	p.look(s)
	p.out = append(p.out, ' ')
	if same && !row[0].hasContent() {
		p.csi('K', 1)
	}
	p.look(&t.pen)
	p.csi(modeFinal(t.modes.Insert), 4)
}

// reprint prints a cell's text, by what gives it in the character set in use.
func (p *painter) reprint(c cell) {
	t := p.t
	if t.cs != nil && c&clusterBit == 0 {
		for b := byte(0x20); b < 0x7f; b++ {
			if t.cs.at(b) == rune(c&codeMask) {
				p.out = append(p.out, b)
				return
			}
		}
	}
	p.out = t.appendContent(p.out, c)
}
