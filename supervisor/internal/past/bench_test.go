//go:build unix

package past

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/screen"
)

// cpuTime returns the time that this process has used, because the machine may be busy.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sources returns Go's own sources as a terminal prints them.
var sources = sync.OnceValue(func() []byte {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		panic(err)
	}
	var p []byte
	_ = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && len(p) < 64<<20 {
			content, _ := os.ReadFile(path)
			p = append(p, bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n"))...)
		}
		return nil
	})
	return p
})

// buildLog returns the output of a build of Go's library, again and again. Blocks are compressed
// by themselves, so the repetition does not count.
var buildLog = sync.OnceValue(func() []byte {
	once, err := exec.Command("go", "build", "-n", "-a", "-x", "std").CombinedOutput()
	if err != nil {
		panic(err)
	}
	once = bytes.ReplaceAll(once, []byte("\n"), []byte("\r\n"))
	return bytes.Repeat(once, 1+(16<<20)/len(once))
})

// BenchmarkAppend appends output as fast as it can. The ratio is that of bytes on the disk to
// bytes of output, with keyframes that are a tenth of a segment before compression.
func BenchmarkAppend(b *testing.B) {
	for name, make := range map[string]func() []byte{"source": sources, "log": buildLog} {
		for _, v := range []string{"full", "full/sealed", "screen", "screen/sealed"} {
			b.Run(fmt.Sprint(name, "/", v), func(b *testing.B) {
				s, _ := newStore(b)
				word, _, isSealed := strings.Cut(v, "/")
				mode := Mode(word)
				if isSealed {
					s.key = ownKey
				}
				s.now = time.Now
				w := open(b, s, mode)
				in := make()
				const chunk = 32 << 10
				b.SetBytes(chunk)
				var end uint64
				began := cpuTime()
				for b.Loop() {
					at := int(end) % (len(in) - chunk)
					testkit.Must(b, w.Append(end, in[at:at+chunk]))
					if end += chunk; mode == Full && w.KeyframeDue() {
						testkit.Must(b, w.Keyframe(end, in[at:min(at+segmentBytes/10, len(in))]), w.Sync())
						if _, err := s.Trim(Policy{Total: 64 << 20}); err != nil {
							b.Fatal(err)
						}
					}
				}
				testkit.Must(b, w.Sync())
				b.ReportMetric(float64(end)/1e6/(cpuTime()-began).Seconds(), "MB/cpu-s")
				b.ReportMetric(float64(w.Stats().Written)/float64(end), "disk/output")
			})
		}
	}
}

// BenchmarkSlow appends a log at 2 KB a second, with a Sync each second.
func BenchmarkSlow(b *testing.B) {
	s, c := newStore(b)
	w := open(b, s, Full)
	in := buildLog()
	var end uint64
	for b.Loop() {
		const chunk = 2000
		testkit.Must(b, w.Append(end, in[int(end)%(len(in)-chunk):][:chunk]), w.Sync())
		c.Time = c.Add(time.Second)
		if end += chunk; w.KeyframeDue() {
			testkit.Must(b, w.Keyframe(end, in[:segmentBytes/10]))
		}
	}
	testkit.Must(b, w.Sync())
	size := int64(0)
	entries, err := s.List()
	testkit.Must(b, err)
	for _, e := range entries {
		size += e.Bytes
	}
	b.ReportMetric(float64(w.Stats().Written)/float64(end), "written/output")
	b.ReportMetric(float64(size)/float64(end), "disk/output")
}

// BenchmarkAt restores screens at random offsets of 256 MB of output, with 10,000 lines of
// history. The keyframes are those of a real screen, and the replay is written to it.
func BenchmarkAt(b *testing.B) {
	for name, make := range map[string]func() []byte{"source": sources, "log": buildLog} {
		b.Run(name, func(b *testing.B) { benchmarkAt(b, make()) })
	}
}

func benchmarkAt(b *testing.B, in []byte) {
	const total, chunk, lines = 256 << 20, 64 << 10, 10_000
	s, _ := newStore(b)
	w := open(b, s, Full)
	size := protocol.Size{Cols: 120, Rows: 40}
	live := screen.New(size, lines)
	testkit.Must(b, w.Resize(0, size))
	for end := uint64(0); end < total; end += chunk {
		at := int(end) % (len(in) - chunk)
		live.Write(in[at : at+chunk])
		testkit.Must(b, w.Append(end, in[at:at+chunk]))
		if w.KeyframeDue() {
			var frame memory
			testkit.Must(b, live.Save(&frame, -1), w.Keyframe(end+chunk, frame), w.Sync())
		}
	}
	testkit.Must(b, w.Sync())
	r := reader(b, s)
	rnd := rand.New(rand.NewPCG(2, 2))
	var took, store []time.Duration
	for b.Loop() {
		began := cpuTime()
		v, err := r.At(rnd.Uint64N(total))
		testkit.Must(b, err)
		sc := screen.New(v.Size, lines)
		if v.Keyframe != nil {
			restorer, err := screen.Restore(v.Keyframe, lines)
			testkit.Must(b, err)
			for !restorer.Step(1 << 20) {
			}
			sc = restorer.Screen()
		}
		var inScreen time.Duration
		for p, err := range v.Replay {
			testkit.Must(b, err)
			at := cpuTime()
			sc.Write(p.Output)
			inScreen += cpuTime() - at
		}
		if sc.Offset() != v.Offset {
			b.Fatalf("restored %d, want %d", sc.Offset(), v.Offset)
		}
		spent := cpuTime() - began
		took, store = append(took, spent), append(store, spent-inScreen)
	}
	for name, d := range map[string][]time.Duration{"": took, "without-screen-": store} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2])/1e6, name+"p50-cpu-ms")
		b.ReportMetric(float64(d[len(d)*99/100])/1e6, name+"p99-cpu-ms")
	}
	entries, err := s.List()
	testkit.Must(b, err)
	b.ReportMetric(float64(entries[0].Bytes)/total, "disk/output")
}
