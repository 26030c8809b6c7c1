//go:build unix && !race

package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

// cpuTime returns the time that this process has used, because the machine may be busy.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// large is the output of TestLargePast.
const large = 1 << 30

// largeTape stores large bytes of a build log with a real screen and its keyframes. The last line that
// contains "needle" is in the middle.
func largeTape(t *testing.T) *tape {
	t.Helper()
	p := newTape(t, past.Full)
	r := rand.New(rand.NewPCG(41, 42))
	var chunk bytes.Buffer
	at := uint64(0)
	for i := 0; at < large; i++ {
		chunk.Reset()
		for chunk.Len() < 64<<10 {
			fmt.Fprintf(&chunk, "\x1b[32m[%5d/%d]\x1b[0m /usr/lib/go/pkg/tool/compile -o $WORK/b%03d/_pkg_.a -trimpath \"$WORK/b%03d=>\" -p module/package%d -buildid %016x%016x\r\n",
				i, large>>16, r.IntN(400), r.IntN(400), r.IntN(300), r.Uint64(), r.Uint64())
		}
		if i == large>>17 {
			chunk.WriteString("the needle\r\n")
		}
		p.live.Write(chunk.Bytes())
		drop(p.live)
		testkit.Must(t, p.writer.Append(at, chunk.Bytes()))
		at += uint64(chunk.Len())
		if p.writer.KeyframeDue() {
			p.keyframe(true)
			testkit.Must(t, p.writer.Sync())
		}
	}
	return p
}

// With 1 GB of past, 99 of 100 screens are shown within 50 ms, and a pattern with a literal is searched in all
// of it within 3 s on two processors. The test takes minutes, and runs with HOLDFAST_LONG=1.
// demand: D9
func TestLargePast(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("stores 1 GB; set HOLDFAST_LONG=1")
	}
	p := largeTape(t)
	q := p.past()
	end := p.live.Offset()
	r := rand.New(rand.NewPCG(43, 44))
	var cpu, wall []time.Duration
	for range 300 {
		offset := r.Uint64N(end)
		begun, beganCPU := time.Now(), cpuTime()
		s, err := q.Screen(t.Context(), offset)
		cpu, wall = append(cpu, cpuTime()-beganCPU), append(wall, time.Since(begun))
		if err != nil || !s.IsExact {
			t.Fatalf("the screen at %d is exact: %v, error %v", offset, s.IsExact, err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := q.Screen(t.Context(), end-1); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("a screen allocates %d MiB, want at most 64", allocated>>20)
	} else {
		t.Logf("a screen allocates %d MiB", allocated>>20)
	}
	slices.Sort(cpu)
	slices.Sort(wall)
	p99 := cpu[len(cpu)*99/100]
	t.Logf("screens: p50 %v, p99 %v of processor time; p50 %v, p99 %v", cpu[len(cpu)/2], p99, wall[len(wall)/2], wall[len(wall)*99/100])
	if p99 > 50*time.Millisecond {
		t.Errorf("the 99th of 100 screens takes %v of processor time, want at most 50 ms", p99)
	}
	for _, pattern := range []struct {
		text    string
		matches int
		limit   time.Duration // of processor time; two processors share it
	}{{"needle", 1, 6 * time.Second}, {"n[e]{2}dle$", 1, 6 * time.Second}, {"needle|[xyz]adel", 1, 0}} {
		begun, beganCPU := time.Now(), cpuTime()
		found := find(t, q, protocol.PastSearchSpec{Pattern: pattern.text})
		spent := cpuTime() - beganCPU
		t.Logf("search for %q: %v, %v of processor time", pattern.text, time.Since(begun), spent)
		if len(found) != pattern.matches || pattern.limit > 0 && spent > pattern.limit {
			t.Errorf("search for %q: %d matches in %v of processor time, want %d in %v", pattern.text, len(found), spent, pattern.matches, pattern.limit)
		}
	}
	begun, beganCPU := time.Now(), cpuTime()
	c, err := q.Describe(t.Context(), protocol.PastSpec{})
	t.Logf("description: %v, %v of processor time", time.Since(begun), cpuTime()-beganCPU)
	if err != nil || c.End < large || len(c.Times) == 0 {
		t.Errorf("the past ends at %d with %d times: %v", c.End, len(c.Times), err)
	}
}
