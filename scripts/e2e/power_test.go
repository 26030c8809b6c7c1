package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// counter prints numbered lines of 10 bytes, with the CR that the terminal adds, and pauses after each 1,000
// lines.
func counter(args []string) error {
	pause, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	var b []byte
	for n := 0; ; n++ {
		b = fmt.Appendf(b, "%08d\n", n)
		if n%1000 < 999 {
			continue
		}
		if _, err := os.Stdout.Write(b); err != nil {
			return err
		}
		b = b[:0]
		time.Sleep(pause)
	}
}

// powerCut kills keeper, supervisor, proxy and all children at once, as a loss of power does. It stops them
// first, so that no process notices the end of another. It kills a parent after its children, because the end
// of a parent continues its stopped children.
func (w *world) powerCut(children []int) {
	w.T.Helper()
	keeper, held := w.pair()
	all := []process{w.Only("proxy")}
	for _, pid := range children {
		all = append(all, lookup(pid))
	}
	all = append(all, held, keeper)
	for _, p := range all {
		p.Signal(syscall.SIGSTOP)
	}
	for _, p := range all {
		w.Stopped(p)
	}
	for _, p := range all {
		p.Signal(syscall.SIGKILL)
	}
	testkit.Eventually(w.T, limit, func() bool { return len(w.Running("")) == 0 }, "all processes have ended")
}

// After a loss of power each session must be listed as lost. Its screen must be exactly the screen at the
// offset in the list, and a session that was silent must be complete. A revived session must show the old
// screen above its own output. HOLDFAST_CUTS is the number of power cuts.
// demand: D1, D2, D3
func TestPowerCut(t *testing.T) {
	t.Parallel()
	cuts := 2
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_CUTS")); err == nil {
		cuts = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range cuts {
		w := newWorld(t)
		c := w.dial(client.Options{})
		var children []int
		for i, pause := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
			spec := role("counter", pause.String())
			if i == 1 {
				spec.Durable = protocol.DurableFull
			}
			children = append(children, w.spawn(c, fmt.Sprint("loud-", i), spec).PID)
		}
		quiet := w.spawn(c, "quiet", echoing)
		children = append(children, quiet.PID)
		v := w.attach(c, "quiet", client.AttachOptions{})
		v.ask("what was typed")
		if err := v.Close(); err != nil { // an attachment would start a proxy again
			t.Error(err)
		}
		for _, s := range []string{"quiet", "loud-0", "loud-1", "loud-2"} {
			testkit.Eventually(t, limit, func() bool {
				segments, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", s+"@*", "0*"))
				meta, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", s+"@*", "meta.json"))
				return len(segments) > 0 && len(meta) > 0
			}, "session "+s+" is stored")
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond) // the cut comes at a random moment
		_ = c.Close()
		w.powerCut(children)

		if list := w.Must("proxy", "ls"); strings.Count(list, "lost") < 4 { // ls starts the programs
			t.Errorf("proxy ls prints %s", list)
		}
		c = w.dial(client.Options{})
		var lost []protocol.SessionInfo
		testkit.Eventually(t, limit, func() (ok bool) {
			list, err := c.List(w.ctx(), "")
			lost = list
			return err == nil && len(list) == 4
		}, "all sessions are listed")
		for _, s := range lost {
			if s.State != protocol.StateLost || s.Lost == nil {
				t.Errorf("session %s is %+v, want lost", s.ID, s)
				continue
			}
			screen, err := c.Screen(w.ctx(), s.ID, client.ScreenOptions{})
			testkit.Must(t, err)
			if s.ID == "quiet" {
				if !strings.Contains(strings.Join(screen.Lines, "\n"), "what was typed") {
					t.Errorf("the screen of the silent session is %q", screen.Lines)
				}
				continue
			}
			if s.Lost.Offset == 0 {
				t.Errorf("no output of session %s is stored", s.ID)
			}
			checkCounter(t, s, screen)
		}
		w.Must("supervisor", "--upgrade")
		testkit.Eventually(t, limit, func() bool {
			list, err := c.List(w.ctx(), "")
			return err == nil && slices.EqualFunc(list, lost, func(a, b protocol.SessionInfo) bool {
				return a.ID == b.ID && a.State == b.State && a.Lost != nil && a.Lost.Offset == b.Lost.Offset
			})
		}, "an upgraded supervisor lists the same lost sessions")
		r, err := c.Reopen(w.ctx(), "quiet", protocol.RespawnSpec{KeepScreen: true}, nil)
		testkit.Must(t, err)
		if r.Session.Instance == quiet.Session.Instance {
			t.Error("the revived session has the instance of the lost one")
		}
		seen, err := c.Screen(w.ctx(), "quiet", client.ScreenOptions{Scrollback: protocol.AllScrollback})
		if err != nil || !strings.Contains(strings.Join(seen.Lines, "\n"), "what was typed\n── the machine stopped") {
			t.Errorf("the screen of the revived session is %q, %v", seen.Lines, err)
		}
		_ = c.Close()
	}
}

// checkCounter checks that screen is the screen of a counter at exactly the offset of s.Lost.
func checkCounter(t *testing.T, s protocol.SessionInfo, screen *protocol.ScreenContent) {
	t.Helper()
	whole, part := s.Lost.Offset/10, s.Lost.Offset%10
	last := fmt.Sprintf("%08d\r", whole)[:min(part, 8)]
	var want []string
	for n := int64(whole) - int64(s.Size.Rows) + 1; n < int64(whole); n++ {
		if n >= 0 {
			want = append(want, fmt.Sprintf("%08d", n))
		}
	}
	want = append(want, last)
	if got := strings.TrimRight(strings.Join(screen.Lines, "\n"), "\n"); got != strings.TrimRight(strings.Join(want, "\n"), "\n") {
		t.Errorf("the screen of session %s at offset %d is\n%s\nwant\n%s", s.ID, s.Lost.Offset, got, strings.Join(want, "\n"))
	}
}
