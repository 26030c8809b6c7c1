package vt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// columnSequences are DECIC, DECDC, SL and SR.
var columnSequences = []struct {
	final          string
	insert, cursor bool
}{{"'}", true, true}, {"'~", false, true}, {" @", false, false}, {" A", true, false}}

// columnOthers is output between the sequences, with %d for a random row, column or count.
var columnOthers = []string{
	"x", "some text", "中文", "e\u0301", "\x1b[?2027h\U0001f1e6\U0001f1e7", "\r\n", "\n", "\x1bM", "\x1bD", "\b", "\t",
	"\x1b[%d;%dH", "\x1b[%d;%dH", "\x1b[%d;%dH中", "\x1b[%d;%dH中中中中中中中中中中中中中中中中中中",
	"\x1b[%d;%dr", "\x1b[%d;%dr", "\x1b[;%dr", "\x1b[r", "\x1b[?6h", "\x1b[?6l", "\x1b[?7l", "\x1b[?7h", "\x1b[4h", "\x1b[4l", "\x1b[?45h",
	"\x1b[3%dm", "\x1b[4%dm", "\x1b[m", "\x1b[1\"q", "\x1b[1\"q中中x", "\x1b[\"q", "\x1b]8;;http://x/%d\x1b\\",
	"\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[3J", "\x1b[K", "\x1b[1K", "\x1b[?K", "\x1b[%dX", "\x1b[%d@", "\x1b[%dP", "\x1b[%db",
	"\x1b[%dL", "\x1b[%dM", "\x1b[%dS", "\x1b[%dT", "\x1b#8", "\x1b[!p", "\x1bc", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?47l",
	"\x1b]133;A\a", "\x1b7", "\x1b8",
}

// moveNow moves the columns at once, which shiftColumns would defer.
func moveNow(t *Term, x, n int, insert bool) {
	b := t.b
	if b.y < b.top || b.y > b.bot {
		return
	}
	for y := b.top; y <= b.bot; y++ {
		r := b.row(y)
		t.shiftRow(r, x, n, insert)
		r.wrapped = false
	}
}

// eraseNow executes DECSED, or DECSEL 2 if line is set, at once, which eraseRows would defer.
func eraseNow(t *Term, mode int, line bool) {
	t.clampCursor(t.cols)
	b := t.b
	top, bot := 0, t.rows-1
	if line {
		top, bot = b.y, b.y
	}
	switch mode {
	case 0:
		t.eraseFromCursor(b.row(b.y), true)
		top = b.y + 1
	case 1:
		r := b.row(b.y)
		t.eraseUnprotected(r, 0, b.x+1)
		r.wrapped = false
		if b.x+1 >= t.cols && b.y+1 < t.rows {
			b.row(b.y + 1).wrapped = false
		}
		bot = b.y - 1
	}
	for y := top; y <= bot; y++ {
		r := b.row(y)
		x1 := r.w
		if line {
			x1 = t.cols
		}
		t.eraseUnprotected(r, 0, x1)
		r.wrapped = false
	}
}

// difference returns the state of a terminal and the wanted one, or "" if they are the same, also when they are saved.
func difference(t *testing.T, term, want *Term) string {
	t.Helper()
	a, rest := savedOf(t, term, 100)
	b, wantRest := savedOf(t, want, 100)
	if x, y := encodeState(t, term.State()), encodeState(t, want.State()); !bytes.Equal(x, y) || !bytes.Equal(a, b) || !reflect.DeepEqual(rest, wantRest) {
		return fmt.Sprintf("%s\n%q\n%+v, want\n%s\n%q\n%+v", x, a, rest, y, b, wantRest)
	}
	return ""
}

// TestColumns compares a terminal that defers the moving of columns and DECSED with one that executes them at once.
func TestColumns(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := Config{Cols: 2 + r.IntN(40), Rows: 1 + r.IntN(30), HistoryLines: 20 * r.IntN(2)}
		term, want := New(c), New(c)
		var log []string
		check := func(what string, term *Term) {
			if d := difference(t, term, want); d != "" {
				t.Fatalf("seed %d, %dx%d: after %q %s is\n%s", seed, c.Cols, c.Rows, log, what, d)
			}
		}
		both := func(data string) {
			for strings.Contains(data, "%d") {
				data = strings.Replace(data, "%d", fmt.Sprint(1+r.IntN([]int{3, 9, 40}[r.IntN(3)])), 1)
			}
			log = append(log, data)
			term.Write([]byte(data))
			want.Write([]byte(data))
		}
		deferred := func(data string, now func()) {
			log = append(log, data)
			term.Write([]byte(data))
			now()
			want.Write([]byte("\x1b[1'z")) // it has no effect of its own
		}
		shift := func() {
			s := columnSequences[r.IntN(len(columnSequences))]
			n := 1 + r.IntN(3)
			if r.IntN(8) == 0 {
				n = r.IntN(50) + 1
			}
			deferred(fmt.Sprintf("\x1b[%d%s", n, s.final), func() {
				x := 0
				if s.cursor {
					x = want.b.x
				}
				moveNow(want, x, n, s.insert)
			})
		}
		erase := func() {
			mode := r.IntN(4)
			data := fmt.Sprintf("\x1b[?%dJ", mode)
			if mode == 3 {
				data = "\x1b[?2K"
			}
			deferred(data, func() { eraseNow(want, mode, mode == 3) })
		}
		for range 20 + r.IntN(200) {
			switch k := r.IntN(100); {
			case k < 45:
				shift()
			case k < 50:
				erase()
			case k < 55: // of wide characters, and in another colour than the shift before
				both(strings.Repeat("\x1b[1\"q中x\x1b[\"q中y", r.IntN(c.Cols*c.Rows/4+1)) + "\x1b[%d;%dH")
				shift()
				both("\x1b[4%dm")
				erase()
				both("\x1b[;%dr\x1b[%d;%dH")
				shift()
			case k < 96:
				both(columnOthers[r.IntN(len(columnOthers))])
			case k == 96:
				cols, rows := 2+r.IntN(40), 1+r.IntN(30)
				log = append(log, fmt.Sprintf("size %dx%d", cols, rows))
				term.Resize(cols, rows)
				want.Resize(cols, rows)
			case k == 97:
				log = append(log, "clear")
				term.Clear(true)
				want.Clear(true)
			case k == 98:
				log = append(log, "pack")
				term.Pack()
				want.Pack()
			case k == 99:
				log = append(log, "copy")
				check("a copy", term.Copy(100))
			}
			for _, b := range []*buffer{&term.normal, &term.alt} {
				if len(b.deferrals) > b.deferralLimit() {
					t.Fatalf("seed %d: a screen of %d rows has %d deferrals", seed, len(b.rows), len(b.deferrals))
				}
				for _, d := range b.deferrals[min(1, len(b.deferrals)):] {
					if len(d.mends) > 2*d.width || len(d.parts) > d.width {
						t.Fatalf("seed %d: a map of %d columns has %d parts and %d mends", seed, d.width, len(d.parts), len(d.mends))
					}
				}
			}
		}
		check("the terminal", term)
	}
}

// TestColumnsOfManyLengths checks sequences on rows that are longer than the screen, as those of the alternate screen stay
// when it becomes narrower. Rows of many lengths and margins take up all maps. The terminal is compared with one that
// moves the columns after each sequence.
func TestColumnsOfManyLengths(t *testing.T) {
	others := []string{
		"\x1b[%d;%dHx", "\x1b[%d;%dH中", "\x1b[%d;%dH\x1b[1\"q中x\x1b[\"q", "\x1b[;%dr", "\x1b[%d;%dr", "\x1b[%dH\x1b[%dL", "\x1b[%dH\x1b[%dM",
		"\x1b[%dH\x1b[?J", "\x1b[%dH\x1b[?1J", "\x1b[41m", "\x1b[42m",
	}
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := Config{Cols: 2 + r.IntN(40), Rows: 10 + r.IntN(20)}
		term, want := New(c), New(c)
		var log []string
		both := func(data string) {
			for strings.Contains(data, "%d") {
				data = strings.Replace(data, "%d", fmt.Sprint(1+r.IntN(20)), 1)
			}
			log = append(log, data)
			term.Write([]byte(data))
			want.Write([]byte(data))
			want.settleAll()
		}
		both("\x1b[?47h\x1b[41m")
		for range 1 + r.IntN(3) {
			cols, rows := 2+r.IntN(40), 10+r.IntN(20)
			log = append(log, fmt.Sprintf("size %dx%d", cols, rows))
			term.Resize(cols, rows)
			want.Resize(cols, rows)
		}
		for range 10 + r.IntN(50) {
			if r.IntN(3) == 0 {
				both("\x1b[%d" + columnSequences[r.IntN(len(columnSequences))].final)
			} else {
				both(others[r.IntN(len(others))])
			}
		}
		if d := difference(t, term, want); d != "" {
			t.Fatalf("seed %d, %dx%d: after %q the terminal is\n%s", seed, c.Cols, c.Rows, log, d)
		}
	}
}

// TestColumnsAreSwept checks that sweeping keeps the styles that only rows with moved columns use, even if there are
// many.
func TestColumnsAreSwept(t *testing.T) {
	const cols, rows = 100, 60
	term, want := New(Config{Cols: cols, Rows: rows}), New(Config{Cols: cols, Rows: rows})
	both := func(data string) {
		term.Write([]byte(data))
		want.Write([]byte(data))
	}
	for i := range cols * rows / 2 {
		both(fmt.Sprintf("\x1b[38;2;%d;%d;1mx", i/256, i%256))
	}
	for i := range 2 * term.styles.limit {
		both(fmt.Sprintf("\x1b[1;1H\x1b[48;2;2;%d;%dm", i/256, i%256))
		if i%100 == 0 {
			term.Write([]byte("\x1b['}"))
			moveNow(want, 0, 1, true)
		} else {
			both("e" + string(rune(0x300+i%100)))
		}
	}
	if !bytes.Equal(encodeState(t, term.State()), encodeState(t, want.State())) {
		t.Error("styles are lost")
	}
}

// TestColumnsCopied checks that a copy does not move the deferred columns of the terminal itself.
func TestColumnsCopied(t *testing.T) {
	term := New(Config{Cols: 80, Rows: 24})
	term.Write([]byte(strings.Repeat("中a", 700) + "\x1b[12;40H\x1b['}\x1b[ @\x1b[3;9r\x1b[ A"))
	c := term.Copy(0)
	c.Write([]byte("\x1b['}"))
	c.State()
	unsettled := 0
	for _, n := range term.normal.late {
		if n != 0 {
			unsettled++
		}
	}
	if unsettled != 24 {
		t.Errorf("%d rows have deferred columns, want all 24", unsettled)
	}
}

// TestColumnsWork checks that each of many such sequences costs little more than a visit of each row.
func TestColumnsWork(t *testing.T) {
	const cols, rows, many = 2000, 1000, 400
	for _, between := range []string{"", "x", "x\r\n", "\x1b[%dHx"} {
		term := New(Config{Cols: cols, Rows: rows})
		term.Write([]byte("\x1b#8\x1b[500;900H"))
		work := 0
		for i := range many {
			for _, s := range columnSequences {
				data := "\x1b[" + s.final + between
				if strings.Contains(data, "%d") {
					data = fmt.Sprintf(data, 1+i*7%rows)
				}
				_, cost := term.WriteSome([]byte(data), 1)
				work += cost
			}
		}
		if per := work / (4 * many); per > cols*rows/20 {
			t.Errorf("with %q between, a sequence costs %d cells of %d", between, per, cols*rows)
		}
	}
}
