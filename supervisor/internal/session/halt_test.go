//go:build linux || darwin

package session

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A session is halted again and again while its child prints as fast as it can and receives input. During a halt its
// state does not change, and afterwards every byte of output and input has arrived once.
func TestHalt(t *testing.T) {
	testkit.CheckLeaks(t)
	tb := NewTable(Config{RingBytes: 64 << 20, InputBytes: 4 << 20})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	const lines = 200_000
	s, err := tb.create("s", bash(fmt.Sprintf(`stty raw -echo; seq %d; echo END; exec cat`, lines)), "")
	testkit.Must(t, err)
	defer func() { _ = tb.Shutdown(t.Context(), protocol.Asker{}) }()
	for range 100 {
		var before uint64
		thaw, err := s.halt(patience, func() { _, before, _ = s.ring.Bounds() })
		if err != nil {
			t.Fatal("the session's loop has ended")
		}
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond) // time in which the child could print
		_, after, _ := s.ring.Bounds()
		thaw()
		if after != before {
			t.Fatalf("during the halt the output grew by %d bytes", after-before)
		}
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Microsecond)
	}
	var want strings.Builder
	for n := range lines {
		fmt.Fprintln(&want, n+1)
	}
	want.WriteString("END\n")
	testkit.Eventually(t, patience, func() bool {
		_, end, _ := s.ring.Bounds()
		return end >= uint64(want.Len())
	}, "all is printed")
	got, _, _, err := s.Read(0, want.Len())
	if err != nil || string(got) != want.String() {
		t.Errorf("%d bytes were printed, want %d; they differ at %d, %v", len(got), want.Len(), differ(got, []byte(want.String())), err)
	}
}

// A session whose screen was behind with costly output when it was thawed must read on, even if a request and not
// loop has brought the screen up to date.
func TestThawCaughtUpByRequest(t *testing.T) {
	tb := newTable(t, Config{})
	for range cap(tb.cfg.costlyTurns) { // loop has no turn until the test's end
		<-tb.cfg.costlyTurns
	}
	t.Cleanup(func() {
		for range cap(tb.cfg.costlyTurns) {
			tb.cfg.costlyTurns <- struct{}{}
		}
	})
	// The costly output and READY are one write of less than 2 KiB, which read receives at once: after it read stops until
	// the screen has caught up. The shell's own printf would write each line by itself.
	costly := filepath.Join(t.TempDir(), "costly")
	testkit.Must(t, os.WriteFile(costly, []byte(strings.Repeat("\x1b['}x\n", 300)+"READY"), 0o600))
	spec := bash("stty raw -echo; echo HERE; read -r x; cat " + costly + "; read -r x; echo DONE")
	spec.Cols, spec.Rows = protocol.MaxCols, protocol.MaxRows
	s := create(t, tb, spec)
	v := look(t, s, protocol.AttachSpec{Resume: &protocol.Resume{Instance: s.Instance()}})
	v.until(t, "HERE") // an attach request brings the screen up to date, so the costly output must come after it
	_, err := s.Type("", 0, []byte("\n"))
	testkit.Must(t, err)
	v.until(t, "READY")
	frozen, err := tb.Freeze()
	testkit.Must(t, err)
	frozen.Thaw()
	late := false
	s.do(func() { late = s.reader.unfinished != nil })
	if !late {
		t.Fatal("the screen is not behind after the halt, so the test shows nothing")
	}
	for behind := true; behind; {
		s.do(func() { s.feed(); behind = s.display.isBehind() })
	}
	if _, err := s.Type("", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "DONE")
}

// Input that the child does not read yet survives a halt, in its order.
func TestHaltTyping(t *testing.T) {
	testkit.CheckLeaks(t)
	tb := NewTable(Config{RingBytes: 8 << 20})
	gate := filepath.Join(t.TempDir(), "gate")
	testkit.Must(t, unix.Mkfifo(gate, 0o600))
	s, err := tb.create("s", bash(`stty raw -echo; echo READY; read -r < `+gate+`; exec cat`), "")
	testkit.Must(t, err)
	defer func() { _ = tb.Shutdown(t.Context(), protocol.Asker{}) }()
	const ready = "READY\n"
	printed := func(n int) []byte {
		t.Helper()
		testkit.Eventually(t, patience, func() bool { _, end, _ := s.ring.Bounds(); return end >= uint64(n) }, "the child prints")
		got, _, _, err := s.Read(0, n)
		testkit.Must(t, err)
		return got
	}
	printed(len(ready))
	var typed []byte
	waits := 0
	for i := range 1000 {
		piece := fmt.Appendf(nil, "%d %s\n", i, strings.Repeat("x", i%300))
		if _, err := s.Type("w", uint64(len(typed)), piece); err != nil {
			t.Fatal(err)
		}
		typed = append(typed, piece...)
		if i == 600 {
			testkit.Must(t, os.WriteFile(gate, []byte("go\n"), 0))
		}
		if i%20 == 0 {
			if thaw, err := s.halt(patience, func() { waits = max(waits, s.input.journal.Queued()) }); err == nil {
				thaw()
			}
		}
	}
	if waits == 0 {
		t.Error("no input had to wait, so the test shows nothing")
	}
	want := append([]byte(ready), typed...)
	if got := printed(len(want)); !bytes.Equal(got, want) {
		t.Errorf("input and output differ at %d of %d", differ(got, want), len(want))
	}
}

// differ returns the index at which two texts begin to differ.
func differ(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A session that ends or has ended can be halted. A session whose loop has ended cannot.
func TestHaltEnds(t *testing.T) {
	testkit.CheckLeaks(t)
	tb := NewTable(Config{})
	s, err := tb.create("s", bash("exit 3"), "")
	testkit.Must(t, err)
	for done := false; !done; {
		var state protocol.State
		thaw, err := s.halt(patience, func() { state = s.saved.State })
		if err != nil {
			t.Fatal("the session's loop has ended")
		}
		thaw()
		done = state == protocol.StateExited
	}
	<-s.Exited()
	if s.Exit().ExitCode != 3 {
		t.Errorf("the session ended as %+v", s.Exit())
	}
	testkit.Must(t, tb.Forget("s", ""))
	<-s.gone
	if _, err := s.halt(patience, func() { t.Error("looked at") }); err == nil {
		t.Error("a session was halted after its loop had ended")
	}
}

// Events that wait because others were published shortly before are published before another program takes over, and
// not a second time if none does.
func TestFreezePublishesHeldEvents(t *testing.T) {
	tb := newTable(t, Config{})
	s := create(t, tb, bash(`echo READY; read -r; printf '\033]9;two\a\033]2;last title\a\033]133;A\a\033]133;C\a\033]7501;state=working:app=agent\a'; echo DONE; exec sleep 1000`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	hold := func(limit rate.Limit, until time.Duration) {
		s.saved.Programs.limit, s.saved.commands.limit = rate.NewLimiter(limit, 1), rate.NewLimiter(limit, 1)
		s.saved.Programs.limit.Allow()
		s.saved.commands.limit.Allow()
		s.eventAlarm.set(until)
	}
	s.do(func() { hold(0, forever) })
	testkit.Must(t, v.a.Type(0, []byte("\n")))
	v.until(t, "DONE")
	if _, err := s.Show(protocol.ScreenSpec{}); err != nil { // it waits until the output is on the screen
		t.Fatal(err)
	}
	want := []protocol.EventKind{protocol.EventTitle, protocol.EventNotification, protocol.EventCommandStarted, protocol.EventProgramStatus}
	check := func(when string) {
		t.Helper()
		_, all := tb.Events().Saved()
		for _, kind := range want {
			n := 0
			for _, e := range all {
				if e.Kind == kind {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s: %d events %s, want 1", when, n, kind)
			}
		}
	}
	frozen, err := tb.Freeze()
	testkit.Must(t, err)
	check("frozen")
	frozen.Thaw()
	s.do(func() {
		hold(rate.Inf, 0)
		s.eventAlarm.disarm()
		s.publishScreenEvents()
		s.publishPendingCommand()
		s.publishPendingReports()
	})
	check("thawed")
}

// If the start of a child does not end, because its file system does not answer, an upgrade is refused and the sessions
// continue, and a shutdown does not wait for it.
func TestFreezeBesideHungStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		_, op, _, err := tb.registry.reserve("hung", "", time.Now(), func(*Session) (string, error) { return "", nil })
		testkit.Must(t, err)
		if _, err := tb.Freeze(); protocol.CodeOf(err) != protocol.CodeBusy {
			t.Errorf("freeze: %v, want busy", err)
		}
		s := create(t, tb, bash(""))
		if err := s.Relabel(map[string]string{"a": "b"}); err != nil {
			t.Errorf("relabel after the failed upgrade: %v", err)
		}
		shutdown(t, tb)
		tb.registry.cancel("hung")
		tb.registry.finish(op)
	})
}
