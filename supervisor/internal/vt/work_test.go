package vt

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// WriteSome accepts at least one byte, and exceeds its budget by at most one sequence. The state does not depend on
// the pieces.
func TestWriteSome(t *testing.T) {
	data := []byte(strings.Repeat("text \x1b#8\x1b[5L\x1b['}\x1b[?1049h\x1b[2J\x1b[?1049l中\x1b[99b\r\n", 20))
	config := Config{Cols: 200, Rows: 100, HistoryLines: 50}
	whole := New(config)
	whole.Write(data)
	want := string(encodeState(t, whole.State()))
	for _, budget := range []int{-1, 0, 1, 1000, 30_000} {
		term := New(config)
		const screens = 3 // how often one sequence changes each cell at most
		for left := data; len(left) > 0; {
			n, cost := term.WriteSome(left, budget)
			if n < 1 || cost > 2*max(budget, byteWork)+screens*200*100 {
				t.Fatalf("with a budget of %d, %d bytes cost %d", budget, n, cost)
			}
			left = left[n:]
		}
		if got := string(encodeState(t, term.State())); got != want {
			t.Errorf("with a budget of %d the state differs", budget)
		}
	}
	if n, cost := whole.WriteSome(nil, 100); n != 0 || cost != 0 {
		t.Errorf("of no data %d bytes were accepted, at a cost of %d", n, cost)
	}
}

// In insert mode REP inserts the columns of all its characters at once. If it inserted them one after the other, a
// few bytes would move each cell of a row thousands of times.
func TestInsertedTogether(t *testing.T) {
	pieces := []string{"a", "word ", "中", "é", "e\u0301", "\U0001f600", "\x1b[9b", "\x1b[30b", "\x1b[4h", "\x1b[4h", "\x1b[4l", "\r", "\b", "\x1b[5G", "\x1b[31m", "\x1b[44m", "\x1b(0", "\x1b(B", "\x1b(R", "\x1b[?7l", "\x1b[?7h", "\x1b[?2027h", "\x1b[?2027l", "\x1b[K", "\x1b['}"}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		config := Config{Cols: 2 + r.IntN(20), Rows: 1 + r.IntN(3), HistoryLines: 20}
		whole, single := New(config), New(config)
		for range r.IntN(60) {
			p := []byte(pieces[r.IntN(len(pieces))])
			whole.Write(p)
			if n := (map[string]int{"\x1b[9b": 9, "\x1b[30b": 30})[string(p)]; n > 0 {
				for range n {
					single.repeat(1)
				}
				single.join, single.printing = 0, false
			} else {
				for i := range p {
					single.Write(p[i : i+1])
				}
			}
			if x, y := encodeState(t, whole.State()), encodeState(t, single.State()); !bytes.Equal(x, y) {
				t.Fatalf("seed %d, %q: the state is\n%s\nwant\n%s", seed, p, x, y)
			}
		}
	}
	term := New(Config{Cols: 2000, Rows: 3})
	const most = 2000 * 5 * (repeatRows + 1) // five times each cell of the rows that REP may write
	for _, p := range []string{"\x1b[4hx\x1b[9999b", "中\x1b[9999b"} {
		if n, cost := term.WriteSome([]byte(p), 1<<20); n != len(p) || cost > most {
			t.Errorf("%q: %d bytes cost %d, want %d and at most %d", p, n, cost, len(p), most)
		}
	}
}

// The state does not depend on whether lines that scroll through a region were printed: a write of one byte never
// skips them.
func TestSkippedLines(t *testing.T) {
	pieces := []string{"\r\n", "ab\r\n", "a\t\n", "\r\n", "longer than the screen is wide\r\n", "x", "\r", "\n", "\x1b[2r", "\x1b[1;3r", "\x1b[2;3r", "\x1b[?1049h", "\x1b[?1049l", "\x1b[9;1H", "\x1b[44m", "\x1b[m", "\x1b]133;A\a", "中", "\x0e", "\x0f\x1b)0", "\x1b[4h", "\x1b[20h", "\x1b[?7l", "\x1b['}"}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		config := Config{Cols: 2 + r.IntN(20), Rows: 1 + r.IntN(5), HistoryLines: 20}
		whole, single := New(config), New(config)
		var data []byte
		for range 2 + r.IntN(10) {
			p := pieces[r.IntN(len(pieces))]
			data = append(data, strings.Repeat(p, 1+r.IntN(len(p)*len(p)))...)
		}
		whole.Write(data)
		for i := range data {
			single.Write(data[i : i+1])
		}
		if x, y := encodeState(t, whole.State()), encodeState(t, single.State()); !bytes.Equal(x, y) {
			t.Fatalf("seed %d, %q: the state is\n%s\nwant\n%s", seed, data, x, y)
		}
	}
}
