package vt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The state does not depend on when marked rows are filled.
func TestMarkedRows(t *testing.T) {
	pieces := []string{"text", "中", "\r\n", "\n\n\n", "\x1b[44m", "\x1b[m", "\x1b[1\"q", "\x1b[0\"q", "\x1b#8", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[?J", "\x1b[?2J", "\x1bc", "\x1b[?1049h", "\x1b[?1049l", "\x1b['}", "\x1b[2 @", "\x1b[L", "\x1b[7L", "\x1b[M", "\x1b[7M", "\x1b[9S", "\x1b[9T", "\x1b[S", "\x1bM", "\x1b[2;7r", "\x1b[r", "\x1b[?6h", "\x1b[?6l", "\x1b[5;3H", "\x1b[H", "\x1b[99H", "\x1b[K", "\x1b]133;A\a", "\x1b[3J"}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		config := Config{Cols: 2 + r.IntN(70), Rows: 1 + r.IntN(12), HistoryLines: 20}
		late, early := New(config), New(config)
		for range r.IntN(60) {
			var change string
			switch p := pieces[r.IntN(len(pieces))]; r.IntN(30) {
			case 0:
				change = "a resize"
				cols, rows := 2+r.IntN(70), 1+r.IntN(12)
				late.Resize(cols, rows)
				early.Resize(cols, rows)
			case 1:
				change = "a copy"
				late = late.Copy(20)
			case 2:
				change = "Clear"
				late.Clear(true)
				early.Clear(true)
			default:
				change = fmt.Sprintf("%q", p)
				late.Write([]byte(p))
				early.Write([]byte(p))
			}
			early.settleAll()
			for _, b := range []*buffer{&late.normal, &late.alt} {
				if late := len(b.late) - bytes.Count(b.late, []byte{0}); b.lateRows != late {
					t.Fatalf("seed %d, %s: %d rows have a deferral, but %d are counted", seed, change, late, b.lateRows)
				}
				for _, r := range b.rows {
					if !b.uneven && r.w != late.cols {
						t.Fatalf("seed %d, %s: a row has %d columns, want %d", seed, change, r.w, late.cols)
					}
				}
			}
			if r.IntN(3) > 0 {
				continue // State fills all rows
			}
			if got, want := encodeState(t, late.Copy(20).State()), encodeState(t, early.State()); !bytes.Equal(got, want) {
				t.Fatalf("seed %d, %s: the state is\n%s\nwant\n%s", seed, change, got, want)
			}
		}
	}
}

// rotate has the same result for every length and number, also if it needs its scratch space several times.
func TestRotate(t *testing.T) {
	for _, size := range []int{2, 3, 300, 1000, 2000} {
		for _, n := range []int{1, 2, 255, 256, 257, size / 2, size - 257, size - 256, size - 2, size - 1} {
			if n < 1 || n >= size {
				continue
			}
			s := make([]uint16, size)
			for i := range s {
				s[i] = uint16(i)
			}
			rotate(s, n)
			for i, v := range s {
				if want := (i + n) % size; int(v) != want {
					t.Fatalf("%d of %d: element %d is %d, want %d", n, size, i, v, want)
				}
			}
		}
	}
}

func TestSameBytes(t *testing.T) {
	for size := 1; size < 200; size++ {
		for n := 1; n <= size; n++ {
			s := make([]byte, size)
			for i := n; i < size; i++ {
				s[i] = byte(i)
			}
			if got := sameBytes(s); got != n {
				t.Fatalf("%d of %d bytes are equal, got %d", n, size, got)
			}
		}
	}
}
