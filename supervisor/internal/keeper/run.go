//go:build linux || darwin

package keeper

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/wire"
)

// A keeper does one thing at a time: turn after turn, Run has it to itself.
type keeper struct {
	state
	cfg      Config
	signals  chan os.Signal
	wake     *os.File // gives a byte for each signal, so that poll sees them
	failures int      // starts since a supervisor was ready
	lates    int      // supervisors that were ended since then, as they did not serve
	deaths   []time.Time
	again    time.Time      // when the next supervisor is started; zero: never
	stop     syscall.Signal // the keeper was told to end
	code     int            // of Run; -1: it goes on
}

// A child is a supervisor that runs, and where the conversation with it is.
type child struct {
	PID    int    `json:"pid"`
	Socket int    `json:"socket"` // -1: nothing can be said any more
	Ready  bool   `json:"ready,omitempty"`
	Quit   bool   `json:"quit,omitempty"`
	New    bool   `json:"new,omitempty"`    // its program is state.New
	Unsent []byte `json:"unsent,omitempty"` // what is being written
	Untold []int  `json:"untold,omitempty"` // empty: nothing is read before all is told
	conn   *wire.Conn
	fds    []int    // with the first byte of Unsent
	ids    []string // of records that it is to be told
	told   bool     // it knows all that there was
	late   bool     // it was ended, as it did not serve
	left   bool     // it said that it becomes another program

	// spent is how long the keeper has seen it get no further before it serves, or has seen it
	// serve. A time in which the keeper itself stood still hardly counts.
	spent time.Duration
}

const (
	ticks           = 10              // of StartTime and GoodTime, which are counted in these
	maxNewDeaths    = 2               // of a program that has never served for GoodTime
	trialTime       = 5 * time.Second // for a new keeper to read what it would go on with
	exitUnavailable = 69              // nothing can be started, or gone on with
	exitTried       = 85              // of a keeper on trial; hardly any other program ends so
)

// caught are passed on, or would end us or, if ignored, be ignored by shells, too.
var caught = []os.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
}

// Run keeps a supervisor running and returns its exit code when it has ended in
// order, or 69. It takes the process over: children, signals, the runtime's settings.
// On Linux it has to be a subreaper, or how orphans end is not known.
func Run(cfg Config) int {
	runtime.GOMAXPROCS(1) // memory counts, time does not
	debug.SetGCPercent(20)
	cfg.Backoff, cfg.Deaths = cmp.Or(cfg.Backoff, 100*time.Millisecond), cmp.Or(cfg.Deaths, 5)
	cfg.StartTime, cfg.GoodTime = cmp.Or(cfg.StartTime, 10*time.Second), cmp.Or(cfg.GoodTime, 10*time.Second)
	k := &keeper{cfg: cfg, signals: make(chan os.Signal, 64), code: -1}
	k.Version, k.Records, k.Good = wire.Version, map[string]*Record{}, -1
	if err := k.begin(inherited(wire.EnvTrial), inherited(wire.EnvResume)); err != nil {
		k.log("cannot go on: %v", err)
		return exitUnavailable
	}
	for k.code < 0 {
		if err := k.guard(k.turn); err != nil {
			time.Sleep(100 * time.Millisecond) // it may come again at once
		}
	}
	return k.code
}

// inherited takes a descriptor's number out of the environment; 0 is none.
func inherited(name string) int {
	fd, _ := strconv.Atoi(os.Getenv(name))
	os.Unsetenv(name)
	return fd
}

// begin starts a supervisor, or goes on after another image, or says that it could.
func (k *keeper) begin(trial, resume int) error {
	if trial > 0 {
		k.code = exitTried
		return k.load(trial)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	k.wake = r
	signal.Notify(k.signals, append(caught, unix.SIGCHLD)...)
	go func() {
		for s := range k.signals {
			w.Write([]byte{byte(s.(syscall.Signal))})
		}
	}()
	if resume > 0 {
		err = k.load(resume)
	}
	if err != nil {
		return err
	}
	for _, r := range k.cfg.Records {
		if err := k.put(&r); err != nil && k.Records[r.ID] == nil {
			k.log("record %.50q is refused: %v", r.ID, err)
		}
	}
	inherit(k.fds(), unix.FD_CLOEXEC)
	if resume > 0 {
		return k.resume()
	}
	k.start()
	return nil
}

// turn waits until there is something to do, and does it. A supervisor is read
// only when it has been told all there is: so who does not read waits by itself,
// there is one answer at a time, and records do not change while they are told.
func (k *keeper) turn() error {
	c, wait, sending := k.Supervisor, -1, false
	ready := []unix.PollFd{{Fd: int32(k.wake.Fd()), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
	if c != nil {
		ready[1].Fd = int32(c.Socket)
		if sending = k.next(c); sending {
			ready[1].Events = unix.POLLOUT
		}
		if bound := k.bound(c); bound > 0 {
			wait = int((bound / ticks).Milliseconds()) + 1
			defer k.count(c, time.Now(), bound)
		}
	} else if !k.again.IsZero() {
		wait = int(max(0, time.Until(k.again)).Milliseconds())
	}
	if n, _ := unix.Poll(ready, wait); n == 0 && c == nil {
		k.start()
	}
	if ready[1].Revents != 0 && sending {
		c.send()
	} else if ready[1].Revents != 0 {
		k.receive(c)
	}
	if ready[0].Revents != 0 {
		s := make([]byte, 1)
		k.wake.Read(s)
		k.signal(syscall.Signal(s[0]))
	}
	return nil
}

// bound is how long c may take to serve, or has to serve until its program is good; 0 is
// for ever.
func (k *keeper) bound(c *child) time.Duration {
	switch {
	case c.Ready && c.New:
		return k.cfg.GoodTime
	case c.Ready || c.late:
		return 0
	}
	return k.cfg.StartTime << min(k.lates, 4)
}

// count adds a turn to what c has spent. At its bound one that does not serve is ended,
// so that another is started, and one that serves is good.
func (k *keeper) count(c *child, began time.Time, bound time.Duration) {
	if k.Supervisor != c || k.bound(c) != bound { // it has ended, or begun something else
		return
	}
	c.spent += min(time.Since(began), bound/ticks)
	switch {
	case c.spent < bound:
	case c.Ready:
		k.settle()
	default:
		k.log("supervisor %d is ended: it did not serve, or get any further, in %v; %d records are held", c.PID, bound, len(k.Records))
		c.late = true
		k.lates++
		unix.Kill(c.PID, unix.SIGKILL)
	}
}

// advance gives a supervisor that does not serve yet its whole time again.
func (c *child) advance() {
	if !c.Ready {
		c.spent = 0
	}
}

// settle has the program that serves be the one to go back to.
func (k *keeper) settle() {
	k.log("supervisor %d has served for %v: its program is the one to go back to", k.Supervisor.PID, k.cfg.GoodTime)
	unix.Close(k.Good)
	k.Good, k.Argv, k.New, k.Supervisor.New = k.New.FD, k.New.Argv, nil, false
}

// guard lives on: a mistake of ours is no reason to lose what is held.
func (k *keeper) guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the keeper's mistake: %v", p)
			k.log("%v\n%s", err, debug.Stack())
		}
	}()
	return do()
}

// signal passes the end on; if there is something to lose, only to one that is ready:
// others may not have their handlers yet.
func (k *keeper) signal(s syscall.Signal) {
	c, holding := k.Supervisor, k.Supervisor == nil && k.again.IsZero()
	switch {
	case s == unix.SIGCHLD:
		k.reap()
	case s == unix.SIGHUP:
		k.hearChosen()
		if c == nil { // none serves, and perhaps none was to be started
			k.failures, k.deaths = 0, nil
			k.start()
		}
	case s == unix.SIGTERM || s == unix.SIGINT:
		k.log("told to end: %v", s)
		k.stop = s
		if holding {
			k.code = 128 + int(s)
		} else if c != nil && (c.Ready || k.lossless()) {
			unix.Kill(c.PID, s)
		}
	}
}

// hearChosen opens the program that is to be started next, if one was named.
func (k *keeper) hearChosen() {
	if k.cfg.Chosen == nil {
		return
	}
	path := k.cfg.Chosen()
	if path == "" {
		return
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		k.log("%.200q cannot be started: %v", path, err)
		return
	}
	k.log("the next supervisor is to be %.200q", path)
	k.forgetNext()
	k.Next = &program{FD: fd, Argv: append([]string{path}, k.argv()[1:]...)}
}

func (k *keeper) forgetNext() {
	if k.Next != nil {
		unix.Close(k.Next.FD)
		k.Next = nil
	}
}

func (k *keeper) argv() []string {
	if len(k.Argv) > 0 {
		return k.Argv
	}
	return k.cfg.Argv
}

func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch c := k.Supervisor; {
		case err != nil || pid <= 0:
			return
		case c != nil && pid == c.PID:
			k.bury(c, status)
		default:
			k.ended(pid, uint32(status))
		}
	}
}

func (k *keeper) start() {
	k.again = time.Time{}
	k.Starts++
	c := &child{New: k.Next == nil && k.New != nil}
	if err := k.launch(); err != nil {
		k.Last, k.Status = fmt.Sprintf("could not be started: %v", err), 0
		k.lost(c, exitUnavailable)
	}
	k.failures++
}

// launch starts the program that was asked for, once; else the one that serves last; else, or
// if that dies too early, the last good one, whatever its path leads to now. If twice in
// a row that one was not ready, its path has as many tries.
func (k *keeper) launch() error {
	argv := k.argv()
	path := argv[0]
	next := k.Next
	switch {
	case next != nil:
		defer k.forgetNext()
	case k.New != nil:
		next = k.New
	case k.Good > 0 && k.failures%4 < 2:
		path = programPath(k.Good)
	}
	if next != nil {
		argv = next.Argv
		if len(argv) == 0 {
			argv = k.cfg.Argv
		}
		path = argv[0]
		if next.FD > 0 && runtime.GOOS == "linux" {
			path = programPath(next.FD)
		}
	}
	conn, theirs, err := wire.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	p, err := fork(path, argv, wire.EnvSocket, theirs)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c := &child{PID: p.Pid, Socket: conn.FD, New: next != nil && next == k.New, conn: conn, ids: slices.Sorted(maps.Keys(k.Records))}
	c.say(wire.Message{Op: wire.OpHello, Version: wire.Version, Records: len(c.ids), Starts: k.Starts, Last: k.Last, Status: k.Status})
	for i := range k.Exits {
		k.Exits[i].untold = true
	}
	k.Supervisor = c
	return p.Release()
}

// fork starts a program with a fourth descriptor, in a process group of its own:
// an interrupt at our terminal comes to us, and is passed on, once.
func fork(path string, argv []string, name string, f *os.File) (*os.Process, error) {
	attr := &os.ProcAttr{Env: append(os.Environ(), name+"=3"), Sys: &syscall.SysProcAttr{Setpgid: true}}
	attr.Files = []*os.File{os.Stdin, os.Stdout, os.Stderr, f}
	return os.StartProcess(path, argv, attr)
}

// programOf is what a process runs, even if its path is gone; -1 on macOS.
func programOf(pid int) int {
	fd, _ := unix.Open(fmt.Sprintf("/proc/%d/exe", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd
}

// programPath is by our pid: a child may have something else under the number.
func programPath(fd int) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd) }

// bury does all that the dead one asked for, and goes on without.
func (k *keeper) bury(c *child, status syscall.WaitStatus) {
	k.Supervisor = nil
	for k.receive(c) {
	}
	c.conn.Close()
	code := status.ExitStatus()
	k.Last, k.Status = fmt.Sprintf("exit code %d", code), uint32(status)
	if status.Signaled() {
		k.Last, code = unix.SignalName(status.Signal()), 128+int(status.Signal())
	}
	if c.late {
		k.Last = "did not serve in time and was ended"
	}
	k.lost(c, code)
}

// lost decides what comes of a supervisor's end. It is ours, too, if it was asked
// for; or if nothing is held and none ever ran: then it is for whoever started us.
func (k *keeper) lost(c *child, code int) {
	if c.Quit && code == 0 || k.lossless() && (c.Quit || k.stop != 0 || k.Starts == 1 && !c.Ready) {
		k.code = code
		return
	}
	k.log("supervisor %d is gone: %s; %d records are held", c.PID, k.Last, len(k.Records))
	if c.New && k.New != nil {
		if k.New.Deaths++; k.New.Deaths >= maxNewDeaths {
			k.log("%d supervisors of a program that has not served for %v are gone: the one before it is started again", maxNewDeaths, k.cfg.GoodTime)
			k.forgetNew()
		}
	}
	now := time.Now()
	k.deaths = append(slices.DeleteFunc(k.deaths, func(t time.Time) bool { return now.Sub(t) > time.Minute }), now)
	if n := len(k.deaths); n < k.cfg.Deaths {
		k.again = now.Add(time.Duration(n-1) * k.cfg.Backoff)
	} else if k.stop != 0 {
		k.code = 128 + int(k.stop)
	} else {
		k.log("%d in a minute: nothing is started any more. To try again: kill -HUP %d", n, os.Getpid())
		k.cfg.Held(n)
	}
}

// next has the next thing be sent, if there is one. Exits wait where they are kept,
// so that a supervisor that does not read needs no queue.
func (k *keeper) next(c *child) bool {
	i := slices.IndexFunc(k.Exits, func(e exit) bool { return e.untold })
	switch {
	case len(c.Unsent) > 0:
	case len(c.ids) > 0:
		r := k.Records[c.ids[0]]
		c.say(wire.Message{Op: wire.OpRecord, ID: c.ids[0], PID: r.PID, Meta: r.Meta, FDs: len(r.FDs)})
		c.ids, c.fds = c.ids[1:], r.FDs
	case i >= 0:
		k.Exits[i].untold = false
		c.say(wire.Message{Op: wire.OpExit, PID: k.Exits[i].PID, Status: k.Exits[i].Status})
	case !c.told:
		c.told = true
		c.say(wire.Message{Op: wire.OpEnd})
	}
	return len(c.Unsent) > 0
}

func (c *child) say(m wire.Message) {
	frame, _ := m.Frame() // no longer than what came in one
	c.Unsent = append(c.Unsent, frame...)
}

func (c *child) send() {
	n, err := c.conn.Send(c.Unsent, c.fds)
	c.Unsent = c.Unsent[n:]
	switch {
	case n > 0:
		c.fds = nil
		c.advance()
	case errors.Is(err, unix.ETOOMANYREFS): // until descriptors that are under way are received
		time.Sleep(10 * time.Millisecond)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		c.Socket = -1
	}
}

// receive does what a supervisor asks for next, and says whether it did ask.
func (k *keeper) receive(c *child) bool {
	m, fds, err := c.conn.Receive()
	switch bad := new(wire.BadFrame); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case err == nil:
		c.advance()
		err = k.guard(func() error { return k.do(c, m, fds) })
	case !errors.As(err, &bad):
		c.Socket = -1
		return false
	}
	if err != nil {
		c.say(wire.Message{Op: wire.OpError, Seq: m.Seq, Message: err.Error()})
	} else if m.Seq != 0 {
		c.say(wire.Message{Op: wire.OpOK, Seq: m.Seq})
	}
	return true
}

// do takes the descriptors over; after a mistake of ours they stay open.
func (k *keeper) do(c *child, m wire.Message, fds []int) (err error) {
	r := k.Records[m.ID]
	switch {
	case m.Op == wire.OpHello: // there is one version
	case m.Op == wire.OpPut:
		err = k.put(&Record{m.ID, m.PID, m.Meta, fds})
	case m.Op == wire.OpPID && r != nil:
		k.name(r, m.PID)
	case m.Op == wire.OpDelete && r != nil:
		k.delete(m.ID)
	case m.Op == wire.OpReady:
		c.Ready, c.spent, k.failures, k.lates = true, 0, 0, 0
		if k.Supervisor == c { // else it is dead, and its pid may be another's
			k.ready(c, m.Argv)
		}
	case m.Op == wire.OpLeave:
		c.Ready, c.New, c.left = false, false, true
	case m.Op == wire.OpAlive: // receive counts it
	case m.Op == wire.OpExec && len(fds) == 1 && len(m.Argv) > 0 && k.Supervisor == c:
		err = k.become(m, fds[0])
	case m.Op == wire.OpQuit:
		c.Quit = true
	default:
		err = fmt.Errorf("%.20q of %.50q: no such record, or not known here", m.Op, m.ID)
	}
	if err != nil || m.Op != wire.OpPut {
		wire.Close(fds)
	}
	return err
}

// ready opens what the supervisor runs now, which may not be what was started. The first
// of all programs is good, as there is none to go back to. Another one must serve for GoodTime.
func (k *keeper) ready(c *child, argv []string) {
	p := &program{FD: programOf(c.PID), Argv: argv}
	c.New = false
	switch {
	case k.Good < 0 && k.Argv == nil || same(p, &program{FD: k.Good, Argv: k.Argv}):
		unix.Close(k.Good)
		k.Good, k.Argv = p.FD, argv
	case k.New != nil && same(p, k.New):
		unix.Close(p.FD)
		c.New = true
	default:
		k.forgetNew()
		k.New, c.New = p, true
	}
	if !c.New {
		k.forgetNew()
	}
	if c.left { // what serves now was asked for later
		k.forgetNext()
	}
	if k.stop != 0 {
		unix.Kill(c.PID, k.stop)
	}
}

func (k *keeper) forgetNew() {
	if k.New != nil {
		unix.Close(k.New.FD)
		k.New = nil
	}
}

// same reports whether two programs are one file, or have one path where no file is known.
func same(a, b *program) bool {
	var x, y unix.Stat_t
	if a.FD < 0 && b.FD < 0 {
		return slices.Equal(a.Argv, b.Argv)
	}
	return unix.Fstat(a.FD, &x) == nil && unix.Fstat(b.FD, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// become replaces this keeper's program, in the same process: it stays the parent
// of all. It returns only if that failed, and then all is as it was. The very file
// that will be run is tried first: one that is cut short passes exec, and dies then.
// Nothing is read or collected meanwhile, and nothing is half sent.
func (k *keeper) become(m wire.Message, program int) error {
	k.Answer = m.Seq
	f, err := k.cfg.MemoryFile("keeper")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(k.state); err != nil {
		return err
	}
	path := m.Argv[0]
	if runtime.GOOS == "linux" {
		path = programPath(program)
	}
	p, err := fork(path, m.Argv, wire.EnvTrial, f)
	if err != nil {
		return err
	}
	defer time.AfterFunc(trialTime, func() { p.Kill() }).Stop()
	if state, err := p.Wait(); err != nil || state.ExitCode() != exitTried {
		return errors.Join(fmt.Errorf("it cannot go on with what is held: %v", state), err)
	}
	fds := append(k.fds(), int(f.Fd()))
	inherit(fds, 0)
	// What has no handler in the new image yet would end it; it forks nothing before.
	// The runtime takes SIGTERM and SIGQUIT first: for a millisecond they do end it.
	signal.Ignore(caught...)
	err = syscall.Exec(path, m.Argv, append(os.Environ(), fmt.Sprintf("%s=%d", wire.EnvResume, f.Fd())))
	signal.Notify(k.signals, caught...)
	inherit(fds, unix.FD_CLOEXEC)
	return err
}

// inherit sets the flags of descriptors: 0 before an exec, FD_CLOEXEC after it.
func inherit(fds []int, flags int) {
	for _, fd := range fds {
		unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags)
	}
}

// resume goes on where the image before this one stopped.
func (k *keeper) resume() error {
	if c := k.Supervisor; c != nil {
		conn, err := wire.NewConn(c.Socket)
		if err != nil {
			return err
		}
		conn.Now, c.conn, c.told = true, conn, true
		c.say(wire.Message{Op: wire.OpOK, Seq: k.Answer})
	} else {
		k.Good = programOf(os.Getpid()) // which was a supervisor's until now
		k.start()
	}
	k.reap() // what ended meanwhile
	return nil
}

func (k *keeper) log(format string, args ...any) { k.cfg.Log(fmt.Sprintf(format, args...)) }
