package vt

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// If a line of the history is painted from its text, the bytes are the same as if it was painted from its cells.
func TestStoredLine(t *testing.T) {
	pieces := []string{
		"plain text and more of it ", "\r\n", "\r\n", "\n\n", "a", " ", "é", "中文字符测试", "\u3000", "e\u0301\u0302", "\u0301", "\U0001f468\u200d\U0001f469", "\x1b[?2027h", "\x1b[?2027l",
		"\x1b[31mr\x1b[42mg", "\x1b[m", "\x1b[44m", "\x1b[7m", "\x1b[4m", "\x1b[49m", "\x1b[1\"qx", "\x1b]8;;http://x/y\x1b\\L", "\x1b]8;;\x1b\\", "\x1b]133;A\a$ ",
		"\x1b['}\x1b['~", "\x1b[ @", "\x1b[ A", "\x1b[44m\x1b[K", "\x1b[H", "\x1b[9b", "\x1b[3C", "\x1b[12C中", "\x1b[K", "\x1b[5X", "\x1b[1@", "\x1b[1P", "\b", "\x1b[5G",
		"\x1b[4h\x1b[G中", "\x1b[4l", "\x1b[?7l", "\x1b[?7h", "\x1b7", "\x1b8",
	}
	painted, lines := 0, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		term := New(Config{Cols: 2 + r.IntN(30), Rows: 1 + r.IntN(4), HistoryLines: 30})
		for range r.IntN(80) {
			term.Write([]byte(pieces[r.IntN(len(pieces))]))
			if r.IntN(60) == 0 {
				term.Resize(2+r.IntN(30), 1+r.IntN(4))
			}
			if r.IntN(60) == 0 {
				term.Pack()
			}
		}
		text, cells := painter{t: term}, painter{t: term}
		term.hist.each(0, func(i int, l storedLine) bool {
			row := term.storedCells(nil, l)
			cells.line(row, l.marks, l.flags&lineWrapped != 0, i == 0)
			lines++
			if !text.storedLine(l, i == 0) {
				text.line(row, l.marks, l.flags&lineWrapped != 0, i == 0)
			} else if painted++; term.oddCells(row) {
				t.Fatalf("seed %d: line %d is painted from its text %q, but it is odd", seed, i, l.text)
			}
			if !bytes.Equal(text.out, cells.out) || text.x != cells.x || text.pen != cells.pen || text.joins != cells.joins || !sameStyle(&text.end, &cells.end) {
				t.Fatalf("seed %d: line %d, with the text %q, is painted as %q, want %q", seed, i, l.text, text.out, cells.out)
			}
			return true
		})
	}
	if painted < lines/2 {
		t.Errorf("%d of %d lines were painted from their text, want at least half", painted, lines)
	}
}
