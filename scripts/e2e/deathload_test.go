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

// A load is what goes on while processes die: programs that print, flood, edit,
// are pasted to, wait and end, and clients that look at each and check each byte.
type load struct {
	*doors
	seed    uint64
	rnd     *rand.Rand
	streams []*stream
	flood   *reading
	vim     *typed
	paste   *pasted
	idle    []*view
	probes  probes
	lives   []*client.Spawned // whose children must be the same in the end

	quitters int           // that have ended as they should
	without  []span        // from a death to when there is a supervisor again
	stop     func()        // ends what types
	stopped  chan struct{} // closed by stop
	typists  sync.WaitGroup
	settled  chan struct{} // closed when nothing is typed any more
	readers  sync.WaitGroup
}

const (
	loadStreams = 2
	loadIdle    = 5
	pasteBytes  = 5 << 20
	probeEvery  = 20 * time.Millisecond
)

// restless has a keeper start supervisors however many die.
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

// flow waits for a stream to go on by lines.
func (l *load) flow(t *testing.T) {
	t.Helper()
	l.streams[l.rnd.IntN(loadStreams)].flow(t, 1+l.rnd.IntN(500))
}

// end has all come to its end, and holds what each has seen against what there was.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.probes.stop()
	for _, s := range l.lives {
		info, err := l.c.SessionInfo(l.ctx(), s.SessionID)
		if err != nil || info.PID != s.PID || info.Instance != s.Session.Instance || !lookup(info.PID).Running() {
			t.Errorf("%s was pid %d of %s, and is %+v, %v", s.SessionID, s.PID, s.Session.Instance, info, err)
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
		l.looksRight(t, calm, c, id, printed)
	}
	for _, r := range []*reading{l.flood, l.vim.reading, l.paste.reading} {
		n, err := r.seen()
		if err != nil || n == 0 {
			t.Errorf("%s: %d bytes were read, %v", r.id, n, err)
		}
		read += n
	}
	l.vim.quits(t, l)
	for i, v := range l.idle {
		v.say(fmt.Sprintf("exit %d\n", i))
		if m := v.last(); m.Kind != client.Exited || m.Exit.ExitCode != i {
			t.Errorf("shell %d ends with %+v, %+v", i, m, m.Exit)
		}
	}
	l.unharmed()
	away := l.probes.longest(l.without)
	if len(away) > 0 {
		t.Logf("the longest echo about a death: %v mostly, p99 %v, %v at most", median(away), away[len(away)*99/100], away[len(away)-1])
	}
	t.Logf("%d bytes were read and right, %d of a flood were missed; %d pastes; %d lines edited; %d ends of children about deaths",
		read, l.flood.a.Missed(), l.paste.done, l.vim.lines, l.quitters)
}

// A reading takes in all that a session prints, and fails at a byte that is not the
// next, or at one that take does not like.
type reading struct {
	id      protocol.SessionID
	a       *client.Attachment
	take    func(offset uint64, data []byte) error
	mayMiss bool // what it is told of

	mu  sync.Mutex
	pos uint64
	err error
}

// reads attaches to all of a session.
func (l *load) reads(id string, take func(offset uint64, data []byte) error) *reading {
	l.T.Helper()
	return &reading{id: protocol.SessionID(id), a: l.attach(l.c, id, client.AttachOptions{}).Attachment, take: take}
}

func (l *load) begin(r *reading) {
	l.T.Cleanup(func() { _ = r.a.Detach() })
	l.readers.Go(func() { r.read(l.settled) })
}

// read ends with the session, with the first error, and when nothing comes any more
// after settled was closed.
func (r *reading) read(settled <-chan struct{}) {
	for {
		m, err := r.a.Receive(time.Second)
		if errors.Is(err, client.ErrTimeout) {
			select {
			case <-settled:
				return
			default:
				continue // vim does not always print
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
			if r.mayMiss { // it would never end
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
		return fmt.Errorf("output at offset %d, %d is the next", m.Offset, r.pos)
	case m.Kind == client.Output:
		r.pos += uint64(len(m.Data))
		return r.take(m.Offset, m.Data)
	case m.Kind == client.Missed && r.mayMiss:
		r.pos = m.Offset
	case m.Kind == client.Snapshot && r.mayMiss, m.Kind == client.Resized, m.Kind == client.Exited:
	default:
		return fmt.Errorf("after offset %d comes %+v", r.pos, m)
	}
	return nil
}

// seen returns how much was read, and what was wrong with it.
func (r *reading) seen() (n uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pos - r.a.Missed(), r.err
}

// byLibrary is a terminal that resumes by itself.
type byLibrary struct{ *client.Attachment }

// SetDeadline implements terminal: printed has the limit.
func (byLibrary) SetDeadline(time.Time) error { return nil }

func (b byLibrary) printed() ([]byte, error) {
	m, err := b.Receive(limit)
	if err == nil && m.Kind != client.Output && m.Kind != client.Resized {
		err = fmt.Errorf("told %+v", m)
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// floodLine has 17 bytes: no read that might be lost is so long, nor a multiple.
const floodLine = "0123456789abcdef\n"

var flooded = bytes.Repeat([]byte(floodLine), 8<<10)

func floods(offset uint64, data []byte) error {
	for len(data) > 0 {
		want := flooded[offset%uint64(len(floodLine)):]
		n := min(len(data), len(want))
		if !bytes.Equal(data[:n], want[:n]) {
			return fmt.Errorf("about offset %d comes %.100q", offset, data[:n])
		}
		data, offset = data[n:], offset+uint64(n)
	}
	return nil
}

// typed is an editor, and somebody who types lines into it all the time.
type typed struct {
	*reading
	path  string
	lines int // read once the load has stopped
}

func (l *load) edits(id string) *typed {
	l.T.Helper()
	e := &typed{path: l.Path(id + ".txt")}
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
		l.T.Fatal("the editor does not show its file")
	}
	l.typists.Go(func() { e.type_(l) })
	return e
}

func (e *typed) type_(l *load) {
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
	l.T.Errorf("the editor's typist, after %d lines: %v", e.lines, err)
}

// saved has the editor write its file, which has each line once.
func (e *typed) saved(t *testing.T, l *load) {
	t.Helper()
	if err := l.c.Type(l.ctx(), e.id, []byte("\x1b:w\r")); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for n := range e.lines {
		fmt.Fprintf(&want, "%08d\n", n+1)
	}
	want.WriteString("\n") // that of the cursor
	var got []byte
	if !eventually(func() bool { got, _ = os.ReadFile(e.path); return string(got) == want.String() }) {
		t.Errorf("%d lines were typed, and the editor has %d, which end with %q", e.lines, bytes.Count(got, []byte("\n")), last(string(got), 60))
	}
}

func (e *typed) quits(t *testing.T, l *load) {
	t.Helper()
	if err := l.c.Type(l.ctx(), e.id, []byte(":q\r")); err != nil {
		t.Fatal(err)
	}
	if exit, err := l.c.Wait(l.ctx(), e.id, limit); err != nil || exit.ExitCode != 0 {
		t.Errorf("the editor ends with %+v, %v", exit, err)
	}
}

// pasted is a child that is pasted to all the time, and says what that was.
type pasted struct {
	*reading
	done int // read once the load has stopped
	said chan string
}

func (l *load) pastes(id string) *pasted {
	l.T.Helper()
	p := &pasted{said: make(chan string, 16)}
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

func (p *pasted) type_(l *load) {
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
				l.T.Errorf("paste %d came as %s, and not %s", p.done+1, said, want)
				return
			}
		case <-late.C:
			l.T.Errorf("paste %d does not come", p.done+1)
			return
		}
		late.Stop()
		p.done++
	}
}

// quitter is a child that ends when it is asked to: by SIGUSR1, with the code that
// it is given, or by what ends anybody.
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

// A quitting is a quitter, and how it is to end.
type quitting struct {
	process
	id   protocol.SessionID
	code int
	sig  syscall.Signal
}

// quitters starts some.
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
		}, "a child is ready")
	}
	return all
}

// quit has them end, and returns when they have.
func (w *world) quit(all []quitting) {
	w.T.Helper()
	for _, q := range all {
		q.Signal(q.sig)
	}
	for _, q := range all {
		w.Gone(q.process)
	}
}

// haveQuit fails the test if one is not known to have ended as it did.
func (w *world) haveQuit(c *client.Client, all []quitting) {
	w.T.Helper()
	for _, q := range all {
		exit, err := c.Wait(w.ctx(), q.id, limit)
		if err != nil || exit.ExitCode != q.code || exit.Reason != protocol.ReasonExited || (exit.Signal == "") != (q.sig == syscall.SIGUSR1) {
			w.T.Errorf("a child that ended with %d by %v is known to have ended with %+v, %v", q.code, q.sig, exit, err)
			continue
		}
		data, _, err := c.Output(w.ctx(), q.id)
		want := "ready\r\n"
		if q.sig == syscall.SIGUSR1 {
			want += "the last words\r\n"
		}
		if string(data) != want || err != nil {
			w.T.Errorf("a child that ended by %v has printed %q, %v, and not %q", q.sig, data, err, want)
		}
		if err := c.Forget(w.ctx(), q.id); err != nil {
			w.T.Error(err)
		}
	}
}

// looksRight holds a session's screen against what a supervisor that nothing happens
// to makes of the same bytes: those that were printed, or, of nil, that its ring keeps.
func (l *load) looksRight(t *testing.T, calm *world, c *client.Client, id protocol.SessionID, printed []byte) {
	t.Helper()
	whole := client.ScreenOptions{Format: protocol.ScreenCells, Scrollback: historySeen}
	var got *protocol.ScreenContent
	kept, from := printed == nil, uint64(0)
	testkit.Eventually(t, limit, func() bool { // an editor may have something to say
		var err error
		if got, err = l.c.Screen(l.ctx(), id, whole); err == nil && kept {
			printed, from, err = l.c.Output(l.ctx(), id)
		}
		if err != nil || from != 0 {
			t.Fatalf("%s: what was printed is kept from offset %d on, %v", id, from, err)
		}
		return uint64(len(printed)) == got.Offset
	}, "a session is still, and shows all")
	path := calm.Path(string(id) + ".printed")
	if err := os.WriteFile(path, printed, 0o600); err != nil {
		t.Fatal(err)
	}
	calm.spawn(c, string(id), shell("stty raw -echo; cat "+path+"; exec sleep 1000"))
	var want *protocol.ScreenContent
	testkit.Eventually(t, 5*limit, func() bool { // it may be much
		var err error
		want, err = c.Screen(calm.ctx(), id, whole)
		return err == nil && want.Offset == got.Offset
	}, "the same is printed")
	want.Instance = got.Instance
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%s shows something else than it should after %d bytes, %v:\n%s\n%s", id, got.Offset, err, a, b)
	}
}

// pair returns the keeper and the supervisor, once that serves and each has all: from
// then on either may die.
func (w *world) pair() (keeper, supervisor process) {
	w.T.Helper()
	testkit.Eventually(w.T, limit, func() bool {
		var ok bool
		keeper, supervisor, ok = w.paired()
		return ok
	}, "a keeper has a supervisor that serves")
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
			w.T.Errorf("the log says %q in %d lines", harm, n)
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
	if err != nil {
		t.Fatal(err)
	}
	for _, harm := range harms {
		if !bytes.Contains(code, []byte(harm)) {
			t.Errorf("no message of the supervisor contains %q", harm)
		}
	}
}

// aMoment returns a moment within what takes so long.
func aMoment(rnd *rand.Rand, longest time.Duration) <-chan time.Time {
	return time.After(time.Duration(rnd.Int64N(int64(longest))))
}
