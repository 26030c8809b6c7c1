package vt

import (
	"strings"
	"testing"
)

// WriteSome takes at least one byte, and no more than a sequence above its budget; in
// whatever pieces, the state is that of Write.
func TestWriteSome(t *testing.T) {
	data := []byte(strings.Repeat("text \x1b#8\x1b[5L\x1b['}\x1b[?1049h\x1b[2J\x1b[?1049l中\x1b[99b\r\n", 20))
	config := Config{Cols: 200, Rows: 100, HistoryLines: 50}
	whole := New(config)
	whole.Write(data)
	want := string(encodeState(t, whole.State()))
	for _, budget := range []int{-1, 0, 1, 1000, 30_000} {
		term := New(config)
		const screens = 3 // times that one sequence touches each cell at most
		for left := data; len(left) > 0; {
			n, cost := term.WriteSome(left, budget)
			if n < 1 || cost > 2*max(budget, byteWork)+screens*200*100 {
				t.Fatalf("with a budget of %d, %d bytes cost %d", budget, n, cost)
			}
			left = left[n:]
		}
		if got := string(encodeState(t, term.State())); got != want {
			t.Errorf("with a budget of %d the state is another", budget)
		}
	}
	if n, cost := whole.WriteSome(nil, 100); n != 0 || cost != 0 {
		t.Errorf("of nothing %d bytes were taken, for %d", n, cost)
	}
}
