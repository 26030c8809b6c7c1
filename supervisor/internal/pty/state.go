//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// State returns the PTY's state for a program that adopts it.
func (p *PTY) State() State {
	st := State{
		PID: p.pid, Start: p.start, Foreign: p.isForeign, Device: uint64(p.slave.Dev), Inode: p.slave.Ino, Terminal: uint64(p.slave.Rdev),
	}
	select {
	case <-p.done:
		ended := p.status
		st.Ended = &ended
	default:
	}
	return st
}

// Master returns a duplicate of the master for another process. The duplicate is close-on-exec.
func (p *PTY) Master() (*os.File, error) {
	var master *os.File
	err := p.control("duplicate master", func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
		}
		master = os.NewFile(uintptr(dup), "ptmx")
		return nil
	})
	return master, err
}

// SizeOf returns the size of the terminal of a master, or 0 by 0 if it is not known.
func SizeOf(master *os.File) (cols, rows int) {
	if raw, err := master.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
				cols, rows = int(size.Col), int(size.Row)
			}
		})
	}
	return cols, rows
}

// Adopt returns a PTY that another program started, or the program that this process ran before
// an exec. Adopt owns master. master is nil if the PTY was closed because its child has ended.
//
// If exit is nil, the child is a child of this process. Otherwise exit is called with the
// child's pid and returns the channel on which the parent will send the child's status; if that
// channel is nil, the status must be found in another way, or is reported without an exit code.
// ended is called as Spec.Ended is. A state without a pid comes from a program that died while
// it started the child; Adopt returns ErrNoChild if that child was never forked.
func Adopt(st State, master *os.File, exit func(pid int) <-chan Status, ended func(Status)) (*PTY, error) {
	p := &PTY{pid: st.PID, start: st.Start, done: make(chan struct{}), onEnded: ended}
	p.slave.Dev, p.slave.Ino = deviceNumber(st.Device), st.Inode
	p.slave.Rdev = deviceNumber(st.Terminal)
	if master == nil {
		p.isClosed.Store(true)
		p.raw, p.isPolled = closedFile{}, true
		if st.Ended == nil {
			return nil, errors.New("pty: invalid state: the child has not ended, but the master is missing")
		}
	} else if err := p.ownMaster(master); err != nil {
		return nil, err
	}
	if p.pid == 0 && st.Ended == nil {
		if err := p.findChild(); err != nil {
			return nil, errors.Join(err, p.file.Close())
		}
	}
	if q, err := readProc(p.pid); p.start == 0 && err == nil { // the other program has died before it saved the start time
		p.start = q.start
	}
	switch {
	case st.Ended != nil:
		p.status = *st.Ended
		if exit == nil {
			p.reapNoted()
		}
		close(p.done)
	case exit != nil:
		p.isForeign = true
		go p.awaitForeignChild(exit(p.pid))
	default:
		p.watch(openPidfd(p.pid))
	}
	return p, nil
}

// reapNoted reaps a child that has ended according to the state, because the previous program
// may have died before it reaped that child.
func (p *PTY) reapNoted() {
	if q, err := readProc(p.pid); err != nil || !q.isZombie || q.start != p.start {
		return // the child was reaped, so the pid may belong to another process
	}
	if status, ended := wait(p.pid); ended && status.Err == nil {
		p.status = status
	}
}

// ErrNoChild is returned by Adopt if no child was ever started on the terminal.
var ErrNoChild = errors.New("pty: no child was started on this terminal")

// forkTime is how long a child may take from its fork to its session, also on a machine that is
// overloaded; forkPoll is the pause between two checks.
const (
	forkTime = 10 * time.Second
	forkPoll = time.Millisecond
)

// findChild finds the child if its pid is not in the state, and sets its pid. The child makes its
// own session before it executes its program, and a session's id is its leader's pid, so
// findChild reads the terminal's session id. While a child that was forked has no session yet,
// it has the slave open. So if the terminal is hung up and has no session, no child was forked,
// and findChild returns ErrNoChild.
func (p *PTY) findChild() error {
	for end := time.Now().Add(forkTime); ; time.Sleep(forkPoll) {
		pid, hungUp := 0, false
		err := p.control("find child", func(fd int) error {
			polled := []unix.PollFd{{Fd: int32(fd)}}
			if _, err := unix.Poll(polled, 0); err != nil && !errors.Is(err, unix.EINTR) {
				return os.NewSyscallError("poll", err)
			}
			hungUp = polled[0].Revents&unix.POLLHUP != 0 // read before the session id, so that a child that makes its session meanwhile is found
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
			return fmt.Errorf("pty: find child: a process has the terminal open, but no session has it after %v", forkTime)
		}
	}
}

// closedFile stands for a master that was closed before the PTY was adopted.
type closedFile struct{}

func (closedFile) Control(func(uintptr)) error    { return os.ErrClosed }
func (closedFile) Read(func(uintptr) bool) error  { return os.ErrClosed }
func (closedFile) Write(func(uintptr) bool) error { return os.ErrClosed }

// ownMaster replaces master by a duplicate that the netpoller watches, as Start does.
func (p *PTY) ownMaster(master *os.File) error {
	file, err := polledCopy(master)
	if err = errors.Join(err, master.Close()); err != nil {
		return err
	}
	p.file = file
	p.raw, err = file.SyscallConn()
	p.isPolled = file.SetDeadline(never) == nil
	return err
}

// statusTime is how long the parent may take to report the status of a child that has ended.
const statusTime = 5 * time.Second

// awaitForeignChild waits for the end of a child of another process, which sends the child's
// status. If that process dies before the child, the kernel may still have the status.
func (p *PTY) awaitForeignChild(statuses <-chan Status) {
	status, ok := Status{}, false
	pidfd := openPidfd(p.pid) // opened now, because a process that was reaped has no pidfd any more
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	select {
	case status, ok = <-statuses:
	case <-p.childEnd():
		if status, ok = exitOf(p.pid, p.start, pidfd); ok {
			break
		}
		select {
		case status, ok = <-statuses:
		case <-time.After(statusTime):
		}
	}
	if !ok {
		status = Status{Code: -1, Err: errNoStatus}
	}
	if p.onEnded != nil {
		p.onEnded(status)
	}
	p.reaping.Lock()
	defer p.reaping.Unlock()
	p.status = status
	close(p.done)
}

// childEnd returns a channel that is closed when the child has ended.
func (p *PTY) childEnd() <-chan struct{} {
	gone := make(chan struct{})
	h := openHandle(proc{pid: p.pid, start: p.start})
	if h == nil { // the child ended before this call
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

var errNoStatus = errors.New("pty: exit status of the child is unknown: neither its parent nor the kernel reported it")

// StatusOf decodes a raw wait status (wait(2)).
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
