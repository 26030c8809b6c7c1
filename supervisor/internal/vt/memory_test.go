//go:build !windows

package vt_test

import (
	"bytes"
	"runtime"
	"testing"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

// heap returns the bytes that are in use now.
func heap() int {
	runtime.GC()
	runtime.GC() // the first collection may only have run finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// perTerminal returns how many bytes a terminal that f makes holds.
func perTerminal(n int, f func() *vt.Term) int {
	terms := make([]*vt.Term, n)
	before := heap()
	for i := range terms {
		terms[i] = f()
	}
	held := (heap() - before) / n
	runtime.KeepAlive(terms)
	return held
}

// TestMemory bounds the memory of a terminal with a long history.
func TestMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector adds memory; check.sh runs the test without it")
	}
	const prompt = "\x1b[?2004h\x1b]0;user@host: ~\a\x1b[01;32muser@host\x1b[00m:\x1b[01;34m~\x1b[00m$ "
	vt.New(vt.Config{}).Pack() // makes the memory that all terminals share, which must not count
	plain, sgr, listing := vttest.Inputs[0], vttest.Inputs[2], vttest.Listing
	mix := vttest.Input{Name: "mix", Make: func() []byte { return bytes.ReplaceAll(testkit.Mix(10_024), []byte("\n"), []byte("\r\n")) }}
	for _, tt := range []struct {
		name    string
		in      []byte
		history int
		hot     int // KiB
		packed  int
	}{
		{"idle", []byte(prompt), 10_000, 8, 8},
		{"plain", lines(plain, 10_024), 10_000, 800, 350},
		{"listing", lines(listing, 10_024), 10_000, 720, 240},
		{"mix", lines(mix, 10_024), 10_000, 720, 220},
		{"sgr", lines(sgr, 10_024), 10_000, 2048, 720},
		{"plain 100k", lines(plain, 100_024), 100_000, 8192, 2300},
		{"listing 100k", lines(listing, 100_024), 100_000, 7168, 2300},
		{"sgr 100k", lines(sgr, 100_024), 100_000, 18432, 6400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, pack := range []bool{false, true} {
				n, limit := 8, tt.hot
				if len(tt.in) < 1<<10 {
					n = 256
				}
				if tt.history > 10_000 {
					n = 2
				}
				if pack {
					limit = tt.packed
				}
				got := perTerminal(n, func() *vt.Term {
					term := vt.New(vt.Config{HistoryLines: tt.history})
					for at := 0; at < len(tt.in); at += 4096 {
						term.Write(tt.in[at:min(at+4096, len(tt.in))])
					}
					if pack {
						term.Pack()
					}
					return term
				})
				t.Logf("packed %t: %d bytes, %.1f a line", pack, got, float64(got)/float64(tt.history))
				if got > limit<<10 {
					t.Errorf("packed %t: a terminal holds %d bytes, want at most %d KiB", pack, got, limit)
				}
			}
		})
	}
}
