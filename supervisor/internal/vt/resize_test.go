package vt

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A resize allocates about as much as its result holds, even if a long history of long lines gets few columns: for
// 10,000 lines of 2000 columns, cells for all rows would take gigabytes.
func TestResizeMemory(t *testing.T) {
	const room = 32 << 20
	for _, tt := range []struct{ cols, rows, lines, to int }{
		{250, 70, 10_000, 2}, {2000, 24, 10_000, 80}, {2000, 24, 10_000, 2}, {80, 24, 100_000, 5}, {80, 24, 100_000, 200},
	} {
		for _, text := range []string{"abcdefg ", "\x1b[31mab\x1b[32mcdefg ", "中文字符"} {
			for _, packed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%dx%d, %d lines of %q, packed %t, to %d", tt.cols, tt.rows, tt.lines, text, packed, tt.to), func(t *testing.T) {
					term := New(Config{Cols: tt.cols, Rows: tt.rows, HistoryLines: tt.lines, HistoryBytes: 16 << 20})
					line := []byte(strings.Repeat(text, tt.cols/8-1) + "\r\n")
					for range min(tt.lines, 24<<20/len(line)) + tt.rows {
						term.Write(line)
					}
					if packed {
						term.Pack()
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					term.Resize(tt.to, 1)
					runtime.ReadMemStats(&after)
					if n := after.TotalAlloc - before.TotalAlloc; n > room {
						t.Errorf("the resize allocated %d MiB, want at most %d", n>>20, room>>20)
					}
				})
			}
		}
	}
}

// With few columns and no history only the last rows of a long line are kept. The blanks at its end, which belong to
// the text because of their background, must not displace the text.
func TestResizeKeepsContent(t *testing.T) {
	term := New(Config{Cols: 2000, Rows: 3})
	term.Write([]byte("\x1b[42m\n\n\n\n\n" + strings.Repeat("a", 1990) + strings.Repeat("b", 12) + "\n"))
	term.Resize(2, 3)
	if got := string(term.AppendSnapshot(nil, 0, Shows{})); strings.Count(got, "bb") != 2 {
		t.Errorf("the screen is %q, want two rows of b", got)
	}
}
