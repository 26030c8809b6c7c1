//go:build unix

package vt_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

const (
	chunkBytes   = 4 << 10 // size of a write, as a PTY returns output
	historyLines = 10_000
)

// full returns a terminal of 80x24 whose history is full.
func full() *vt.Term { return fullAt(80, 24) }

func fullAt(cols, rows int) *vt.Term {
	t := vt.New(vt.Config{Cols: cols, Rows: rows, HistoryLines: historyLines})
	for i := range historyLines + rows {
		t.Write(fmt.Appendf(nil, "line %d of those that fill the history\r\n", i))
	}
	return t
}

func write(t *vt.Term, data []byte) {
	for at := 0; at < len(data); at += chunkBytes {
		t.Write(data[at:min(at+chunkBytes, len(data))])
	}
}

// cpu returns the processor time of this process, with that of the garbage collector. Unlike the elapsed time it
// hardly depends on the load of the machine.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// speed returns MB per second.
func speed(bytes int, spent time.Duration) float64 {
	return float64(bytes) / 1e6 / max(spent, time.Microsecond).Seconds()
}

func benchmarkInputs(b *testing.B, inputs []vttest.Input, cols, rows int) {
	for _, in := range inputs {
		b.Run(strings.ReplaceAll(in.Name, " ", "_"), func(b *testing.B) {
			data, t := in.Make(), fullAt(cols, rows)
			write(t, data)
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began, bytes := cpu(), 0
			for b.Loop() {
				write(t, data)
				bytes += len(data)
			}
			spent := cpu() - began
			runtime.ReadMemStats(&after)
			b.ReportMetric(speed(bytes, spent), "MB/cpu-s")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/(float64(bytes)/(1<<20)), "allocs/MiB")
		})
	}
}

func BenchmarkWrite(b *testing.B) { benchmarkInputs(b, vttest.Inputs, 80, 24) }

func BenchmarkHostile(b *testing.B) {
	for _, size := range [][2]int{{80, 24}, {300, 100}, {2000, 1000}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) { benchmarkInputs(b, vttest.Hostile, size[0], size[1]) })
	}
}

// bestSpeed returns the speed of the fastest run, and ends early if a run reaches the wanted speed. Other programs
// that use the processor's caches make some runs slower.
func bestSpeed(runs int, wanted float64, run func() (bytes int, spent time.Duration)) float64 {
	best := 0.0
	for ; runs > 0 && best < wanted; runs-- {
		best = max(best, speed(run()))
	}
	return best
}

// ofInput returns a run that writes data.
func ofInput(t *vt.Term, data []byte) func() (int, time.Duration) {
	return func() (int, time.Duration) {
		began := cpu()
		write(t, data)
		return len(data), cpu() - began
	}
}

const (
	slowest     = 20       // MB per CPU-second, of any input
	noise       = 1.5      // factor by which a busy machine may be slower
	hostileHeap = 24 << 20 // bytes that a terminal may hold after any input: a full history has 16 MiB of it
)

// TestNotSlow checks that output cannot keep a processor busy for long, and cannot fill the memory.
func TestNotSlow(t *testing.T) {
	if raceEnabled || testing.Short() || vt.OtherCore {
		t.Skip("measures the time of the core that programs use")
	}
	for _, in := range vttest.Hostile {
		t.Run(in.Name, func(t *testing.T) {
			data := in.Make()
			checkSpeed(t, data, 80, 24)
			checkSpeed(t, data, 300, 100)
		})
	}
}

// checkSpeed checks the speed of an input on a screen of that size, and the memory that the terminal holds afterwards.
func checkSpeed(t *testing.T, data []byte, cols, rows int) {
	t.Helper()
	before := heap()
	term := fullAt(cols, rows)
	got := bestSpeed(20, slowest/noise, ofInput(term, data))
	held := heap() - before
	t.Logf("%dx%d: %.0f MB/s, %d KiB", cols, rows, got, held>>10)
	if got < slowest/noise {
		t.Errorf("%dx%d: got %.1f MB per CPU-second, want %.1f", cols, rows, got, slowest/noise)
	}
	if held > hostileHeap {
		t.Errorf("%dx%d: holds %d bytes, want at most %d", cols, rows, held, hostileHeap)
	}
	runtime.KeepAlive(term)
}

// columns are sequences that insert or delete columns in all rows, for a screen of
// 2000x1000, and how many of the four are in each.
var columns = []struct {
	name, data string
	count      int
}{
	{"DECIC", "\x1b['}", 1},
	{"DECDC", "\x1b['~", 1},
	{"SL", "\x1b[ @", 1},
	{"SR", "\x1b[ A", 1},
	{"mix", "\x1b['}\x1b['~\x1b[ @\x1b[ A", 4},
	{"mix and text", "\x1b['}x\x1b['~y\x1b[ @z\x1b[ Ax", 4},
	{"mix and lines", "\x1b['}x\r\n\x1b['~y\r\n\x1b[ @z\r\n\x1b[ Ax\r\n", 4},
	{"mix and margins", "\x1b[;200r\x1b['}\x1b[;400r\x1b['~\x1b[;600r\x1b[ @\x1b[;800r\x1b[ A", 4},
}

// columnTime returns the average time of one of the sequences.
func columnTime(data string, count int) time.Duration {
	t := vt.New(vt.Config{Cols: 2000, Rows: 1000})
	t.Write([]byte(strings.Repeat("\x1b[31mr\x1b[32mg中", 500*1000) + "\x1b[500;900H"))
	some := []byte(strings.Repeat(data, 100))
	t.Write(some)
	const times = 5
	began := cpu()
	for range times {
		t.Write(some)
	}
	return (cpu() - began) / time.Duration(times*100*count)
}

func BenchmarkColumns(b *testing.B) {
	for _, c := range columns {
		b.Run(strings.ReplaceAll(c.name, " ", "_"), func(b *testing.B) {
			best := time.Hour
			for b.Loop() {
				best = min(best, columnTime(c.data, c.count))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(best), "cpu-ns/sequence")
		})
	}
}

// TestColumnsNotSlow: a sequence that inserts or deletes columns costs little on average, also
// on the largest screen, and if text or other margins come between.
func TestColumnsNotSlow(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("measures time")
	}
	const want = 100 * time.Microsecond
	for _, c := range columns {
		got := time.Hour
		for try := 0; try < 5 && got > want/2; try++ {
			got = min(got, columnTime(c.data, c.count))
		}
		t.Logf("%s: %v", c.name, got)
		if float64(got) > noise*float64(want) {
			t.Errorf("%s: a sequence takes %v on average, want at most %v", c.name, got, want)
		}
	}
}

// xtermBytes is the length of the part of an input that BenchmarkAgainstXterm writes to xterm.js. The speed of
// xterm.js does not depend on it, and the whole input "regions" would take 20 s.
const xtermBytes = 2 << 20

// A leastSpeed is the speed that an input must have in relation to two others that are measured in the same minute. It
// is about 0.7 of the speed that was measured when it was written, because the same code in another layout of the
// binary is up to 0.1 slower (the linker's -randlayout shows it), and processors differ.
// The speed of xterm.js depends on how far its code has been compiled, so it shows only that the core is fast at all.
type leastSpeed struct {
	xterm   float64 // in relation to that of xterm.js: twice that of alacritty, as both were measured on one machine
	inflate float64 // in relation to that of inflating
}

var leastSpeeds = map[string]leastSpeed{
	"plain":   {3.3, 2.1},
	"source":  {3.6, 0.73},
	"sgr":     {4.1, 0.43},
	"tui":     {4.7, 0.55},
	"utf8":    {3.8, 0.52},
	"long":    {4.3, 3.1},
	"regions": {73, 0.33},
	"dense":   {3.9, 0.78},
}

// inflating returns a run that inflates the source text of vttest. Inflating is the yardstick because it branches on
// each symbol, as the core does, and consists of more than one small loop: in eight layouts of a binary its speed
// differed by 0.12, and that of a loop around utf8.DecodeRune by 0.3.
func inflating() func() (int, time.Duration) {
	text := vttest.Inputs[1].Make()
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.DefaultCompression) // fails only if the level does not exist
	w.Write(text)
	w.Close()
	return func() (int, time.Duration) {
		began := cpu()
		n, _ := io.Copy(io.Discard, flate.NewReader(bytes.NewReader(packed.Bytes())))
		return int(n), cpu() - began
	}
}

// BenchmarkAgainstXterm measures the core and the real xterm.js in the same minute, and fails if the
// core is not several times faster, or has become slower.
func BenchmarkAgainstXterm(b *testing.B) {
	oracle, yardstick := vttest.Open(b), inflating()
	for _, in := range vttest.Inputs {
		b.Run(in.Name, func(b *testing.B) {
			want := leastSpeeds[in.Name]
			data, term := in.Make(), full()
			name := filepath.Join(b.TempDir(), in.Name)
			testkit.Must(b, os.WriteFile(name, data[:min(len(data), xtermBytes)], 0o600))
			var core, inflate, xterm float64
			for b.Loop() {
				for range 5 {
					core = max(core, bestSpeed(3, 1e9, ofInput(term, data)))
					inflate = max(inflate, bestSpeed(3, 1e9, yardstick))
				}
				xterm = max(xterm, bestSpeed(3, 1e9, func() (int, time.Duration) {
					spent, err := oracle.Bench(vttest.Benchmark{File: name, Times: 1})
					testkit.Must(b, err)
					return int(spent.Bytes), time.Duration(spent.Seconds * float64(time.Second))
				}))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(core, "MB/cpu-s")
			b.ReportMetric(xterm, "xterm-MB/cpu-s")
			b.ReportMetric(core/xterm, "times")
			b.ReportMetric(core/inflate, "times-inflating")
			if core < want.xterm*xterm/noise {
				b.Errorf("%s: got %.0f MB per CPU-second, want %.1f times the %.0f of xterm.js", in.Name, core, want.xterm, xterm)
			}
			if core < want.inflate*inflate {
				b.Errorf("%s: got %.0f MB per CPU-second, want %.2f times the %.0f of inflating", in.Name, core, want.inflate, inflate)
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, tt := range []struct {
		name    string
		data    []byte
		history int
	}{
		{"screen", halfOf(vttest.Inputs[3]), 0},
		{"plain10k", lines(vttest.Inputs[0], historyLines+24), historyLines},
		{"coloured10k", lines(vttest.Inputs[2], historyLines+24), historyLines},
	} {
		b.Run(tt.name, func(b *testing.B) {
			t := vt.New(vt.Config{HistoryLines: historyLines})
			write(t, tt.data)
			dst := t.AppendSnapshot(nil, tt.history, vt.Shows{})
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				dst = t.AppendSnapshot(dst[:0], tt.history, vt.Shows{})
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkResize changes the columns from 80 to 100 and back, which lays out all lines twice.
func BenchmarkResize(b *testing.B) {
	for _, tt := range []struct {
		name string
		data []byte
	}{
		{"tui", halfOf(vttest.Inputs[3])},
		{"plain10k", lines(vttest.Inputs[0], historyLines+24)},
		{"coloured10k", lines(vttest.Inputs[2], historyLines+24)},
		{"long10k", vttest.Inputs[5].Make()},
	} {
		b.Run(tt.name, func(b *testing.B) {
			t := vt.New(vt.Config{HistoryLines: historyLines})
			write(t, tt.data)
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				t.Resize(100, 30)
				t.Resize(80, 24)
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// halfOf returns the first half of an input, which stops in the middle of a frame.
func halfOf(in vttest.Input) []byte {
	data := in.Make()
	return data[:len(data)/2]
}

// lines returns the first n lines of an input, and repeats it if it has fewer.
func lines(in vttest.Input, n int) []byte {
	var taken []byte
	for n > 0 {
		for line := range strings.Lines(string(in.Make())) {
			if n--; n < 0 {
				break
			}
			taken = append(taken, line...)
		}
	}
	return taken
}

// BenchmarkLines reads a page of 100 lines in the middle of 100,000, and as many lines as one step of a search.
func BenchmarkLines(b *testing.B) {
	const history = 100_000
	for _, in := range []vttest.Input{vttest.Inputs[0], vttest.Listing, vttest.Inputs[2]} {
		t := vt.New(vt.Config{HistoryLines: history})
		write(t, lines(in, history+24))
		for _, packed := range []string{"", "/packed"} {
			if packed != "" {
				t.Pack()
			}
			first, screen, _ := t.LineNumbers()
			middle := first + (screen-first)/2
			b.Run(in.Name+packed+"/page", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					t.LinesBefore(middle, 100, 1<<20)
				}
			})
			b.Run(in.Name+packed+"/text2000", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					t.TextBefore(middle, 2000, 1<<20)
				}
			})
		}
	}
}
