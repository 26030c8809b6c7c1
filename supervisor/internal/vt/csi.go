package vt

import "unicode/utf8"

// esc executes an escape sequence. seq holds its intermediates and, in the lowest byte, its
// final byte.
func (t *Term) esc(seq uint32) {
	if seq < 0x80 {
		switch seq {
		case '7':
			t.saveCursor()
		case '8':
			t.restoreCursor()
		case 'D':
			t.index()
		case 'E':
			t.b.x = 0
			t.index()
		case 'H':
			t.setTab()
		case 'M':
			t.reverseIndex()
		case '=':
			t.modes.ApplicationKeypad = true
		case '>':
			t.modes.ApplicationKeypad = false
		case 'Z':
			t.reply("\x1b[?1;2c")
		case 'c':
			t.hardReset()
		case 'n', '}':
			t.shift(2)
		case 'o', '|':
			t.shift(3)
		case '~':
			t.shift(1)
		}
		return
	}
	final := byte(seq)
	switch seq >> 8 {
	case '(':
		t.designateKnown(0, final)
	case ')', '-':
		t.designateKnown(1, final)
	case '*', '.':
		t.designateKnown(2, final)
	case '+':
		t.designateKnown(3, final)
	case '%':
		if final == '@' || final == 'G' {
			t.shift(0)
			t.designate(0, nil)
		}
	case '#':
		if final == '8' {
			t.align()
		}
	}
}

func (t *Term) designateKnown(g int, designator byte) {
	if knownCharset(designator) {
		t.designate(g, charsetFor(designator))
	}
}

// csi executes a control sequence. seq holds its prefix, its intermediates and, in the lowest
// byte, its final byte. A count may have any size: each function bounds it by the largest
// count that has an effect.
func (t *Term) csi(seq uint32) {
	p := &t.par
	b := t.b
	n := p.at(0, 1)
	switch seq {
	case '@':
		t.insertChars(n)
	case 'A':
		t.cursorUp(n)
	case 'B':
		t.cursorDown(n)
	case 'C', 'a':
		t.moveCursor(n, 0)
	case 'D':
		t.moveCursor(-n, 0)
	case 'E':
		t.cursorDown(n)
		b.x = 0
	case 'F':
		t.cursorUp(n)
		b.x = 0
	case 'G', '`':
		t.setCursor(n-1, b.y)
	case 'H', 'f':
		t.setCursor(p.at(1, 1)-1, n-1)
	case 'I':
		if b.x < t.cols {
			b.x = t.nextTab(n)
		}
	case 'J':
		t.eraseInDisplay(int(p.v[0]), false)
	case '?'<<8 | 'J':
		t.eraseInDisplay(int(p.v[0]), true)
	case 'K':
		t.eraseInLine(int(p.v[0]), false)
	case '?'<<8 | 'K':
		t.eraseInLine(int(p.v[0]), true)
	case 'L':
		t.insertLines(n)
	case 'M':
		t.deleteLines(n)
	case 'P':
		t.deleteChars(n)
	case 'S':
		t.deleteRows(b.top, n, t.eraseID)
	case 'T':
		t.insertRows(b.top, n, 0)
	case 'X':
		t.eraseChars(n)
	case 'Z':
		if b.x < t.cols {
			b.x = t.previousTab(n)
		}
	case 'b':
		t.repeat(n)
	case 'd':
		t.setCursor(b.x, n-1)
	case 'e':
		t.moveCursor(0, n)
	case 'g':
		t.clearTab(int(p.v[0]))
	case 'h':
		t.setModes(ansiModes, true)
	case 'l':
		t.setModes(ansiModes, false)
	case '?'<<8 | 'h':
		t.setModes(privateModes, true)
	case '?'<<8 | 'l':
		t.setModes(privateModes, false)
	case 'm':
		t.sgr()
	case '>'<<8 | 'm':
		t.setModifyOtherKeys()
	case 'r':
		t.setRegion()
	case 's':
		t.saveCursor()
	case 't':
		t.windowOp()
	case 'u':
		t.restoreCursor()
	case '='<<8 | 'u', '>'<<8 | 'u', '<'<<8 | 'u', '?'<<8 | 'u':
		t.kitty(byte(seq >> 8))
	case ' '<<8 | '@':
		t.shiftColumns(0, n, false)
	case ' '<<8 | 'A':
		t.shiftColumns(0, n, true)
	case '\''<<8 | '}':
		t.shiftColumns(b.x, n, true)
	case '\''<<8 | '~':
		t.shiftColumns(b.x, n, false)
	case '!'<<8 | 'p':
		t.softReset()
	case '"'<<8 | 'q':
		t.setProtected(int(p.v[0]))
	case ' '<<8 | 'q':
		t.setCursorStyle(int(p.v[0]))
	default:
		t.answerQuestion(seq)
	}
}

// setRegion executes DECSTBM.
func (t *Term) setRegion() {
	top, bot := t.par.at(0, 1), t.par.at(1, t.rows)
	if bot > t.rows {
		bot = t.rows
	}
	if bot > top {
		t.b.top, t.b.bot = top-1, bot-1
		t.setCursor(0, 0)
	}
}

func (t *Term) setProtected(n int) {
	switch n {
	case 1:
		t.pen.bg |= bgProtected
		t.protected = true
	case 0, 2:
		t.pen.bg &^= bgProtected
	}
	t.penChanged()
}

func (t *Term) setCursorStyle(n int) {
	switch s := &t.modes.CursorStyle; {
	case n <= 6:
		*s = n
	case *s > 0: // as in xterm.js, an unknown style changes only the blinking
		*s = (*s - 1) | 1 + 1 - n&1
	}
}

// REP prints at most as many bytes as repeatRows rows have columns, or repeatMin if that is
// more. Without a bound a few bytes could fill any history.
const (
	repeatRows = 4
	repeatMin  = 300
)

// repeat executes REP: it prints the character before the sequence n more times.
func (t *Term) repeat(n int) {
	if t.join == 0 {
		return
	}
	x := t.b.x - t.join.width()
	r := t.b.row(t.b.y)
	if x < 0 || x >= r.n {
		return
	}
	var c cell
	switch ch, _ := utf8.DecodeLastRune(r.text); {
	case r.inCells:
		c = r.cells[x]
	case r.ascii:
		c = cell(r.text[x])
	case x+2 == r.n && ch >= utf8.RuneSelf && runeWidth(ch) == 2: // the row may stay in text form
		c = cell(ch) | wideCell
	default:
		t.toCells(r)
		c = r.cells[x]
	}
	if !c.hasContent() {
		return
	}
	var buf [maxCluster]byte
	text := t.appendContent(buf[:0], c)
	n = min(n, max(repeatRows*t.cols, repeatMin)/len(text)+1)
	var line [512]byte
	copies := min(n, len(line)/len(text))
	for k := copy(line[:], text); k < copies*len(text); {
		k += copy(line[k:copies*len(text)], line[:k])
	}
	t.printing = false
	t.work += n
	t.following = n * t.columnsOfEach(text)
	for ; n > 0; n -= copies {
		t.printAll(line[:min(n, copies)*len(text)])
	}
	t.following = 0
}

// columnsOfEach returns the number of columns that each of several equal texts takes. It returns 0
// if they do not take the same number, or may join each other or the character before them.
func (t *Term) columnsOfEach(text []byte) int {
	ch, size := utf8.DecodeRune(text)
	if size < len(text) {
		return 0
	}
	if ch < 0x7f && t.cs != nil {
		ch = t.cs.at(byte(ch))
	}
	first := joinWidth(ch, t.join, t.modes.Graphemes)
	next := joinWidth(ch, first, t.modes.Graphemes)
	if first.joins() || next.joins() || first.width() != next.width() || joinWidth(ch, next, t.modes.Graphemes) != next {
		return 0
	}
	return first.width()
}

// printAll prints p, which must be UTF-8 without controls.
func (t *Term) printAll(p []byte) {
	for len(p) > 0 {
		n := asciiRun(p)
		if n > 0 {
			t.print(p[:n])
		} else if n = t.printText(p); n == 0 {
			var ch rune
			ch, n = utf8.DecodeRune(p)
			t.printRune(ch)
			t.printed()
		}
		p = p[n:]
	}
}
