package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A load is the work of programs and clients while processes die: programs that print, flood, edit, receive
// pastes, wait and exit, and clients that view each and check each byte.
type load struct {
	*doors
	seed    uint64
	rnd     *rand.Rand
	streams []*stream
	flood   *reading
	vim     *editing
	paste   *pasting
	idle    []*view
	probes  probes
	lives   []*client.Spawned // sessions whose children must be the same at the end

	quitters int           // how many quitters have ended as expected
	without  []span        // from each death until a supervisor serves again
	stop     func()        // ends the typists
	stopped  chan struct{} // closed by stop
	typists  sync.WaitGroup
	settled  chan struct{} // closed when no more input is sent
	readers  sync.WaitGroup
}

const (
	loadStreams = 2
	loadIdle    = 5
	pasteBytes  = 5 << 20
	probeEvery  = 20 * time.Millisecond
)

// restless are settings with which a keeper starts supervisors however many die.
var restless = []string{bigRing, "HOLDFAST_CRASH_LIMIT=1000000", "HOLDFAST_CRASH_PAUSE=1us"}

func newLoad(t *testing.T) *load {
	t.Helper()
	l := &load{seed: rand.Uint64(), stopped: make(chan struct{}), settled: make(chan struct{})}
	l.rnd = rand.New(rand.NewPCG(l.seed, 0))
	t.Logf("seed %d", l.seed)
	l.doors = newWorld(t, restless...).doors()
	l.stop = sync.OnceFunc(func() {
		close(l.stopped)
		l.typists.Wait()
		close(l.settled)
		l.readers.Wait()
	})
	t.Cleanup(l.stop)
	for i := range loadStreams {
		s := newStream(t, l.world, fmt.Sprint("stream-", i))
		l.streams, l.lives = append(l.streams, s), append(l.lives, s.spawned)
	}
	for i := range loadIdle {
		id := fmt.Sprint("idle-", i)
		l.lives = append(l.lives, l.spawn(l.c, id, shell("PS1='$ ' exec sh -i")))
		v := l.attach(l.c, id, client.AttachOptions{})
		v.until("$ ")
		l.idle = append(l.idle, v)
	}
	l.lives = append(l.lives, l.spawn(l.c, "flood", burstsOf(strings.TrimSpace(floodLine))))
	l.flood = l.reads("flood", floods)
	l.flood.mayMiss = true
	l.begin(l.flood)
	l.vim, l.paste = l.edits("vim"), l.pastes("paste")
	for i := range 2 {
		id := fmt.Sprint("probed-", i)
		l.probes.conns = append(l.probes.conns, byLibrary{l.echo(l.c, id).Attachment})
	}
	l.probes.every = probeEvery
	l.probes.start(t)
	return l
}

// flow waits until a stream has printed a random number of lines.
func (l *load) flow(t *testing.T) {
	t.Helper()
	l.streams[l.rnd.IntN(loadStreams)].flow(t, 1+l.rnd.IntN(500))
}

// end ends everything, and compares what each client received with what was printed.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.probes.stop()
	for _, s := range l.lives {
		info, err := l.c.SessionInfo(l.ctx(), s.SessionID)
		if err != nil || info.PID != s.PID || info.Instance != s.Session.Instance || !lookup(info.PID).Running() {
			t.Errorf("%s had pid %d of instance %s; now it is %+v, %v", s.SessionID, s.PID, s.Session.Instance, info, err)
		}
	}
	for _, v := range l.idle {
		v.say("echo it is $((6*7))\n")
		v.until("it is 42")
	}
	l.vim.saved(t, l)
	calm := newWorld(t, bigRing)
	c := calm.dial(client.Options{})
	read := uint64(0)
	for _, s := range l.streams {
		s.finish(t)
		read += uint64(s.all.Len())
	}
	for id, printed := range map[protocol.SessionID][]byte{"vim": nil, "stream-0": l.streams[0].all.Bytes(), "idle-0": nil, "paste": nil} {
		l.compareScreen(t, calm, c, id, printed)
	}
	for _, r := range []*reading{l.flood, l.vim.reading, l.paste.reading} {
		n, err := r.seen()
		if err != nil || n == 0 {
			t.Errorf("%s: read %d bytes, %v", r.id, n, err)
		}
		read += n
	}
	l.vim.quits(t, l)
	for i, v := range l.idle {
		v.say(fmt.Sprintf("exit %d\n", i))
		if m := v.last(); m.Kind != client.Exited || m.Exit.ExitCode != i {
			t.Errorf("the last message of shell %d is %+v, exit %+v", i, m, m.Exit)
		}
	}
	l.unharmed()
	away := l.probes.longest(l.without)
	if len(away) > 0 {
		t.Logf("the longest echo around a death: median %v, p99 %v, maximum %v", median(away), away[len(away)*99/100], away[len(away)-1])
	}
	t.Logf("%d bytes were read and correct, %d of a flood were missed; %d pastes; %d lines edited; %d children ended around deaths",
		read, l.flood.a.Missed(), l.paste.done, l.vim.lines, l.quitters)
}

// A reading receives all output of a session. It fails if a byte does not continue the output, or if take
// returns an error.
type reading struct {
	id      protocol.SessionID
	a       *client.Attachment
	take    func(offset uint64, data []byte) error
	mayMiss bool // the session may report missed bytes

	mu  sync.Mutex
	pos uint64
	err error
}

// reads attaches at the start of a session's output.
func (l *load) reads(id string, take func(offset uint64, data []byte) error) *reading {
	l.T.Helper()
	return &reading{id: protocol.SessionID(id), a: l.attach(l.c, id, client.AttachOptions{}).Attachment, take: take}
}

func (l *load) begin(r *reading) {
	l.T.Cleanup(func() { _ = r.a.Detach() })
	l.readers.Go(func() { r.read(l.settled) })
}

// read ends when the session exits, at the first error, or, after settled was closed, when no message comes
// within a second.
func (r *reading) read(settled <-chan struct{}) {
	for {
		m, err := r.a.Receive(time.Second)
		if errors.Is(err, client.ErrTimeout) {
			select {
			case <-settled:
				return
			default:
				continue // vim does not print all the time
			}
		}
		if err == nil {
			err = r.see(m)
		}
		if err != nil {
			r.mu.Lock()
			r.err = err
			r.mu.Unlock()
		}
		if err != nil || m.Kind == client.Exited {
			return
		}
		select {
		case <-settled:
			if r.mayMiss { // a flood would never pause
				return
			}
		default:
		}
	}
}

func (r *reading) see(m *client.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Kind == client.Output && m.Offset != r.pos:
		return fmt.Errorf("output at offset %d, want offset %d", m.Offset, r.pos)
	case m.Kind == client.Output:
		r.pos += uint64(len(m.Data))
		return r.take(m.Offset, m.Data)
	case m.Kind == client.Missed && r.mayMiss:
		r.pos = m.Offset
	case m.Kind == client.Snapshot && r.mayMiss, m.Kind == client.Resized, m.Kind == client.Exited:
	default:
		return fmt.Errorf("unexpected message after offset %d: %+v", r.pos, m)
	}
	return nil
}

// seen returns the number of bytes read, and the error of the reading.
func (r *reading) seen() (n uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos - r.a.Missed(), r.err
}

// byLibrary is a terminal of the client library, which resumes without the test.
type byLibrary struct{ *client.Attachment }

// SetDeadline implements terminal. It does nothing, because printed has a time limit.
func (byLibrary) SetDeadline(time.Time) error { return nil }

func (b byLibrary) printed() ([]byte, error) {
	m, err := b.Receive(limit)
	if err == nil && m.Kind != client.Output && m.Kind != client.Resized {
		err = fmt.Errorf("unexpected message %+v", m)
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// floodLine has 17 bytes, so that a lost read of a usual length, which is a power of two, shifts the pattern.
const floodLine = "0123456789abcdef\n"

var flooded = bytes.Repeat([]byte(floodLine), 8<<10)

func floods(offset uint64, data []byte) error {
	for len(data) > 0 {
		want := flooded[offset%uint64(len(floodLine)):]
		n := min(len(data), len(want))
		if !bytes.Equal(data[:n], want[:n]) {
			return fmt.Errorf("wrong output near offset %d: %.100q", offset, data[:n])
		}
		data, offset = data[n:], offset+uint64(n)
	}
	return nil
}

// editing is an editor in a session, and a typist that enters lines without a pause.
type editing struct {
	*reading
	path  string
	lines int // number of typed lines; read after the load has stopped
}

func (l *load) edits(id string) *editing {
	l.T.Helper()
	e := &editing{path: l.Path(id + ".txt")}
	spec := protocol.SpawnSpec{Argv: []string{"vim", "-u", "NONE", "-N", "-n", "-c", "set nomore noswapfile", e.path}}
	l.lives = append(l.lives, l.spawn(l.c, id, spec))
	begun := make(chan struct{}, 1)
	var shown []byte
	e.reading = l.reads(id, func(_ uint64, data []byte) error {
		if shown = append(shown, data...); bytes.Contains(shown, []byte("vim.txt")) {
			select {
			case begun <- struct{}{}:
			default:
			}
			shown = nil
		}
		return nil
	})
	l.begin(e.reading)
	select {
	case <-begun:
	case <-time.After(limit):
		l.T.Fatal("the editor does not show its file within the limit")
	}
	l.typists.Go(func() { e.type_(l) })
	return e
}

func (e *editing) type_(l *load) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	_, err := e.a.Write([]byte("i"))
	for err == nil {
		select {
		case <-tick.C:
		case <-l.stopped:
			err = e.a.Flush(l.T.Context())
			if err == nil {
				return
			}
		}
		if err == nil {
			e.lines++
			_, err = fmt.Fprintf(e.a, "%08d\r", e.lines)
		}
	}
	l.T.Errorf("type into the editor after %d lines: %v", e.lines, err)
}

// saved makes the editor write its file, which must contain each line once.
func (e *editing) saved(t *testing.T, l *load) {
	t.Helper()
	testkit.Must(t, l.c.Type(l.ctx(), e.id, []byte("\x1b:w\r")))
	var want strings.Builder
	for n := range e.lines {
		fmt.Fprintf(&want, "%08d\n", n+1)
	}
	want.WriteString("\n") // the line of the cursor
	var got []byte
	if !eventually(func() bool { got, _ = os.ReadFile(e.path); return string(got) == want.String() }) {
		t.Errorf("%d lines were typed; the editor's file has %d, which end with %q", e.lines, bytes.Count(got, []byte("\n")), last(string(got), 60))
	}
}

func (e *editing) quits(t *testing.T, l *load) {
	t.Helper()
	testkit.Must(t, l.c.Type(l.ctx(), e.id, []byte(":q\r")))
	if exit, err := l.c.Wait(l.ctx(), e.id, limit); err != nil || exit.ExitCode != 0 {
		t.Errorf("exit of the editor: %+v, %v", exit, err)
	}
}

// pasting is a child that receives pastes without a pause and prints the checksum of each.
type pasting struct {
	*reading
	done int // number of pastes; read after the load has stopped
	said chan string
}

func (l *load) pastes(id string) *pasting {
	l.T.Helper()
	p := &pasting{said: make(chan string, 16)}
	script := fmt.Sprintf("stty raw -echo; echo ready; while :; do head -c %d | sha256sum; done", pasteBytes)
	l.lives = append(l.lives, l.spawn(l.c, id, shell(script)))
	var line []byte
	p.reading = l.reads(id, func(_ uint64, data []byte) error {
		line = append(line, data...)
		for {
			said, rest, ok := bytes.Cut(line, []byte("\n"))
			if !ok {
				return nil
			}
			p.said <- string(said)
			line = rest
		}
	})
	l.begin(p.reading)
	<-p.said
	l.typists.Go(func() { p.type_(l) })
	return p
}

func (p *pasting) type_(l *load) {
	rnd := rand.New(rand.NewPCG(l.seed, 1))
	data := make([]byte, pasteBytes)
	for {
		select {
		case <-l.stopped:
			return
		default:
		}
		for i := range data {
			data[i] = ' ' + byte(rnd.IntN(95))
		}
		if _, err := p.a.Write(data); err != nil {
			l.T.Errorf("paste %d: %v", p.done+1, err)
			return
		}
		late := time.NewTimer(2 * limit) // the machine may be busy
		select {
		case said := <-p.said:
			if want := fmt.Sprintf("%x  -", sha256.Sum256(data)); said != want {
				l.T.Errorf("paste %d arrived with the checksum %s, want %s", p.done+1, said, want)
				return
			}
		case <-late.C:
			l.T.Errorf("paste %d did not arrive within the limit", p.done+1)
			return
		}
		late.Stop()
		p.done++
	}
}

// quitter is a child that exits with a given code on SIGUSR1. Other signals kill it.
func quitter(args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	fmt.Println("ready")
	<-c
	fmt.Println("the last words")
	os.Exit(code)
	return nil
}

// A quitting is a quitter, with the signal that will end it and the exit code that the supervisor must
// report.
type quitting struct {
	process
	id   protocol.SessionID
	code int
	sig  syscall.Signal
}

// quitters starts n quitters and waits until they are ready.
func (w *world) quitters(c *client.Client, rnd *rand.Rand, n int) (all []quitting) {
	w.T.Helper()
	for range n {
		q := quitting{id: protocol.SessionID(protocol.NewToken(6)), code: 1 + rnd.IntN(100), sig: syscall.SIGUSR1}
		s := w.spawn(c, string(q.id), role("quitter", strconv.Itoa(q.code)))
		if rnd.IntN(3) == 0 {
			q.sig = []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[rnd.IntN(2)]
			q.code = 128 + int(q.sig)
		}
		q.process = lookup(s.PID)
		all = append(all, q)
	}
	for _, q := range all {
		testkit.Eventually(w.T, limit, func() bool {
			data, _, err := c.Output(w.ctx(), q.id)
			return err == nil && strings.HasPrefix(string(data), "ready")
		}, "a quitter is ready")
	}
	return all
}

// quit sends each quitter its signal, and returns when all have ended.
func (w *world) quit(all []quitting) {
	w.T.Helper()
	for _, q := range all {
		q.Signal(q.sig)
	}
	for _, q := range all {
		w.Gone(q.process)
	}
}

// haveQuit fails the test if the supervisor reports another exit or other output for a quitter. Then it
// forgets the session.
func (w *world) haveQuit(c *client.Client, all []quitting) {
	w.T.Helper()
	for _, q := range all {
		exit, err := c.Wait(w.ctx(), q.id, limit)
		if err != nil || exit.ExitCode != q.code || exit.Reason != protocol.ReasonExited || (exit.Signal == "") != (q.sig == syscall.SIGUSR1) {
			w.T.Errorf("the exit of a child that ended with %d by %v is %+v, %v", q.code, q.sig, exit, err)
			continue
		}
		data, _, err := c.Output(w.ctx(), q.id)
		want := "ready\r\n"
		if q.sig == syscall.SIGUSR1 {
			want += "the last words\r\n"
		}
		if string(data) != want || err != nil {
			w.T.Errorf("the output of a child that ended by %v is %q, %v, want %q", q.sig, data, err, want)
		}
		if err := c.Forget(w.ctx(), q.id); err != nil {
			w.T.Error(err)
		}
	}
}

// compareScreen compares a session's screen with the screen that an undisturbed supervisor makes of the same
// bytes: printed, or if printed is nil, the output in the session's ring.
func (l *load) compareScreen(t *testing.T, calm *world, c *client.Client, id protocol.SessionID, printed []byte) {
	t.Helper()
	whole := client.ScreenOptions{Format: protocol.ScreenCells, Scrollback: historySeen}
	var got *protocol.ScreenContent
	kept, from := printed == nil, uint64(0)
	testkit.Eventually(t, limit, func() bool { // an editor may still print
		var err error
		if got, err = l.c.Screen(l.ctx(), id, whole); err == nil && kept {
			printed, from, err = l.c.Output(l.ctx(), id)
		}
		if err != nil || from != 0 {
			t.Fatalf("%s: the ring starts at offset %d, want 0, %v", id, from, err)
		}
		return uint64(len(printed)) == got.Offset
	}, "the screen includes all output of the session")
	path := calm.Path(string(id) + ".printed")
	testkit.Must(t, os.WriteFile(path, printed, 0o600))
	calm.spawn(c, string(id), shell("stty raw -echo; cat "+path+"; exec sleep 1000"))
	var want *protocol.ScreenContent
	testkit.Eventually(t, 5*limit, func() bool { // the output may be long
		var err error
		want, err = c.Screen(calm.ctx(), id, whole)
		return err == nil && want.Offset == got.Offset
	}, "the undisturbed session has printed the same bytes")
	want.Instance, want.Input = got.Instance, got.Input // another program has set the mode of that terminal
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the screen of %s after %d bytes is not as expected, %v:\n%s\n%s", id, got.Offset, err, a, b)
	}
}

// pair returns the keeper and the supervisor when the supervisor serves and each of the two has all files.
// From then on either may die.
func (w *world) pair() (keeper, supervisor process) {
	w.T.Helper()
	testkit.Eventually(w.T, limit, func() bool {
		var ok bool
		keeper, supervisor, ok = w.paired()
		return ok
	}, "one keeper has a supervisor that serves")
	return keeper, supervisor
}

func (w *world) paired() (keeper, supervisor process, ok bool) {
	keepers, supervisors := w.Running("keeper"), w.Running("supervisor")
	if len(keepers) != 1 || len(supervisors) != 1 {
		return keeper, supervisor, false
	}
	keeper, supervisor = keepers[0], supervisors[0]
	ok = supervisor.Parent() == keeper.PID &&
		w.lines("supervisor.log", `"supervisor serves"`, fmt.Sprintf(`"pid":%d,`, supervisor.PID)) > 0
	return keeper, supervisor, ok
}

// harms are parts of the log messages of a supervisor or keeper that lost something which it
// should have kept.
var harms = []string{
	"because of a defect of the terminal core", "panic in the keeper", "session not adopted", "inherited socket not adopted", "keeper cannot start or resume",
}

// unharmed fails the test if a supervisor or a keeper logged one of harms.
func (w *world) unharmed() {
	w.T.Helper()
	for _, harm := range harms {
		if n := w.lines("supervisor.log", harm); n > 0 {
			w.T.Errorf("the log contains %q in %d lines", harm, n)
		}
	}
}

// TestHarms checks that the supervisor's code still contains each of harms. If a message is
// rewritten and harms is not, unharmed would find nothing.
func TestHarms(t *testing.T) {
	var code []byte
	err := filepath.WalkDir(filepath.Join("..", "..", "supervisor"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code = append(code, text...)
		return err
	})
	testkit.Must(t, err)
	for _, harm := range harms {
		if !bytes.Contains(code, []byte(harm)) {
			t.Errorf("no message of the supervisor contains %q", harm)
		}
	}
}

// randomMoment fires after a random time of at most longest.
func randomMoment(rnd *rand.Rand, longest time.Duration) <-chan time.Time {
	return time.After(time.Duration(rnd.Int64N(int64(longest))))
}
