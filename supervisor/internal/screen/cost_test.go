//go:build unix

package screen

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// The limits of one request, at any size and after any output: processor time, and memory in addition to that of the
// screen before and after the request.
const (
	costTime   = 250 * time.Millisecond
	costMemory = 64 << 20
)

// The race detector makes a request slower by raceFactor, and the counters of a fuzzer by fuzzFactor.
const (
	raceFactor = 20
	fuzzFactor = 4
)

// costTries is how often the requests of a seed are measured if one exceeds a limit. Other programs on the machine
// make requests slower, also in processor time, so the cheapest try counts.
const costTries = 3

// costly are pieces of output that are costly, for their length, to print, to hold or to show again.
var costly = []string{
	"plain text and more of it ", "\r\n", "\n\n\n\n", "中文字符测试", "\x1b[31mr\x1b[42mg", "e\u0301\u0302", "\x1b[?2027h\U0001f1e6\U0001f1e7", "\U0001f468\u200d\U0001f469",
	"\x1b['}\x1b['~", "\x1b[ @\x1b[ A", "\x1b#8", "\x1b[2J", "\x1b[44m\x1b[2J\x1b[H", "\x1b[H\x1b[L", "\x1b[M", "x\x1b[9999b", "中\x1b[9999b", "\x1b[999;1999H中", "\x1b[K", "\x1b[99X",
	"\x1b[?1049h", "\x1b[?1049l", "\x1bc", "\x1b[2;9r\x1b[S", "\x1b[r", "\x1b[1\"qx\x1b[?2K", "\x1b]133;A\a$ ", "\x1b]8;;http://x/y\x1b\\L\x1b]8;;\x1b\\", "\x1b[4h\x1b[G中", "\x1b[3g\x1bH\t",
	"\x1b[?7l", "\x1b[?7h", "\x1b7", "\x1b8", "\x1b[3J", "\x1b]2;title\a", "\x1b[38;2;%d;%d;%dmu", "\x1b]8;;http://%d/%d/%d\x1b\\l",
}

// piece returns n bytes of output: a few units, each many times.
func piece(r *rand.Rand, n int) []byte {
	var b []byte
	for len(b) < n {
		unit := costly[r.IntN(len(costly))]
		for k := 1 << r.IntN(14); k > 0 && len(b) < n; k-- {
			if strings.Contains(unit, "%d") {
				b = fmt.Appendf(b, unit, r.IntN(256), r.IntN(256), r.IntN(256))
			} else {
				b = append(b, unit...)
			}
		}
	}
	return b
}

// fillings are the units of lines that fill a history.
var fillings = []string{
	"plain text and more of it ", "中文字符测试", "\x1b[31mr\x1b[42mg", "a\u0301b", "\x1b[44m  \x1b[K", "\x1b[1;38;2;%d;%d;%dmu", "\x1b]8;;http://%d/%d/%d\x1b\\l", "",
	"\x1b[44m\x1b[2C\x1b[Kx", colours(),
}

// colours returns a line in which each column has another pair of colours.
func colours() string {
	var b []byte
	for i := range 64 {
		b = fmt.Appendf(b, "\x1b[3%dmr\x1b[4%dmg", i%8, i/8)
	}
	return string(b)
}

// filling returns n bytes of lines that repeat a unit. They are about as long as a screen is wide, or much longer.
func filling(r *rand.Rand, unit string, cols, n int) []byte {
	long := []int{cols / 2, cols, 3 * cols, 1 << 20}[r.IntN(4)]
	var b []byte
	for begun := 0; len(b) < n; {
		if strings.Contains(unit, "%d") {
			b = fmt.Appendf(b, unit, r.IntN(256), r.IntN(256), r.IntN(256))
		} else {
			b = append(b, unit...)
		}
		if len(b)-begun >= long || unit == "" {
			b = append(b, "\r\n"...)
			begun = len(b)
		}
	}
	return b
}

// full returns a screen of 80 columns with the largest history, whose lines repeat a unit.
func full(r *rand.Rand, unit string) *Screen {
	const cols = 80
	s := New(protocol.Size{Cols: cols, Rows: 24}, protocol.MaxScrollback)
	for before := -1; s.term.HistoryLines() > before && before < protocol.MaxScrollback; {
		before = s.term.HistoryLines()
		s.Write(filling(r, unit, cols, 4<<20))
	}
	if r.IntN(4) > 0 {
		s.Pack()
	}
	return s
}

func costSize(r *rand.Rand) protocol.Size {
	pick := func(small, most int) int {
		switch r.IntN(4) {
		case 0:
			return most
		case 1:
			return 1 + r.IntN(3)
		}
		return 1 + r.IntN(small)
	}
	return protocol.Size{Cols: pick(300, protocol.MaxCols), Rows: pick(100, protocol.MaxRows)}.Normalize()
}

// A request is one that a peer may make.
type request struct {
	name string
	do   func(s *Screen, r *rand.Rand)
}

var requests = []request{
	{"resize", resizeScreen},
	{"view at another size", func(s *Screen, r *rand.Rand) {
		size := costSize(r)
		contentOf(s, protocol.ScreenSpec{Cols: size.Cols, Rows: size.Rows, Scrollback: protocol.AllScrollback, Format: anyFormat(r)})
	}},
	{"view", func(s *Screen, r *rand.Rand) {
		contentOf(s, protocol.ScreenSpec{Scrollback: protocol.AllScrollback, Format: anyFormat(r), NonEmpty: r.IntN(2) == 0})
	}},
	{"last lines", func(s *Screen, r *rand.Rand) {
		contentOf(s, protocol.ScreenSpec{Lines: 1 << r.IntN(20), Skip: r.IntN(3) << r.IntN(16), Format: anyFormat(r), NonEmpty: r.IntN(2) == 0})
	}},
	{"history", func(s *Screen, r *rand.Rand) {
		s.History(protocol.HistorySpec{Lines: protocol.MaxHistoryLines}).Content()
	}},
	{"search", func(s *Screen, r *rand.Rand) {
		q, err := NewSearch(protocol.SearchSpec{Pattern: []string{"x", "no such text", "^.*$", "[a-z]+ "}[r.IntN(4)]})
		if err != nil {
			panic(err)
		}
		for range 25 { // in as many steps as a session takes
			if q.Over() {
				break
			}
			q.Take(s, 2000)
			q.Match()
		}
	}},
	{"snapshot", func(s *Screen, r *rand.Rand) { s.Snapshot(1<<r.IntN(21), protocol.Size{}, nil) }},
	{"snapshot of another size", func(s *Screen, r *rand.Rand) { s.Snapshot(1<<r.IntN(21), costSize(r), nil) }},
	{"own view", func(s *Screen, r *rand.Rand) {
		o := NewOwn(costSize(r), nil)
		o.Update(s.ViewAs(o.Size()))
		o.Update(s.ViewAs(o.Size()))
	}},
	{"save", func(s *Screen, _ *rand.Rand) {
		if err := s.Save(nowhere{}, -1); err != nil {
			panic(err)
		}
	}},
	{"save and restore", func(s *Screen, r *rand.Rand) {
		from, err := Restore(recordOf(s, r.IntN(2)*protocol.DefaultHistory), 10_000)
		if err != nil {
			panic(err)
		}
		for !from.Step(64 << 10) {
		}
	}},
	{"last words", func(s *Screen, r *rand.Rand) {
		s.Text(protocol.TailLines)
		s.NonEmpty(protocol.LastLines)
	}},
	{"output", func(s *Screen, r *rand.Rand) { s.WriteSome(piece(r, 4096), 1<<20) }},
	{"pack", func(s *Screen, r *rand.Rand) { s.Pack() }},
}

// fullRequests are the requests that are made to a full history.
var fullRequests = []request{
	{"full history to 79 columns", func(s *Screen, _ *rand.Rand) { s.Resize(protocol.Size{Cols: 79, Rows: 24}) }},
	{"full history to 2000 columns", func(s *Screen, _ *rand.Rand) { s.Resize(protocol.Size{Cols: protocol.MaxCols, Rows: 24}) }},
}

// resizeScreen often changes the columns by one, because that changes all rows of wrapped lines and removes none.
func resizeScreen(s *Screen, r *rand.Rand) {
	size := costSize(r)
	if r.IntN(2) == 0 {
		size = s.Size()
		size.Cols--
	}
	s.Resize(size.Normalize())
}

func anyFormat(r *rand.Rand) protocol.ScreenFormat {
	return []protocol.ScreenFormat{protocol.ScreenText, protocol.ScreenCells, protocol.ScreenANSI}[r.IntN(3)]
}

func contentOf(s *Screen, spec protocol.ScreenSpec) {
	for rows := Rows(spec); ; {
		_, next := s.View(rows).Content(spec)
		if next == 0 {
			return
		}
		rows = next
	}
}

// A cost has the number of requests, and the highest cost of each kind.
type cost struct {
	fill         int  // bytes of a filling, which is printed up to three times, each time after up to half as many bytes of costly output
	full         bool // every other seed makes one request to a full history, and only its memory is limited, because a million rows may take longer than costTime
	count        int
	time, memory map[string]float64 // ms, MiB
}

func newCost(fill int) *cost {
	return &cost{fill: fill, time: map[string]float64{}, memory: map[string]float64{}}
}

// A spending is the cost of one request.
type spending struct {
	name   string
	time   time.Duration
	memory uint64
	where  string
	full   bool // the history is full
}

// measure makes requests to the random screen of a seed, and adds the cost of each.
func (c *cost) measure(t *testing.T, seed uint64, requestsEach int) {
	limit := costTime
	if raceEnabled {
		limit *= raceFactor
	}
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		limit *= fuzzFactor
	}
	over := func(s spending) bool {
		return s.time > limit && !s.full || s.memory > costMemory && !raceEnabled
	}
	least := c.spend(seed, requestsEach)
	for try := 1; try < costTries && slices.ContainsFunc(least, over); try++ {
		for i, s := range c.spend(seed, requestsEach) {
			least[i].time, least[i].memory = min(least[i].time, s.time), min(least[i].memory, s.memory)
		}
	}
	for _, s := range least {
		c.count++
		c.time[s.name] = max(c.time[s.name], float64(s.time)/1e6)
		c.memory[s.name] = max(c.memory[s.name], float64(s.memory)/(1<<20))
		if over(s) {
			t.Errorf("seed %d: %s at %s: %v and %d MiB, want at most %v and %d MiB", seed, s.name, s.where, s.time, s.memory>>20, limit, costMemory>>20)
		}
	}
}

// spend makes requests to the random screen of a seed, and returns their costs. The memory is the highest value of
// what was allocated and not yet collected. With the collector's default that may be twice as much as is held.
func (c *cost) spend(seed uint64, requestsEach int) (all []spending) {
	r := rand.New(rand.NewPCG(seed, 7))
	from := requests
	var s *Screen
	isFull := c.full && seed%2 == 0
	if isFull {
		s = full(r, fillings[seed/2%uint64(len(fillings))])
		from, requestsEach = fullRequests, 1
	} else {
		s = c.anyScreen(r)
	}
	for range requestsEach {
		q := from[r.IntN(len(from))]
		size := s.Size()
		runtime.GC()
		held, peak := testkit.WatchHeap()
		began := cpuTime()
		q.do(s, r)
		spent := cpuTime() - began
		all = append(all, spending{
			name: q.name, time: spent, memory: peak(), full: isFull,
			where: fmt.Sprintf("%v with %d lines kept and %d MiB", size, s.term.HistoryLines(), held>>20),
		})
	}
	return all
}

// anyScreen returns a screen on which random output was printed.
func (c *cost) anyScreen(r *rand.Rand) *Screen {
	lines := []int{0, 100, 10_000, 10_000, protocol.MaxScrollback}[r.IntN(5)]
	s := New(costSize(r), lines)
	for range 1 + r.IntN(3) {
		s.Write(piece(r, min(1<<(10+r.IntN(10)), c.fill/2)))
		s.Write([]byte("\x18\x1b[?1049l\x1b[r\x1b[?7h"))
		s.Write(filling(r, fillings[r.IntN(len(fillings))], s.size.Cols, c.fill))
		if r.IntN(4) == 0 {
			s.Pack()
		}
	}
	return s
}

// TestCost measures fixed seeds. In long mode HOLDFAST_COST is the number of seeds.
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time and memory")
	}
	c := newCost(1 << 20)
	seeds := uint64(12)
	if raceEnabled {
		seeds = 2 // the race detector changes the cost
	}
	if n, err := strconv.ParseUint(os.Getenv("HOLDFAST_COST"), 10, 32); err == nil {
		seeds, c.fill, c.full = n, 12<<20, true
	}
	for seed := range seeds {
		c.measure(t, seed, 10)
	}
	for name := range c.time {
		t.Logf("%s: at most %.0f ms and %.0f MiB", name, c.time[name], c.memory[name])
	}
	t.Logf("%d requests", c.count)
}

// FuzzCost measures any seed. Its screens have little output, so that a seed takes a fraction of a second.
func FuzzCost(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { newCost(64<<10).measure(t, seed, 3) })
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
