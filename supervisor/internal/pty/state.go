//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// State returns the PTY's.
func (p *PTY) State() State {
	st := State{
		PID: p.pid, Start: p.start, Foreign: p.foreign, Device: uint64(p.slave.Dev), Inode: p.slave.Ino, Terminal: uint64(p.slave.Rdev),
	}
	select {
	case <-p.done:
		ended := p.status
		st.Ended = &ended
	default:
	}
	return st
}

// Master returns a duplicate of the master, to hand on. It is close-on-exec.
func (p *PTY) Master() (*os.File, error) {
	var master *os.File
	err := p.control("hand on", func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
		}
		master = os.NewFile(uintptr(dup), "ptmx")
		return nil
	})
	return master, err
}

// Adopt goes on with a PTY of another program, or of the one that this process
// ran before it changed its program. The master is the PTY's from here on; nil is
// one that was closed, as of a child that has ended.
//
// exit, of the child's pid, tells how the child ended where it is not ours to wait
// for; nil is our own child. Where exit returns nil nobody tells, and the end shows
// without its code. ended is what Spec's Ended is. A state without a pid is of a program that
// died while it started the child; ErrNoChild is returned if it never did.
func Adopt(st State, master *os.File, exit func(pid int) <-chan Status, ended func(Status)) (*PTY, error) {
	p := &PTY{pid: st.PID, start: st.Start, done: make(chan struct{}), ended: ended}
	p.slave.Dev, p.slave.Ino = deviceNumber(st.Device), st.Inode
	p.slave.Rdev = deviceNumber(st.Terminal)
	if master == nil {
		p.closed.Store(true)
		p.raw, p.polled = closed{}, true
		if st.Ended == nil {
			return nil, errors.New("pty: a terminal without its master, whose child has not ended")
		}
	} else if err := p.take(master); err != nil {
		return nil, err
	}
	if p.pid == 0 && st.Ended == nil {
		if err := p.findChild(); err != nil {
			return nil, errors.Join(err, p.file.Close())
		}
	}
	switch {
	case st.Ended != nil:
		p.status = *st.Ended
		if exit == nil {
			p.reapNoted()
		}
		close(p.done)
	case exit != nil:
		p.foreign = true
		go p.elsewhere(exit(p.pid))
	default:
		p.watch(openPidfd(p.pid))
	}
	return p, nil
}

// reapNoted collects a child of ours whose end was noted, and which the program
// before may not have come to reap.
func (p *PTY) reapNoted() {
	if q, err := readProc(p.pid); err != nil || !q.zombie || q.start != p.start {
		return // it was reaped; the number may be another's
	}
	if status, ended := wait(p.pid); ended && status.Err == nil {
		p.status = status
	}
}

// ErrNoChild says that nothing was ever started on a terminal.
var ErrNoChild = errors.New("pty: no child was started on this terminal")

// How long a child may take from its fork to its session, on a machine that has no
// time for it, and how often it is asked for meanwhile.
const (
	forkTime = 10 * time.Second
	forkPoll = time.Millisecond
)

// findChild asks the terminal for its session, which has the child's number: the
// child makes it before it runs its program. A child that was forked, and has not
// come to that, has the slave open; while anybody has, the terminal is not hung up.
func (p *PTY) findChild() error {
	for end := time.Now().Add(forkTime); ; time.Sleep(forkPoll) {
		pid, hungUp := 0, false
		err := p.control("find child", func(fd int) error {
			polled := []unix.PollFd{{Fd: int32(fd)}}
			if _, err := unix.Poll(polled, 0); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("poll", err)
			}
			hungUp = polled[0].Revents&unix.POLLHUP != 0 // asked first: who has made its session since is found
			pid, _ = unix.IoctlGetInt(fd, tiocgsid)
			return nil
		})
		switch {
		case err != nil:
			return err
		case pid > 0:
			p.pid = pid
			if q, err := readProc(pid); err == nil {
				p.start = q.start
			}
			return nil
		case hungUp:
			return ErrNoChild
		case time.Now().After(end):
			return errors.New("pty: somebody has this terminal, and it is nobody's session")
		}
	}
}

// closed is the descriptor of what was closed before it was adopted.
type closed struct{}

func (closed) Control(func(uintptr)) error    { return os.ErrClosed }
func (closed) Read(func(uintptr) bool) error  { return os.ErrClosed }
func (closed) Write(func(uintptr) bool) error { return os.ErrClosed }

// take makes the master ours: what Start makes of the library's.
func (p *PTY) take(master *os.File) error {
	file, err := polledCopy(master)
	if err = errors.Join(err, master.Close()); err != nil {
		return err
	}
	p.file = file
	p.raw, err = file.SyscallConn()
	p.polled = file.SetDeadline(never) == nil
	return err
}

// toldTime is how long after a child's end its parent may take to say how.
const toldTime = 5 * time.Second

// elsewhere waits for the end of a child that is another's. Its parent may die
// before the child does; then the kernel may still know.
func (p *PTY) elsewhere(told <-chan Status) {
	status, ok := Status{}, false
	pidfd := openPidfd(p.pid) // for what the kernel knows when nobody else does
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	select {
	case status, ok = <-told:
	case <-p.vanished():
		if status, ok = exitOf(p.pid, p.start, pidfd); ok {
			break
		}
		select {
		case status, ok = <-told:
		case <-time.After(toldTime):
		}
	}
	if !ok {
		status = Status{Code: -1, Err: errNotTold}
	}
	if p.ended != nil {
		p.ended(status)
	}
	p.reaping.Lock()
	defer p.reaping.Unlock()
	p.status = status
	close(p.done)
}

// vanished is closed when the child has ended.
func (p *PTY) vanished() <-chan struct{} {
	gone := make(chan struct{})
	h := openHandle(proc{pid: p.pid, start: p.start})
	if h == nil { // before we came
		close(gone)
		return gone
	}
	go func() {
		defer close(gone)
		defer h.close()
		for !h.wait(time.Now().Add(time.Hour)) {
		}
	}()
	return gone
}

var errNotTold = errors.New("pty: nobody knows how the child ended")

// StatusOf is what a raw wait status says (wait(2)).
func StatusOf(raw uint32) Status {
	if ws := unix.WaitStatus(raw); ws.Signaled() {
		s := bySignal(ws.Signal())
		s.Core = ws.CoreDump()
		return s
	}
	return Status{Code: unix.WaitStatus(raw).ExitStatus()}
}

func bySignal(sig unix.Signal) Status {
	return Status{Code: 128 + int(sig), Signal: SignalName(sig)}
}
