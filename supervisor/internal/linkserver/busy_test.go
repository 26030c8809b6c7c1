//go:build linux || darwin

package linkserver

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/machine"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// dear are formats for printf(1) whose output is short and costly to show: a few bytes change each cell of a screen,
// or each row. Sessions print them without a pause.
var dear = []struct{ name, before, unit string }{
	{"columns", "", `\033['}\033['~\033[ @\033[ A`}, // DECIC, DECDC, SL, SR
	{"erase", `\033[1\042qx\033[0\042q`, `\033[?2J\033[2J\033[44m\033[2J\033[m`},
	{"align", "", `\033#8`},
	{"repeat", "", `x\033[9999999b`},
	{"wide", `\033[1000;1H`, `中\033[9999999b`},
	{"rows", "", `\033#8\033[H\033[L\033[M\033[999L`},
	{"scroll", `\033#8`, `\033[S\033[T\033[999S`},
	{"shift", `\033#8`, `\033[H\033[@\033[P\033[B\033[999@`},
	{"screens", `\033#8`, `\033[?1049h\033#8\033[?1049l`},
	{"reset", "", `\033c\033#8`},
	{"looks", "", `\033[31mr\033[42mg\033[H`},
	{"mixed", "", `\033['}\033[ A\033#8\033[?2J\033[H\033[L中\033[999999b\033['~\033[ @`},
}

// goal is the limit: beside 8 sessions of the largest size that print the most costly output, 99 of a hundred
// requests of each kind take at most so long.\p
// A machine that is busy with other programs makes every request slow. So the same requests are made before there are
// busy sessions, too. Unless 99 of a hundred of those take at most usualTime, the limit is increased by that ratio,
// but by noiseMost at most. A supervisor whose replies wait for the work of all sessions exceeds that limit on any
// machine.
const (
	busyGoal  = 50 * time.Millisecond
	usualTime = 10 * time.Millisecond
	noiseMost = 10
)

// Sessions that print costly output keep their own loops busy. Meanwhile proxies can link, list, get infos, send
// input, and start and end sessions at once, and a table can be frozen.
func TestBusySessions(t *testing.T) {
	// The supervisor has as many processors as usual, although its children use some.
	procs := runtime.GOMAXPROCS(0)
	machine.Share()
	defer runtime.GOMAXPROCS(procs)
	if os.Getenv("HOLDFAST_LONG") != "" {
		for _, d := range dear {
			t.Run(d.name, func(t *testing.T) {
				b := newBusy(t, 8, 100, protocol.Size{Cols: protocol.MaxCols, Rows: protocol.MaxRows})
				b.print(d.before, d.unit)
				b.measure(busyGoal)
			})
		}
		return
	}
	// A quarter of the largest screen, because the race detector makes each cell about ten times as costly, and the
	// tests of other packages run at the same time.
	b := newBusy(t, 2, 3, protocol.Size{Cols: protocol.MaxCols / 2, Rows: protocol.MaxRows / 2})
	b.print("", dear[0].unit)
	b.measure(2 * time.Second)
}

// busy makes requests beside busy sessions.
type busy struct {
	*rig
	t       *testing.T
	count   int
	rounds  int
	size    protocol.Size
	conn    *link.Conn
	echo    *view
	typed   uint64
	control map[string]time.Duration // the time within which 99 of 100 requests were answered without busy sessions
	took    map[string][]time.Duration
}

func newBusy(t *testing.T, count, rounds int, size protocol.Size) *busy {
	b := &busy{rig: newRig(t, session.Config{ExitRecords: 100}, ""), t: t, count: count, rounds: rounds, size: size, took: make(map[string][]time.Duration)}
	b.create("echo", "stty raw -echo; echo READY; exec cat", protocol.Size{})
	b.conn = b.link(t)
	s, err := b.table.Get("echo")
	testkit.Must(t, err)
	b.echo = attach(t, b.conn, 1, protocol.AttachSpec{SessionID: "echo", Writer: "w", Resume: &protocol.Resume{Instance: s.Instance()}})
	b.echo.until(t, "READY")
	for i := range rounds {
		b.round(i)
	}
	b.control = make(map[string]time.Duration)
	for what, all := range b.took {
		b.control[what] = nearly(all)
	}
	clear(b.took)
	return b
}

// nearly returns the time within which 99 of 100 requests were answered.
func nearly(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[(len(all)*99-1)/100]
}

func (b *busy) create(id, script string, size protocol.Size) {
	b.t.Helper()
	spec := bash(script)
	spec.Cols, spec.Rows = size.Cols, size.Rows
	if _, err := b.table.Create("", protocol.SessionID(id), spec, protocol.Limits{}, ""); err != nil {
		b.t.Fatal(err)
	}
}

func busyID(i int) protocol.SessionID { return protocol.SessionID(fmt.Sprint("busy", i)) }

// print starts the busy sessions, and returns when each has printed more than loop receives at once.
func (b *busy) print(before, unit string) {
	b.t.Helper()
	for i := range b.count {
		b.create(string(busyID(i)), fmt.Sprintf(`printf "%s"; exec yes "$(printf "%s")"`, before, strings.Repeat(unit, 20)), b.size)
	}
	for i := range b.count {
		testkit.Eventually(b.t, patience, func() bool {
			s, err := b.table.Get(busyID(i))
			testkit.Must(b.t, err)
			info, err := s.Info()
			return err == nil && info.OutputOffset > 8<<10
		}, "a session prints")
	}
}

func (b *busy) timed(what string, f func()) {
	begun := time.Now()
	f()
	b.took[what] = append(b.took[what], time.Since(begun))
}

// round makes each request once.
func (b *busy) round(i int) {
	t := b.t
	t.Helper()
	id := fmt.Sprintf("idle%d-%d", i, len(b.control))
	b.timed("create", func() { b.create(id, sleeper, protocol.Size{}) })
	b.timed("hello", func() {
		other, _, sessions, err := link.Dial(b.connect(t), someHello, zerolog.Nop())
		if err != nil || len(sessions) == 0 {
			t.Fatalf("%d sessions; %v", len(sessions), err)
		}
		other.Close()
	})
	b.timed("list", func() { call[*wire.Sessions](t, b.conn, wire.List{}) })
	b.timed("info", func() { call[*wire.Session](t, b.conn, wire.Info{SessionID: protocol.SessionID(id)}) })
	b.timed("echo", func() {
		text := fmt.Sprintf("<%d>", b.typed)
		b.echo.typeAt(t, b.typed, text)
		b.typed += uint64(len(text))
		b.echo.until(t, text)
		b.echo.seen = nil
	})
	b.timed("kill", func() { call[*wire.OK](t, b.conn, wire.Terminate{SessionID: protocol.SessionID(id)}) })
}

// measure makes requests, ends the busy sessions, and fails the test if a kind of request exceeds the limit.
func (b *busy) measure(goal time.Duration) {
	t, cols, rows := b.t, b.size.Cols, b.size.Rows
	for i := range b.rounds {
		b.round(i)
		b.timed("info of a busy one", func() { call[*wire.Session](t, b.conn, wire.Info{SessionID: busyID(i % b.count)}) })
		if i >= 6 {
			continue
		}
		b.timed("rest", func() {
			frozen, err := b.table.Freeze()
			if err != nil || len(frozen.Entries) < b.count {
				t.Fatalf("frozen: %+v, %v", frozen, err)
			}
			frozen.Thaw()
		})
		b.timed("resize of a busy one", func() {
			call[*wire.OK](t, b.conn, wire.Resize{SessionID: "busy0", Cols: cols, Rows: rows - i%2})
			if got := call[*wire.Session](t, b.conn, wire.Info{SessionID: "busy0"}).Session.Size.Rows; got != rows-i%2 {
				t.Errorf("info after the resize says %d rows, want %d", got, rows-i%2)
			}
		})
	}
	for i := range b.count {
		b.timed("kill of a busy one", func() {
			call[*wire.OK](t, b.conn, wire.Terminate{SessionID: busyID(i), Asker: protocol.Asker{By: "me"}})
		})
	}
	b.timed("exits of the busy ones", func() {
		for i := range b.count {
			e := call[*wire.Exited](t, b.conn, wire.Wait{SessionID: busyID(i)})
			if e.Exit.EndedBy != "me" || e.Exit.Reason != protocol.ReasonUserRequested || e.Exit.Outcome == protocol.OutcomeNatural {
				t.Errorf("%s: %+v", e.SessionID, e.Exit)
			}
		}
	})
	for what, all := range b.took {
		got, limit := nearly(all), goal
		switch what {
		case "exits of the busy ones":
			limit = 20 * time.Second
		case "rest", "resize of a busy one":
			limit = 2 * time.Second
		}
		if control := b.control[what]; control > usualTime {
			limit = time.Duration(float64(limit) * min(noiseMost, float64(control)/float64(usualTime)))
		}
		t.Logf("%-22s p50 %v p99 %v max %v; without busy sessions p99 %v", what, all[len(all)/2], got, all[len(all)-1], b.control[what])
		if got > limit {
			t.Errorf("%s took %v in 99 of 100 cases, want at most %v", what, got, limit)
		}
	}
}
