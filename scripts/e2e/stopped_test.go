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

// A round measures stoppedEchoes echoes in each state. There are at least stoppedRounds rounds, so 500 echoes
// in each state. If the machine is busy with other work, there are up to stoppedLast rounds.
const (
	stoppedEchoes = 100
	stoppedRounds = 5
	stoppedLast   = 50
	stoppedFlood  = 5 * time.Second
)

// If a viewer is stopped while its session floods, an echo in another session may take at most twice as long
// as without the flood. The supervisor must not grow meanwhile, and when the viewer continues, it must show
// the current screen. The test is not parallel, because it measures times.
// demand: R6, R10
func TestStoppedViewer(t *testing.T) {
	w := newWorld(t)
	c := w.dial(client.Options{})
	beside := w.echo(c, "beside")
	w.spawn(c, "flood", flooding)
	v := w.watch("flood")
	signal := func(sig string) {
		t.Helper()
		testkit.Must(t, c.Signal(w.ctx(), "flood", sig))
	}
	var quiet, read, stopped p99s
	for i := range stoppedLast { // in turns, because the load of the machine changes
		signal("STOP")
		quiet.add(beside.keys(t))
		signal("CONT")
		read.add(beside.keys(t))
		v.Signal(syscall.SIGSTOP)
		stopped.add(beside.keys(t))
		v.Signal(syscall.SIGCONT)
		if i+1 >= stoppedRounds && stopped.isNear(quiet) {
			break
		}
	}
	t.Logf("p99 of an echo without a flood: %v at best, median %v, in %d rounds", quiet.best(), median(quiet), len(quiet))
	t.Logf("beside a flood whose viewer reads: %v, %v; whose viewer is stopped: %v, %v", read.best(), median(read), stopped.best(), median(stopped))
	if !stopped.isNear(quiet) {
		t.Error("a stopped viewer, or its flood, delays another session")
	}
	v.Signal(syscall.SIGSTOP)
	w.floodWithoutReader(c, beside)
	testkit.Must(t, c.Type(w.ctx(), "flood", []byte("\n")))
	v.Signal(syscall.SIGCONT)
	v.shows(t, "MARK")
	if _, err := v.tty.WriteString("typed after all this\r"); err != nil {
		t.Fatal(err)
	}
	v.shows(t, "typed after all this")
}

// p99s are the 99th percentiles of the rounds.
type p99s []time.Duration

func (p *p99s) add(d time.Duration) { *p = append(*p, d) }

func (p p99s) best() time.Duration { return slices.Min(p) }

// isNear reports whether the times are at most twice those of other: in the best rounds, or in the rounds in the middle, because
// on a busy machine one round of other may find a processor that is idle.
func (p p99s) isNear(other p99s) bool {
	return p.best() <= 2*other.best() || median(p) <= 2*median(other)
}

// keys types keys into an echoing session, and returns the 99th percentile of the times of their echoes.
func (v *view) keys(t *testing.T) time.Duration {
	t.Helper()
	took := make([]time.Duration, stoppedEchoes)
	for i := range took {
		begun := time.Now()
		testkit.Must(t, echoOnce(v.Attachment, string(rune('a'+i%26))))
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// floodWithoutReader fails the test if a process grows while one session floods without a reading viewer and
// another one echoes.
func (w *world) floodWithoutReader(c *client.Client, beside *view) {
	w.T.Helper()
	before, printed := w.usages(), w.printed(c, "flood")
	most := map[string]int{}
	for end := time.Now().Add(stoppedFlood); time.Now().Before(end); {
		testkit.Must(w.T, echoOnce(beside.Attachment, "x"))
		for name := range before {
			most[name] = max(most[name], usageOf(w.Only(name).PID).RSS)
		}
	}
	w.T.Logf("%d MiB were printed without a reader", (w.printed(c, "flood")-printed)>>20)
	for name, was := range before {
		w.T.Logf("the %s had %d KiB, and at most %d", name, was.RSS, most[name])
		if most[name] > was.RSS+moreRSS() {
			w.T.Errorf("the %s grew from %d to %d KiB", name, was.RSS, most[name])
		}
	}
}

// printed returns the number of bytes that a session has printed.
func (w *world) printed(c *client.Client, id protocol.SessionID) uint64 {
	w.T.Helper()
	info, err := c.SessionInfo(w.ctx(), id)
	testkit.Must(w.T, err)
	return info.OutputOffset
}

// A watcher is the command line's viewer on a terminal whose output the test reads without a pause.
type watcher struct {
	process
	tty *os.File

	mu    sync.Mutex
	shown []byte // the last 4 KiB of its output
}

// watch starts a viewer, and waits until it shows a line "y".
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
		w.T.Fatal("the process of the viewer was not found")
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

// shows waits until the last output of the viewer contains a text.
func (v *watcher) shows(t testing.TB, text string) {
	t.Helper()
	testkit.Eventually(t, limit, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return bytes.Contains(v.shown, []byte(text))
	}, "the viewer shows "+text)
}
