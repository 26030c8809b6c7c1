//go:build linux || darwin

package pty

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// State returns the PTY's.
func (p *PTY) State() State {
	st := State{
		PID: p.pid, Start: p.start, Device: uint64(p.slave.Dev), Inode: p.slave.Ino, Terminal: uint64(p.slave.Rdev),
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
// exit tells how the child ended where it is not ours to wait for; nil is our own
// child.
func Adopt(st State, master *os.File, exit <-chan Status) (*PTY, error) {
	p := &PTY{pid: st.PID, start: st.Start, done: make(chan struct{})}
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
	switch {
	case st.Ended != nil:
		p.status = *st.Ended
		close(p.done)
	case exit != nil:
		go p.told(exit)
	default:
		p.watch(openPidfd(st.PID))
	}
	return p, nil
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

// told waits to be told how the child ended.
func (p *PTY) told(exit <-chan Status) {
	status, ok := <-exit
	if !ok {
		status = Status{Code: -1, Err: errNotTold}
	}
	p.reaping.Lock()
	defer p.reaping.Unlock()
	p.status = status
	close(p.done)
}

var errNotTold = errors.New("pty: nobody knows how the child ended")
