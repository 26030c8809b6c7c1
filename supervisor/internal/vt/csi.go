package vt

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

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

// REP prints at most as many columns as a row has, and at most as many bytes as repeatRows rows have columns, or
// repeatMin if that is more. Without a bound a few bytes could fill any history.
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
	var buf [maxCluster]byte
	text := buf[:0]
	if i := lastCharacter(r); r.ascii {
		text = append(text, r.text[x])
	} else if i >= 0 && t.b.x == r.n { // the row stays in text form
		text = append(text, r.text[i:]...)
	} else {
		t.toCells(r)
		text = t.appendContent(text, r.cells[x])
	}
	if len(text) == 0 || text[0] == markEmpty {
		return
	}
	n = min(n, max(t.cols, repeatMin)/max(t.join.width(), 1), max(repeatRows*t.cols, repeatMin)/len(text)+1)
	t.printing = false
	t.work += n
	if len(text) == 1 && t.cs == nil && t.join == narrow && (t.modes.Wraparound || !t.modes.Insert) {
		var line [512]byte
		setBytes(line[:min(n, len(line))], text[0])
		for ; n > 0; n -= len(line) {
			t.print(line[:min(n, len(line))])
		}
		return
	}
	for n > 0 {
		x, before := t.b.x, t.join
		t.printAll(text)
		n--
		switch w := t.b.x - x; {
		case t.join != before:
		case w > 0 && w <= 2:
			// The next characters have the effect of this one, as long as the row has room for them.
			k := min(n, (t.cols-t.b.x)/w)
			t.printAgain(text, w, k)
			n -= k
		case w == 0 && !t.modes.Wraparound && !t.b.uneven:
			return // the row is full
		}
	}
}

// lastCharacter returns the index of the last character of a row in the text form, with the combining characters behind
// it. It returns -1 if the row has another form, or ends with a mark.
func lastCharacter(r *row) int {
	i := len(r.text)
	for i > 0 && !r.inCells {
		ch, n := utf8.DecodeLastRune(r.text[:i])
		if i -= n; ch < 0x20 {
			break
		}
		if runeWidth(ch) > 0 {
			return i
		}
	}
	return -1
}

// printAgain prints n copies of the character before the cursor, which has w columns and was just printed as text. The
// row must have room for them.
func (t *Term) printAgain(text []byte, w, n int) {
	if n == 0 {
		return
	}
	b := t.b
	r := b.row(b.y)
	if t.modes.Insert {
		t.insertAtCursor(r, n*w, w)
	}
	from := b.x
	b.x += n * w
	if !r.inCells && from == r.n && bytes.HasSuffix(r.text, text) {
		at := len(r.text)
		r.text = slices.Grow(r.text, n*len(text))[:at+n*len(text)]
		copy(r.text[at:], text)
		repeatFirst(r.text[at:], len(text))
		r.n = b.x
		return
	}
	t.toCells(r)
	r.reach(b.x)
	repeatFirst(r.cells[from-w:b.x], w)
	t.mendRight(r)
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
