//go:build linux || darwin

package keeper

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child is a supervisor, and what is to be written to it.
type child struct {
	pid    int
	conn   *Conn
	done   chan struct{} // nobody uses conn any more
	ready  bool
	quit   bool
	passed syscall.Signal
	good   bool // it is the last good program
	dead   bool // it was collected: its pid is another's

	out    [][]byte // answers
	untold []int    // pids whose exits are to be told
	broken bool     // it takes nothing any more
	frozen bool     // nothing may be written
	parked bool     // nothing is
	blamed int
}

// pass sends a signal on, once nothing else can have the pid.
func (c *child) pass(s syscall.Signal) {
	if !c.dead {
		c.passed = s
		unix.Kill(c.pid, s)
	}
}

func (k *keeper) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.startLocked()
}

func (k *keeper) startLocked() {
	now := time.Now()
	k.again, k.holding = nil, false
	k.forget(now)
	k.starts++
	c, err := k.launch()
	if err != nil {
		k.last, k.status = fmt.Sprintf("could not be started: %v", err), 0
		k.log("supervisor: %s", k.last)
		if !k.lived && len(k.records) == 0 {
			k.end(exitUnavailable)
			return
		}
		k.failed(k.distrust, now)
		return
	}
	k.child = c
	go k.talk(c, true)
}

func (k *keeper) launch() (*child, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	conn, err := NewConn(ours)
	if err != nil {
		return nil, err
	}
	path, good := k.cfg.Argv[0], k.distrust && k.good > 0
	if good {
		path = programPath(k.good, path)
	}
	pid, err := k.fork(path, k.cfg.Argv, EnvSocket+"=3", theirs)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &child{pid: pid, conn: conn, good: good, done: make(chan struct{})}, nil
}

// fork starts a program with a fourth descriptor, in a process group of its own:
// an interrupt at our terminal comes to us, and is passed on, once.
func (k *keeper) fork(path string, argv []string, env string, fd int) (int, error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: k.env(env), Files: []uintptr{0, 1, 2, uintptr(fd)}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
}

// env is the supervisor's, or a new keeper's, with what tells it how it is started.
func (k *keeper) env(own string) []string {
	all := k.cfg.Env
	if all == nil {
		all = os.Environ()
	}
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, EnvSocket) })
	return append(all, own)
}

// pair is a socket pair of which no other child gets a part.
func pair() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds[0], fds[1], nil
}

// bury waits until all that the dead one asked for is done, and goes on without.
func (k *keeper) bury(c *child, status syscall.WaitStatus) {
	<-c.done
	k.mu.Lock()
	defer k.mu.Unlock()
	c.conn.Close()
	k.child, k.last, k.status = nil, describe(status), uint32(status)
	if code, over := k.orderly(c, status); over {
		k.end(code)
		return
	}
	k.log("supervisor %d died: %s; %d records are held", c.pid, k.last, len(k.records))
	if c.ready {
		k.failures = 0
	}
	k.failed(c.good || c.ready, time.Now())
}

// orderly says whether an end is the keeper's, too: it was asked for, or nothing
// is held and this program never ran, so that its refusal is for whoever started us.
func (k *keeper) orderly(c *child, status syscall.WaitStatus) (code int, over bool) {
	empty := len(k.records) == 0
	switch {
	case status.Exited() && c.quit && status.ExitStatus() == 0:
		return 0, true
	case status.Exited() && empty && (c.quit || c.passed != 0 || !k.lived):
		return status.ExitStatus(), true
	case status.Signaled() && empty && !k.lived && status.Signal() == c.passed:
		return 128 + int(c.passed), true
	}
	return 0, false
}

func describe(status syscall.WaitStatus) string {
	switch {
	case status.Exited():
		return fmt.Sprintf("exit code %d", status.ExitStatus())
	case status.CoreDump():
		return unix.SignalName(status.Signal()) + ", core dumped"
	}
	return unix.SignalName(status.Signal())
}

// failed decides which program is started next, and when, or that none is.
func (k *keeper) failed(innocent bool, now time.Time) {
	if !innocent {
		k.failures++
	}
	if k.failures >= 2 && k.good > 0 && !k.distrust {
		k.distrust = true
		k.log("the program died %d times before it was ready: going on with the last one that was", k.failures)
	}
	if n := len(k.deaths); n > 0 && now.Sub(k.deaths[n-1]) <= k.cfg.Near {
		k.row++
	} else {
		k.row = 0
	}
	k.deaths = append(slices.DeleteFunc(k.deaths, func(t time.Time) bool { return now.Sub(t) > k.cfg.Within }), now)
	if len(k.deaths) >= k.cfg.Deaths {
		k.holding = true
		k.log("%d deaths within %v: nothing is started any more, %d records are held. To try again: kill -HUP %d",
			len(k.deaths), k.cfg.Within, len(k.records), os.Getpid())
		return
	}
	var delay time.Duration
	if k.row > 0 {
		delay = min(k.cfg.Backoff<<min(k.row-1, 6), 50*k.cfg.Backoff)
	}
	k.again = time.After(delay)
}
