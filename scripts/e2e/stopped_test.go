package e2e

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A round measures so many echoes in each state. There are enough rounds for
// 500 of each, and as many more as it takes on a machine that is busy with
// other things, up to the last.
const (
	stoppedEchoes = 100
	stoppedRounds = 5
	stoppedLast   = 50
	stoppedFlood  = 5 * time.Second
)

// A viewer that is stopped while its session floods costs another session
// little: a key's echo there takes at most twice as long as without the flood.
// The supervisor does not grow meanwhile, and when the viewer goes on, it shows
// the present.
// It is not parallel, as it measures.
// demand: R6, R10
func TestStoppedViewer(t *testing.T) {
	w := newWorld(t)
	c := w.dial(client.Options{})
	beside := w.echo(c, "beside")
	w.spawn(c, "flood", flooding)
	v := w.watch("flood")
	signal := func(sig string) {
		t.Helper()
		if err := c.Signal(w.ctx(), "flood", sig); err != nil {
			t.Fatal(err)
		}
	}
	var quiet, read, stopped p99s
	for i := range stoppedLast { // in turns: what others do on this machine changes
		signal("STOP")
		quiet.add(beside.keys(t))
		signal("CONT")
		read.add(beside.keys(t))
		v.Signal(syscall.SIGSTOP)
		stopped.add(beside.keys(t))
		v.Signal(syscall.SIGCONT)
		if i+1 >= stoppedRounds && stopped.best() <= 2*quiet.best() {
			break
		}
	}
	t.Logf("p99 of an echo without a flood: %v at best, %v mostly, in %d rounds", quiet.best(), median(quiet), len(quiet))
	t.Logf("beside a flood whose viewer reads: %v, %v; whose viewer is stopped: %v, %v", read.best(), median(read), stopped.best(), median(stopped))
	if stopped.best() > 2*quiet.best() {
		t.Error("a stopped viewer, or its flood, holds up another session")
	}
	v.Signal(syscall.SIGSTOP)
	w.floodsNobody(c, beside)
	if err := c.Type(w.ctx(), "flood", []byte("\n")); err != nil {
		t.Fatal(err)
	}
	v.Signal(syscall.SIGCONT)
	v.shows(t, "MARK")
	if _, err := v.tty.WriteString("typed after all this\r"); err != nil {
		t.Fatal(err)
	}
	v.shows(t, "typed after all this")
}

// p99s are the 99th percentiles of rounds.
type p99s []time.Duration

func (p *p99s) add(d time.Duration) { *p = append(*p, d) }

func (p p99s) best() time.Duration { return slices.Min(p) }

// keys types keys into an echoing session, and returns the 99th percentile of
// how long their echoes take.
func (v *view) keys(t *testing.T) time.Duration {
	t.Helper()
	took := make([]time.Duration, stoppedEchoes)
	for i := range took {
		begun := time.Now()
		if err := echoOnce(v.Attachment, string(rune('a'+i%26))); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// floodsNobody fails the test if the processes grow while a session floods that
// nobody reads, and another echoes.
func (w *world) floodsNobody(c *client.Client, beside *view) {
	w.T.Helper()
	before, printed := w.usages(), w.printed(c, "flood")
	most := map[string]int{}
	for end := time.Now().Add(stoppedFlood); time.Now().Before(end); {
		if err := echoOnce(beside.Attachment, "x"); err != nil {
			w.T.Fatal(err)
		}
		for name := range before {
			most[name] = max(most[name], usageOf(w.Only(name).PID).RSS)
		}
	}
	w.T.Logf("%d MiB were printed to nobody", (w.printed(c, "flood")-printed)>>20)
	for name, was := range before {
		w.T.Logf("the %s had %d KiB, and at most %d", name, was.RSS, most[name])
		if most[name] > was.RSS+moreRSS() {
			w.T.Errorf("the %s grew from %d to %d KiB", name, was.RSS, most[name])
		}
	}
}

// printed is how much a session has printed.
func (w *world) printed(c *client.Client, id protocol.SessionID) uint64 {
	w.T.Helper()
	info, err := c.SessionInfo(w.ctx(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	return info.OutputOffset
}

// A watcher is the command line's viewer, on a terminal that takes all it is
// shown.
type watcher struct {
	process
	tty *os.File

	mu    sync.Mutex
	shown []byte // the last
}

// watch starts a viewer, and returns once it shows something.
func (w *world) watch(id string) *watcher {
	w.T.Helper()
	cmd := w.Command("proxy", "attach", id)
	argv := slices.Concat([]string{"/usr/bin/env", "-i", "TERM=xterm-256color"}, cmd.Env, cmd.Args)
	v := &watcher{tty: startBare(w.T, argv...)}
	go v.look()
	v.shows(w.T, "y\n")
	for _, p := range w.Running("") {
		if slices.Equal(list(p.PID, "cmdline"), cmd.Args) {
			v.process = p
		}
	}
	if !v.Running() {
		w.T.Fatal("the viewer does not run")
	}
	return v
}

// look reads the terminal until it is closed.
func (v *watcher) look() {
	buf := make([]byte, 64<<10)
	for {
		n, err := v.tty.Read(buf)
		if err != nil {
			return
		}
		v.mu.Lock()
		v.shown = append(v.shown, buf[:n]...)
		v.shown = slices.Clone(v.shown[max(0, len(v.shown)-4096):])
		v.mu.Unlock()
	}
}

// shows waits until the last that the viewer has shown has a text in it.
func (v *watcher) shows(t testing.TB, text string) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return bytes.Contains(v.shown, []byte(text))
	}, "the viewer shows "+text)
}
