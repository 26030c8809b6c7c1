package vt

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// A small change takes few bytes, and each of these transitions is exact.
func TestAppendTransition(t *testing.T) {
	long := strings.Repeat("0123456789", 2)
	for _, tt := range []struct{ name, before, more, want string }{
		{"nothing", "text", "", ""},
		{"no visible change", "text", "\x1b[1m\x1b[m\x1b[4G\x1b[Ct", "\x1b[1;5Ht"},
		{"a letter", "$ ", "l", "\x1b[1;3Hl"},
		{"letters", "$ ", "ls", "\x1b[1;3Hl\x1b[1;4Hs"},
		{"a letter before others", "$ abc\b\b", "x", "\x1b[1;4Hx"},
		{"an erased letter", "$ ab", "\b\x1b[K", "\x1b[1;4H\x1b[K\x1b[1;4H"},
		{"the cursor", "text", "\x1b[2;3H", "\x1b[2;3H"},
		{"the pen", "text", "\x1b[31m", "\x1b[1;5H\x1b[0;31m"},
		{"a colour", "text", "\x1b[31mred", "\x1b[1;5H\x1b[0;31mre\x1b[1;7Hd"},
		{"a wide character", "世界", "\x1b[1;2Hx", "\x1b[1H\x1b[K\x1b[1Cx界\x1b[1;2Hx"},
		{"a pending wrap", long[1:], "x", "\x1b[1;20Hx"},
		{"a row that continues", long, "x", "\x1b[1H\x1b[K\x1b[1H" + long + "x\x1b[2;1Hx"},
		{"more of such a row", long + "x", "y", "\x1b[2;2Hy"},
		{"the cursor is hidden", "a", "\x1b[?25l", "\x1b[?25l\x1b[1;2H"},
		{"the mouse", "", "\x1b[?1002;1006h", "\x1b[?1002h\x1b[?1006h"},
		{"another mouse", "\x1b[?1002h", "\x1b[?1003h", "\x1b[?1002l\x1b[?1003h"},
		{"a title", "", "\x1b]2;t\x07", "\x1b]2;t\x1b\\"},
		{"a title from the stack", "\x1b]2;a\x07\x1b[22;2t\x1b]2;b\x07", "\x1b[23;2t", "\x1b[23;2t\x1b]2;a\x1b\\"},
		{"no title, pushed", "", "\x1b[22;0;0t", "\x1b[22;2t\x1b[22;1t"},
		{"no title, from the stack", "\x1b[22;2t\x1b]2;b\x07", "\x1b[23;2t", "\x1b[23;2t"},
		{"colours", "\x1b]4;1;#010203\x07\x1b]11;#010203\x07", "\x1b]104\x07\x1b]111\x07\x1b]12;#010203\x07", "\x1b]104;1\x1b\\\x1b]111\x1b\\\x1b]12;#010203\x1b\\"},
		{"a directory", "", "\x1b]7;file:///tmp\x07", "\x1b]7;file:///tmp\x1b\\"},
		{"the keyboard", "\x1b[>1u", "\x1b[>3u\x1b[>4;1m", "\x1b[<99u\x1b[=0;1u\x1b[>1u\x1b[>3u\x1b[>4;1m"},
		{"the keyboard as at first", "\x1b[>1u\x1b[>4;1m", "\x1b[<u\x1b[>4m", "\x1b[<99u\x1b[>4;0m"},
		{"grapheme clusters", "", "\x1b[?2027h", "\x1b[?2027h"},
		{"a sequence that continues", "\x1b[3", "1", "1"},
		{"a sequence that ends", "\x1b[3", "1m", "\x18\x1b[1;1H\x1b[0;31m"},
		{"a character that ends", "\xc3", "\xa9", "\x18\x1b[1;1Hé"},
		{"a saved cursor", "text", "\x1b7", "\x1b[1;5H\x1b(B\x0f\x1b7\x1b(B\x1b[1;5H"},
		{"a mark", "text", "\x1b]133;A\x07", "\x1b[1H\x1b[Ktext\x1b]133;A\x1b\\\x1b[1;5H"},
		{"a mark that was erased", "\x1b]133;A\x07$ \x1b[1;1H", "\x1b[2J$ ", "\x1b[1H\x1b[4M\x1b[1H$\x1b[1;2H "},
		{"two rows", "", "a\r\nb", "\x1b[?2026h\x1b[1Ha\x1b[?2026l\x1b[2;1Hb"},
		{"a screen that scrolls", "1\r\n2\r\n3\r\n4", "\r\n5", "\x1b[?2026h\x1b[1H\x1b[1M\x1b[?2026l\x1b[4;1H5"},
		{"a screen that scrolls back", "\r\n2\r\n3\r\n4\x1b[H1\x1b[H", "\x1bM0", "\x1b[?2026h\x1b[1H\x1b[1L\x1b[?2026l\x1b[1;1H0"},
		{"a frame that is not over", "", "\x1b[?2026ha\r\nb", "\x1b[?2026h\x1b[1Ha\x1b[2;1Hb"},
		{"insertion", "text\x1b[1;1H", "\x1b[4h", "\x1b[1;1H\x1b[4h"},
		{"a region", "", "\x1b[2;3r", "\x1b[2;3r\x1b[1;1H"},
		{"the alternate screen", "text", "\x1b[?1047h", "\x1b[?2026h\x1b[1;1H\x1b(B\x0f\x1b[?1049h\x1b(B\x1b[?1047l\x1b[1;5H\x1b[?1047h\x1b[1;1H\x1b(B\x0f\x1b7\x1b(B\x1b[<99u\x1b[?2026l\x1b[1;5H"},
		{"back from it", "text\x1b[?1047h\x1b[Hmore", "\x1b[?1047l\x1b[1;5H", "\x1b[?2026h\x1b[?1049l\x1b(B\x0f\x1b[?2026l\x1b[1;5H\x1b[0m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to := New(Config{Cols: 20, Rows: 4}), New(Config{Cols: 20, Rows: 4})
			from.Write([]byte(tt.before))
			to.Write([]byte(tt.before + tt.more))
			got := to.AppendTransition([]byte("before"), from, Shows{})
			if string(got) != "before"+tt.want {
				t.Errorf("%q, then %q: got %q, want %q", tt.before, tt.more, got[len("before"):], tt.want)
			}
			from.Write(got[len("before"):])
			if rest := to.AppendTransition(nil, from, Shows{}); len(rest) > 0 {
				t.Errorf("%q, then %q: after %q the transition is not empty: %q", tt.before, tt.more, tt.want, rest)
			}
			if is, was := from.State(), to.State(); !reflect.DeepEqual(is.Normal, was.Normal) || is.Modes != was.Modes || is.Title != was.Title {
				t.Errorf("the transition leads to\n%+v\nwant\n%+v", is, was)
			}
			for y := range 4 {
				if is, was := from.normal.row(y).marks, to.normal.row(y).marks; len(is) != len(was) {
					t.Errorf("row %d has the marks %v, want %v", y, is, was)
				}
			}
		})
	}
}

// FuzzTransition checks for two terminals with arbitrary output that a transition from one to the other has no query,
// no bell and no new line of history, and that a copy needs no transition.
func FuzzTransition(f *testing.F) {
	f.Add([]byte("a"), []byte("b"))
	f.Add([]byte("\x1b[?1049h\x1b[31mfull"), []byte("\x1b]133;A\x07$ \x1b7\xc3"))
	f.Add([]byte("\x1b]2;t\x07\x1b[22;0t\x1b[>1u"), []byte("\x1b(0q\x1b[4h\x1b[2;3r\x1b[?6h"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		bells := 0
		from := New(Config{Cols: 12, Rows: 5, HistoryLines: 10, Events: func(e Event) {
			if e.Kind == Bell {
				bells++
			}
		}})
		to := New(Config{Cols: 12, Rows: 5})
		from.Write(a)
		to.Write(b)
		from.Replies()
		bells = 0
		history, first := from.HistoryLines(), from.hist.first
		p := to.AppendTransition(nil, from, Shows{})
		from.Write(p)
		if from.HistoryLines() != history || from.hist.first != first || bells > 0 {
			t.Fatalf("%q: %d lines of history were %d, %d bells", p, from.HistoryLines(), history, bells)
		}
		if r := from.Replies(); len(r) > 0 {
			t.Fatalf("%q is answered with %q", p, r)
		}
		if rest := to.Copy(0).AppendTransition(nil, to, Shows{}); len(rest) > 0 {
			t.Fatalf("a copy differs: %q", rest)
		}
	})
}

// After each of several transitions the rows of a viewer's terminal continue the rows above as the session's do. Only
// the first row is not compared, because a snapshot cannot tell whether it continues a row.
func TestTransitionsKeepWraps(t *testing.T) {
	parts := []string{
		"\x1b[1L", "\x1b[2L", "\x1b[1M", "\x1bM", "\x1b[T", "\x1b[H", "\x1b[2;1H", "\x1b[3;1H", "\x1b[K", "\r\n",
		"x", "abcdefghijkl", "0123456789ABCDEFGHIJKLMNOP",
	}
	some := func(r *rand.Rand, n int) (text string) {
		for range 1 + r.IntN(n) {
			text += parts[r.IntN(len(parts))]
		}
		return text
	}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(1, seed))
		term, viewer := New(Config{Cols: 6, Rows: 5, HistoryLines: 10}), New(Config{Cols: 6, Rows: 5})
		in := some(r, 6)
		term.Write([]byte(in))
		viewer.Write(term.AppendSnapshot(nil, 0, Shows{}))
		for range 3 {
			was := term.Copy(5)
			more := some(r, 3)
			in += more
			term.Write([]byte(more))
			update := term.AppendTransition(nil, was, Shows{})
			viewer.Write(update)
			for y := 1; y < 5; y++ {
				if got, want := viewer.normal.row(y).wrapped, term.normal.row(y).wrapped; got != want {
					t.Fatalf("seed %d: after %q, with the last update %q: row %d continues the one above: %v, want %v", seed, in, update, y, got, want)
				}
			}
		}
	}
}
