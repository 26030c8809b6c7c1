package vt_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

// allLines returns all lines of a terminal, oldest first.
func allLines(t *vt.Term) []vt.HistoryLine {
	lines := t.LinesBefore(math.MaxUint64, math.MaxInt, math.MaxInt)
	slices.Reverse(lines)
	return lines
}

// listed returns lines as "number text", followed by < if the beginning or the end is missing, and by > if the line
// is open.
func listed(lines []vt.HistoryLine) (out []string) {
	for _, l := range lines {
		s := fmt.Sprint(l.Number)
		if l.Cut {
			s += "<"
		}
		if l.Open {
			s += ">"
		}
		out = append(out, s+" "+l.Text)
	}
	return out
}

func TestLineNumbers(t *testing.T) {
	const abc = "a\r\nb\r\nc\r\n"
	resize := func(cols, rows int) vttest.Step { return vttest.Step{Cols: cols, Rows: rows} }
	write := func(s string) vttest.Step { return vttest.Step{Write: []byte(s)} }
	long := write("0123456789")
	for _, tt := range []struct {
		name    string
		history int
		steps   []vttest.Step // at 4x2
		want    []string
		numbers [3]uint64
	}{
		{"nothing", 9, nil, []string{"0> ", "1> "}, [3]uint64{0, 0, 2}},
		{"lines", 9, []vttest.Step{write(abc)}, []string{"0 a", "1 b", "2> c", "3> "}, [3]uint64{0, 2, 4}},
		{"wrapped", 9, []vttest.Step{long, write("\r\n\n")}, []string{"0 0123456789", "1> ", "2> "}, [3]uint64{0, 1, 3}},
		{"from the history to the screen", 9, []vttest.Step{write("a\r\n"), long}, []string{"0 a", "1> 0123456789"}, [3]uint64{0, 2, 2}},
		{"wider", 9, []vttest.Step{long, write("\r\nb\r\nc"), resize(9, 2)}, []string{"0 0123456789", "1> b", "2> c"}, [3]uint64{0, 1, 3}},
		{"narrower", 9, []vttest.Step{long, write("\r\nb\r\nc"), resize(2, 2)}, []string{"0 0123456789", "1> b", "2> c"}, [3]uint64{0, 1, 3}},
		{"higher and lower", 9, []vttest.Step{write(abc), resize(4, 4), resize(4, 2)}, []string{"0 a", "1 b", "2> c", "3> "}, [3]uint64{0, 2, 4}},
		{"higher", 9, []vttest.Step{write(abc), resize(4, 4)}, []string{"0> a", "1> b", "2> c", "3> "}, [3]uint64{0, 0, 4}},
		{"the oldest forgotten", 2, []vttest.Step{write(abc + abc)}, []string{"3 a", "4 b", "5> c", "6> "}, [3]uint64{3, 5, 7}},
		{"a beginning forgotten", 2, []vttest.Step{long, write("\r\n\n")}, []string{"0< 456789", "1> ", "2> "}, [3]uint64{0, 1, 3}},
		{"a beginning forgotten up to the screen", 2, []vttest.Step{long, long}, []string{"0<> 4567890123456789"}, [3]uint64{0, 1, 1}},
		{"none kept", 0, []vttest.Step{write(abc)}, []string{"2> c", "3> "}, [3]uint64{2, 2, 4}},
		{"none kept, wrapped", 0, []vttest.Step{write("a\r\n"), long, write("\r\nb")}, []string{"1<> 89", "2> b"}, [3]uint64{1, 1, 3}},
		{"ED 3", 9, []vttest.Step{write(abc + "\x1b[3J")}, []string{"2> c", "3> "}, [3]uint64{2, 2, 4}},
		{"ED 3, wrapped", 9, []vttest.Step{write("a\r\n"), long, write("\x1b[3J")}, []string{"1<> 456789"}, [3]uint64{1, 1, 2}},
		{"ED 3 and more", 9, []vttest.Step{write("a\r\n"), long, write("\x1b[3J\r\nb\r\nc\r\n")}, []string{"1< 456789", "2 b", "3> c", "4> "}, [3]uint64{1, 3, 5}},
		{"ED 3 twice", 9, []vttest.Step{write("a\r\n"), long, write("\x1b[3J\x1b[3J")}, []string{"1<> 456789"}, [3]uint64{1, 1, 2}},
		{"ED 2 and 3", 9, []vttest.Step{long, write("\x1b[H\x1b[2J\x1b[3J")}, []string{"1> ", "2> "}, [3]uint64{1, 1, 3}},
		{"ED 3 of the alternate screen", 9, []vttest.Step{write(abc + "\x1b[?1049hx\x1b[3J")}, []string{"0 a", "1 b", "2> c", "3> "}, [3]uint64{0, 2, 4}},
		{"RIS", 9, []vttest.Step{write(abc + "\x1bcd")}, []string{"2> d", "3> "}, [3]uint64{2, 2, 4}},
		{"RIS, wrapped", 9, []vttest.Step{long, write("\x1bcd\x1bc")}, []string{"1> ", "2> "}, [3]uint64{1, 1, 3}},
		{"a beginning deleted", 9, []vttest.Step{write("01234567\r\x1b[A\x1b[M")}, []string{"0<> 4567", "1> "}, [3]uint64{0, 0, 2}},
		{"a line erased whose beginning is above", 9, []vttest.Step{long, write("\x1b[H\x1b[2J")}, []string{"0 0123", "1> ", "2> "}, [3]uint64{0, 1, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, pack := range []bool{false, true} {
				term := vt.New(vt.Config{Cols: 4, Rows: 2, HistoryLines: tt.history})
				for _, s := range tt.steps {
					vttest.Do(term, []vttest.Step{s})
					if pack {
						term.Pack()
					}
				}
				var numbers [3]uint64
				numbers[0], numbers[1], numbers[2] = term.LineNumbers()
				if got := listed(allLines(term)); !slices.Equal(got, tt.want) || numbers != tt.numbers {
					t.Errorf("packed %t: got %q and %d, want %q and %d", pack, got, numbers, tt.want, tt.numbers)
				}
			}
		})
	}
}

func TestLineText(t *testing.T) {
	red, inverse := vt.Attr{Fg: 1<<24 | 1}, vt.Attr{Flags: vt.Inverse}
	link := vt.Attr{URI: "http://x/", LinkID: "1"}
	runs := func(r ...vt.TextRun) []vt.TextRun { return r }
	for _, tt := range []struct {
		name, in, text string
		runs           []vt.TextRun
	}{
		{"blanks at the end", "ab  ", "ab", runs(vt.TextRun{2, vt.Attr{}})},
		{"a gap", "a\x1b[4Gb", "a  b", runs(vt.TextRun{4, vt.Attr{}})},
		{"erased", "abcdef\r\x1b[4X", "    ef", runs(vt.TextRun{6, vt.Attr{}})},
		{"erased at the end", "abcdef\x1b[4G\x1b[K", "abc", runs(vt.TextRun{3, vt.Attr{}})},
		{"red", "a\x1b[31mbc\x1b[md", "abcd", runs(vt.TextRun{1, vt.Attr{}}, vt.TextRun{3, red}, vt.TextRun{4, vt.Attr{}})},
		{"inverse blanks at the end", "a\x1b[7m  \x1b[m  ", "a  ", runs(vt.TextRun{1, vt.Attr{}}, vt.TextRun{3, inverse})},
		{"a background up to the end", "a\x1b[41m\x1b[K\x1b[m", "a         ", runs(vt.TextRun{1, vt.Attr{}}, vt.TextRun{10, vt.Attr{Bg: 1<<24 | 1}})},
		{"a style across a wrap", "\x1b[31m0123456789ab\x1b[m", "0123456789ab", runs(vt.TextRun{12, red})},
		{"links of one name", "\x1b]8;id=1;http://x/\ax\x1b]8;;\a\x1b]8;id=1;http://x/\ay\x1b]8;;\a", "xy", runs(vt.TextRun{2, link})},
		{"wide", "日本\x1b[31m語\x1b[mx", "日本語x", runs(vt.TextRun{6, vt.Attr{}}, vt.TextRun{9, red}, vt.TextRun{10, vt.Attr{}})},
		{"wide without room at the end", "012345678日x", "012345678日x", runs(vt.TextRun{13, vt.Attr{}})},
		{"half a wide one", "日本\r x", " x本", runs(vt.TextRun{5, vt.Attr{}})},
		{"combining", "e\u0301\x1b[31me\u0301", "e\u0301e\u0301", runs(vt.TextRun{3, vt.Attr{}}, vt.TextRun{6, red})},
		{"a cluster", "\x1b[?2027h👨\u200d👩\u200d👧x", "👨\u200d👩\u200d👧x", runs(vt.TextRun{19, vt.Attr{}})},
		{"an empty line", "\x1b[31m\x1b[m", "", nil},
		{"an erased end that continues", "0123456789ab\x1b[A\x1b[5G\x1b[K", "0123      ab", runs(vt.TextRun{12, vt.Attr{}})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := vt.New(vt.Config{Cols: 10, Rows: 4, HistoryLines: 9})
			term.Write([]byte(tt.in))
			for range 2 {
				l := allLines(term)[0]
				if l.Text != tt.text || !slices.Equal(l.Runs, tt.runs) {
					t.Errorf("got  %q %+v\nwant %q %+v", l.Text, l.Runs, tt.text, tt.runs)
				}
				term.Write([]byte("\x1b[4;1H" + strings.Repeat("\n", 8))) // now the line is in the history
			}
		})
	}
}

// Long lines are returned in pieces of bounded size, and pages are bounded as well.
func TestLongLines(t *testing.T) {
	const most = 64 << 10
	for _, pack := range []bool{false, true} {
		term := vt.New(vt.Config{HistoryLines: 10_000})
		for _, length := range []int{most - 1, most, most + 1, 300_000} {
			term.Write([]byte(strings.Repeat("x", length-3) + "日" + "\r\n"))
		}
		term.Write([]byte("end"))
		if pack {
			term.Pack()
		}
		var got []string
		for _, l := range allLines(term)[:5] {
			got = append(got, fmt.Sprint(l.Number, len(l.Text), l.Cut))
		}
		want := []string{"0 65535 false", "1 65536 false", "2 65534 true", "3 65536 true", "4 3 false"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		term.Write([]byte("\r\n" + strings.Repeat("\x1b[31mx\x1b[32m日", 5000) + "\x1b[m\r\n"))
		if l := term.LinesBefore(6, 1, 1)[0]; len(l.Runs) != 8<<10 || l.Runs[8<<10-1].End != 16<<10 || !l.Cut {
			t.Errorf("got %d runs of style for %d bytes, cut: %t", len(l.Runs), len(l.Text), l.Cut)
		}
		if l := term.TextBefore(6, 1, 1)[0]; len(l.Text) != 20_000 || l.Cut {
			t.Errorf("got %d bytes, cut: %t", len(l.Text), l.Cut)
		}
		for _, tt := range []struct{ n, maxBytes, want int }{{2, 1 << 20, 2}, {9, 1, 1}, {9, most, 1}, {9, most + 100, 2}, {9, 1 << 20, 4}, {0, 1, 0}} {
			if got := term.LinesBefore(4, tt.n, tt.maxBytes); len(got) != tt.want {
				t.Errorf("%d lines of %d bytes: got %d, want %d", tt.n, tt.maxBytes, len(got), tt.want)
			}
		}
	}
}

// Lines keep their numbers while the history drops row after row. Arenas may begin within a line, and may be packed.
func TestLinesAcrossArenas(t *testing.T) {
	const history = 1000
	r := rand.New(rand.NewPCG(1, 2))
	term := vt.New(vt.Config{Cols: 80, Rows: 2, HistoryLines: history})
	var begins []bool // for each row that was ever above the cursor's row
	for range 200 {
		rows := 1 + r.IntN(10)*r.IntN(100)
		term.Write([]byte(strings.Repeat("x", 80*rows-1) + "\r\n"))
		begins = append(append(begins, true), make([]bool, rows-1)...)
		if r.IntN(3) == 0 {
			term.Pack()
		}
		oldest := max(0, len(begins)+1-(history+2))
		want := uint64(0)
		for _, b := range begins[1 : oldest+1] {
			if b {
				want++
			}
		}
		if first, _, _ := term.LineNumbers(); first != want {
			t.Fatalf("after %d rows the first line is %d, want %d", len(begins), first, want)
		}
	}
}

// modelLines returns the lines of a state, computed plainly cell by cell.
func modelLines(s *vt.State) (lines []vt.HistoryLine) {
	rows := s.Normal.Lines
	for i, row := range rows {
		if i == 0 || !row.Wrapped {
			lines = append(lines, vt.HistoryLine{Cut: row.Wrapped})
		}
		cells := row.Cells
		if i+1 < len(rows) && rows[i+1].Wrapped {
			cells = slices.Concat(cells, slices.Repeat([]vt.Cell{{Width: 1}}, s.Cols-len(cells)))
			last, next := cells[s.Cols-1], rows[i+1].Cells
			if last.Text == "" && last.Width == 1 && len(next) > 0 && next[0].Width == 2 {
				cells = cells[:s.Cols-1]
			}
		}
		l := &lines[len(lines)-1]
		for _, c := range cells {
			text, attr := c.Text, s.Attrs[c.Attr]
			if text == "" && c.Width == 1 {
				text = " "
			}
			if text == "" {
				continue
			}
			if k := len(l.Runs); k > 0 && l.Runs[k-1].Attr == attr {
				l.Runs = l.Runs[:k-1]
			}
			l.Text += text
			l.Runs = append(l.Runs, vt.TextRun{End: len(l.Text), Attr: attr})
		}
		l.Open = i >= s.Normal.History
	}
	for i := range lines {
		l := &lines[i]
		for k := len(l.Runs) - 1; k >= 0 && l.Runs[k].Attr == (vt.Attr{}); k-- {
			from := 0
			if k > 0 {
				from = l.Runs[k-1].End
			}
			l.Text = l.Text[:from] + strings.TrimRight(l.Text[from:], " ")
			if l.Runs[k].End = len(l.Text); len(l.Text) > from {
				break
			}
			l.Runs = l.Runs[:k]
		}
	}
	return lines
}

// watched has the lines that were seen in the history, with their numbers.
type watched struct {
	first   uint64
	history map[uint64]vt.HistoryLine // the lines that had left the screen at the last check
	last    uint64                    // the last number of these
	ids     map[string]uint64         // the number of each line whose text begins with a name, since it was first seen
}

// check compares the lines of a terminal with a model and with the lines of the last check, and returns the
// difference.
func (w *watched) check(r *rand.Rand, term *vt.Term) error {
	lines := allLines(term)
	first, screen, next := term.LineNumbers()
	if first < w.first || screen < first || next < screen || uint64(len(lines)) != next-first {
		return fmt.Errorf("%d lines with the numbers %d, %d, %d; before, the first number was %d", len(lines), first, screen, next, w.first)
	}
	model := modelLines(term.State())
	for i, l := range lines {
		want := model[i]
		want.Number = first + uint64(i)
		if l.Number != want.Number || l.Text != want.Text || !slices.Equal(l.Runs, want.Runs) || l.Open != want.Open || l.Cut != want.Cut {
			return fmt.Errorf("line %d of %d from %d on is\n%+v, want\n%+v", i, len(model), first, l, want)
		}
	}
	if err := paged(r, term, lines); err != nil {
		return err
	}
	now := make(map[uint64]vt.HistoryLine)
	for _, l := range lines {
		if l.Number >= screen || l.Open {
			break
		}
		now[l.Number] = l
		id, _, named := strings.Cut(l.Text, ":")
		if w.ids != nil && named && strings.HasPrefix(id, "#") && !l.Cut {
			if n, known := w.ids[id]; known && n != l.Number {
				return fmt.Errorf("the line %s had the number %d and has %d", id, n, l.Number)
			}
			w.ids[id] = l.Number
		}
		before, ok := w.history[l.Number]
		is, was := plain(l.Text), plain(before.Text)
		switch {
		case !ok || is == was:
		case l.Cut && strings.HasSuffix(was, is):
		// A program may have removed the row in which the next line began.
		case l.Number == w.last && strings.HasPrefix(is, was):
		default:
			return fmt.Errorf("line %d was %q and is %q", l.Number, before.Text, l.Text)
		}
	}
	w.first, w.history, w.last = first, now, screen-1
	for id, n := range w.ids {
		if _, ok := now[n]; !ok && n >= first { // the line is on the screen again
			delete(w.ids, id)
		}
	}
	return nil
}

// plain returns a text without spaces. An empty column before a wide character may be a space, or a column in which
// that character had no room.
func plain(text string) string { return strings.ReplaceAll(text, " ", "") }

// paged reads lines page by page, with and without styles, and compares them with want.
func paged(r *rand.Rand, term *vt.Term, want []vt.HistoryLine) error {
	before := uint64(math.MaxUint64)
	for i := len(want); ; {
		n, bytes := 1+r.IntN(20), 1+r.IntN(500)
		page, text := term.LinesBefore(before, n, bytes), term.TextBefore(before, n, bytes)
		if len(page) == 0 && i == 0 {
			return nil
		}
		if len(page) == 0 || len(page) > n || len(text) < len(page) {
			return fmt.Errorf("%d lines of %d bytes before %d: got %d and %d", n, bytes, before, len(page), len(text))
		}
		for k, l := range page {
			i--
			if w := want[i]; l.Text != w.Text || l.Number != w.Number || l.Open != w.Open || l.Cut != w.Cut || !slices.Equal(l.Runs, w.Runs) {
				return fmt.Errorf("in a page line %d is\n%+v, want\n%+v", l.Number, l, w)
			}
			l.Runs = nil
			l.Text = strings.TrimRight(l.Text, " ")
			if p := text[k]; p.Text != l.Text || p.Number != l.Number || p.Open != l.Open || p.Cut != l.Cut || p.Runs != nil {
				return fmt.Errorf("without styles line %d is\n%+v, want\n%+v", l.Number, p, l)
			}
			before = l.Number
		}
	}
}

// TestLinesRandom checks for random output and sizes that lines that have left the screen keep their number and text,
// and are the lines of State.
func TestLinesRandom(t *testing.T) {
	runs := 200
	if testing.Short() || raceEnabled {
		runs = 40
	}
	for i := range runs {
		seed := uint64(i)
		r := rand.New(rand.NewPCG(seed, 0x11e5))
		o := vttest.StreamOptions{Cols: 2 + r.IntN(30), Rows: 1 + r.IntN(8), Bytes: 3000}
		history := r.IntN(3) * r.IntN(60)
		term := vt.New(vt.Config{Cols: o.Cols, Rows: o.Rows, HistoryLines: history, HistoryBytes: 1 << (10 + r.IntN(10))})
		var w watched
		var steps []vttest.Step
		if i%2 == 0 {
			steps, w.ids = namedLines(r), make(map[string]uint64)
		} else {
			o.Profile = vttest.Profiles[i/2%len(vttest.Profiles)]
			steps = vttest.Join(vttest.Stream(r, o))
		}
		for k, s := range steps {
			vttest.Do(term, []vttest.Step{s})
			if r.IntN(10) == 0 {
				term.Pack()
			}
			if err := w.check(r, term); err != nil {
				t.Fatalf("seed %d, history %d, step %d %q, to %dx%d: %v", seed, history, k, s.Write, s.Cols, s.Rows, err)
			}
		}
	}
}

// namedLines returns steps that print lines with unique names at their beginning, and that move or erase lines.
func namedLines(r *rand.Rand) (steps []vttest.Step) {
	names := 0
	print := func(format string, args ...any) {
		steps = append(steps, vttest.Step{Write: fmt.Appendf(nil, format, args...)})
	}
	for range 200 {
		switch n := r.IntN(40); n {
		case 0:
			print("\x1b[3J")
		case 1:
			print("\x1b[H\x1b[2J")
		case 2:
			print("\x1b[%dM\x1b[L", r.IntN(4))
		case 3:
			print("\x1b[1;%dr\x1b[99H", 2+r.IntN(5))
		case 4:
			print("\x1b[r\x1b[99H")
		case 5:
			print("%s", []string{"\x1bc", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?1049l", "\x1b[?1049l"}[r.IntN(5)])
		case 6, 7, 8, 9, 10:
			steps = append(steps, vttest.Step{Cols: 2 + r.IntN(30), Rows: 1 + r.IntN(10)})
		case 11:
			print("\x1b[%dA\r", r.IntN(5))
		default:
			text := strings.Repeat([]string{"text ", "日本", "e\u0301", "\x1b[31mred\x1b[m ", "\x1b[41m", "\x1b[K", "\x1b[3C"}[r.IntN(7)], r.IntN(20))
			print("\x1b[m#%d:%s\x1b[m\r\n", names, text)
			names++
		}
	}
	return steps
}

// Clear keeps the row of the cursor, a pending wrap, and the number of each line.
func TestClear(t *testing.T) {
	for _, tt := range []struct {
		name, printed string
		screen        bool
		want          string // rows of the screen
		x, y          int
		first         uint64
	}{
		{"history", "a\r\nb\r\nc\r\nd\r\ne", false, "c|d|e", 1, 2, 2},
		{"screen", "a\r\nb\r\nc\r\nd\r\ne", true, "e||", 1, 0, 4},
		{"below the cursor", "a\r\nb\r\nc\r\nd\x1b[A", true, "c||", 1, 0, 2},
		{"at the top", "a\r\nb\x1b[H", true, "a||", 0, 0, 0},
		{"a long line", "a\r\nb\r\n12345678901", true, "1||", 1, 0, 2},
		{"a wrap is pending", "a\r\nb\r\nc\r\n12345", true, "12345||", 5, 0, 3},
		{"alternate", "a\r\nb\r\nc\r\nd\x1b[?1049hx", true, "b|c|d", 1, 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := vt.New(vt.Config{Cols: 5, Rows: 3, HistoryLines: 10})
			term.Write([]byte(tt.printed))
			term.Clear(tt.screen)
			if term.Alternate() {
				term.Write([]byte("\x1b[?1049l"))
			}
			var rows []string
			for y, all := 0, term.Rows(); y < all.Len(); y++ {
				var b strings.Builder
				for _, c := range all.Cells(y) {
					b.WriteString(c.Text)
				}
				rows = append(rows, b.String())
			}
			x, y := term.Cursor()
			if got := strings.Join(rows, "|"); got != tt.want || x != tt.x || y != tt.y {
				t.Errorf("the screen is %q with the cursor at %d,%d, want %q at %d,%d", got, x, y, tt.want, tt.x, tt.y)
			}
			if first, screen, _ := term.LineNumbers(); first != tt.first || screen != tt.first {
				t.Errorf("the lines begin at %d, those of the screen at %d, want %d", first, screen, tt.first)
			}
		})
	}
}
