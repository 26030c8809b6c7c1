package vt

import (
	"math"
	"unicode/utf8"
)

// A textPainter writes a line of the history in its text form. To decode the line to cells and
// to paint these would take several times as long. The bytes are the same.
type textPainter struct {
	p       *painter
	l       storedLine
	first   bool // it is the first line of the snapshot
	begun   bool // the move to the line's beginning is written
	at      int  // offset in the text
	skipped int  // columns of the markSkip at this offset that are done
	x       int  // columns that are done; those from p.x on are empty and not written yet
	gap     style
	last    style // of the last empty column
	plain   int   // columns of default style at the end of the empty ones
}

// storedLine writes a line of the history, and returns true. It returns false, and writes nothing,
// if cells must be made of the line: it has marks, or cells that are written in special ways.
func (p *painter) storedLine(l storedLine, first bool) bool {
	if l.flags&lineMarked != 0 || p.hidesIn(l.text) {
		return false
	}
	before := *p
	w := textPainter{p: p, l: l, first: first}
	var s style
	done := true
	l.eachRun(func(col int, next style) {
		done = done && w.until(col, &s)
		s = next
	})
	if done && w.until(math.MaxInt, &s) && w.finish() {
		return true
	}
	out := p.out[:len(before.out)]
	*p = before
	p.out = out
	return false
}

// until writes the columns before col, which have the style s. It returns false if cells must be
// made of the line.
func (w *textPainter) until(col int, s *style) bool {
	for text := w.l.text; w.x < col && w.at < len(text); {
		switch b := text[w.at]; {
		case b > markLast:
			if !w.content(col, s) {
				return false
			}
		case b == markEmpty:
			n := 1
			for n < col-w.x && w.at+n < len(text) && text[w.at+n] == markEmpty {
				n++
			}
			w.at += n
			w.empty(n, s)
		case b == markSkip:
			n := int(text[w.at+1]) | int(text[w.at+2])<<8 - w.skipped
			if n > col-w.x {
				n = col - w.x
				w.skipped += n
			} else {
				w.at, w.skipped = w.at+3, 0
			}
			w.empty(n, s)
		default:
			return false
		}
	}
	return w.x <= w.p.t.cols
}

// begin moves to the beginning of the line. width is that of its first character, or 0 if the line
// does not begin with a character.
func (w *textPainter) begin(width int, s *style) {
	p := w.p
	if w.l.flags&lineWrapped == 0 || w.first {
		p.newLine(w.first)
	} else if !p.wrapsBefore(width, s) {
		p.wrapInto()
	}
	p.x, p.end = 0, style{}
	w.begun = true
}

// content writes the characters at the offset that are before the column col.
func (w *textPainter) content(col int, s *style) bool {
	p, text := w.p, w.l.text
	if w.l.flags&lineASCII == 0 && p.t.modes.Graphemes != p.flipped {
		return w.clusters(col, s)
	}
	at, x, width := w.at, w.x, 1
	for at < len(text) {
		b := text[at]
		if b < utf8.RuneSelf {
			if b <= markLast || x >= col {
				break
			}
			n := min(max(asciiRun(text[at:]), 1), col-x)
			at, x = at+n, x+n
			continue
		}
		ch, size := utf8.DecodeRune(text[at:])
		n := tableWidth(ch)
		switch {
		case at == w.at:
			width = n
		case n > 0 && x >= col:
			size = 0
		}
		if size == 0 {
			break
		}
		at, x = at+size, x+n
	}
	if width == 0 || x > col || x > p.t.cols {
		return false
	}
	w.start(width, s)
	w.put(at, x, text[w.at] < utf8.RuneSelf)
	return true
}

// clusters writes the same as content for a terminal in which mode 2027 is set. A cell of more than
// ASCII has a control before it, so that it does not join the cell before it.
func (w *textPainter) clusters(col int, s *style) bool {
	p, text := w.p, w.l.text
	for w.at < len(text) && w.x < col && text[w.at] > markLast {
		at := w.at
		if n := min(asciiRun(text[at:]), col-w.x); n > 0 {
			if at+n < len(text) && text[at+n] >= utf8.RuneSelf {
				n-- // the last character may have others that combine with it
			}
			if n > 0 {
				if w.x+n > p.t.cols {
					return false
				}
				w.start(1, s)
				w.put(at+n, w.x+n, true)
				continue
			}
		}
		ch, size := utf8.DecodeRune(text[at:])
		width, state := runeWidth(ch), joinWidth(ch, 0, true)
		for at += size; at < len(text) && text[at] >= utf8.RuneSelf; at += size {
			if ch, size = utf8.DecodeRune(text[at:]); tableWidth(ch) > 0 {
				break
			}
			if state = joinWidth(ch, state, true); !state.joins() {
				return false
			}
		}
		if width == 0 || state.width() != width || w.x+width > min(col, p.t.cols) {
			return false
		}
		w.start(width, s)
		if at == w.at+1 {
			w.put(at, w.x+1, true)
			continue
		}
		p.add("\x0f")
		w.put(at, w.x+width, false)
		p.joins = true
	}
	return true
}

// start prepares the terminal for a character of so many columns in the style s.
func (w *textPainter) start(width int, s *style) {
	p := w.p
	if !w.begun {
		w.begin(width, s)
	}
	if n := w.x - p.x; n > 0 {
		p.emptyCells(n, &w.gap)
	}
	p.setPen(s)
}

// put writes the text up to the offset at, behind which is the column x.
func (w *textPainter) put(at, x int, ascii bool) {
	p := w.p
	if p.joins && ascii {
		p.add("\x0f")
	}
	p.joins = false
	p.out = append(p.out, w.l.text[w.at:at]...)
	p.x, w.x, w.at = x, x, at
}

// empty counts n empty columns.
func (w *textPainter) empty(n int, s *style) {
	p := w.p
	if !w.begun {
		w.begin(0, s)
	}
	switch have := w.x - p.x; {
	case have == 0:
		w.gap, w.plain = *s, 0
	case !sameStyle(&w.gap, s):
		p.emptyCells(have, &w.gap)
		w.gap, w.plain = *s, 0
	}
	w.last = *s
	if *s == (style{}) {
		w.plain += n
	} else {
		w.plain = 0
	}
	w.x += n
}

// finish writes the empty columns at the end, except for those of default style.
func (w *textPainter) finish() bool {
	p := w.p
	if !w.begun {
		w.begin(0, &style{})
	}
	n := w.x - p.x - w.plain
	switch {
	case w.x == p.x || n == 0:
	case w.x < p.t.cols || w.plain > 0:
		p.emptyCells(n, &w.gap)
	case w.gap.isErased() && w.last.isErased():
		p.emptyEnd(n, &w.gap)
	default:
		return false
	}
	return true
}
