//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	creack "github.com/creack/pty"
	"golang.org/x/sys/unix"

	"holdfast/shared/rawio"
)

// A PTY is the master side of a terminal and the child on it.
//
//	watch   reaps the child; sets status and closes done
//
// One goroutine at a time reads and one writes; the rest may be called from
// anywhere. Hang up before Close: with the master open no other terminal can
// take this one's place, and the child's last words can still be read.
type PTY struct {
	file   *os.File
	raw    syscall.RawConn
	polled bool // file is on the netpoller
	closed atomic.Bool
	tries  tries        // instead, if not
	budget rawio.Budget // of the one that reads

	pid   int
	start uint64         // tells the child from a later process of the same pid
	slave syscall.Stat_t // tells our terminal from all others

	reaping sync.Mutex // held to reap the child, or to signal it before that
	done    chan struct{}
	status  Status // final once done is closed
	ended   func(Status)
	foreign bool // another waits for the child
}

// Start runs spec's program as leader of a new session with a new terminal.
func Start(spec Spec) (*PTY, error) {
	if err := checkSize(spec.Cols, spec.Rows); err != nil {
		return nil, err
	}
	path, err := lookPath(spec)
	if err != nil {
		return nil, err
	}
	p, slave, err := open(spec.Cols, spec.Rows)
	if err != nil {
		return nil, err
	}
	// Our copy has to go at once: while it is open, the child's end is no EOF.
	defer slave.Close()
	p.ended = spec.Ended
	if spec.Opened != nil {
		if err := spec.Opened(p); err != nil {
			return nil, errors.Join(fmt.Errorf("pty: open: %w", err), p.file.Close())
		}
	}
	pidfd := -1
	fd := slave.Fd() // also makes it blocking, as programs expect it
	attr := sysProcAttr(&pidfd, spec.Cgroup)
	expendably(func() {
		p.pid, err = syscall.ForkExec(path, spec.Argv, &syscall.ProcAttr{Dir: spec.Dir, Env: spec.Env, Files: []uintptr{fd, fd, fd}, Sys: attr})
	})
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("pty: start %s: %w", path, exhausted(err, unix.EMFILE, unix.ENFILE))
	}
	if q, err := readProc(p.pid); err == nil { // before the watch, which may reap it
		p.start = q.start
	}
	p.watch(pidfd)
	return p, nil
}

// open returns a terminal of the given size without a child, and its slave.
func open(cols, rows int) (*PTY, *os.File, error) {
	master, slave, err := creack.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("pty: open: %w", exhausted(err, openExhausted...))
	}
	defer master.Close() // its copy is used
	p := &PTY{done: make(chan struct{})}
	if err := p.setUp(master, slave, cols, rows); err != nil {
		_ = slave.Close()
		return nil, nil, fmt.Errorf("pty: open: %w", exhausted(err, openExhausted...))
	}
	return p, slave, nil
}

func (p *PTY) setUp(master, slave *os.File, cols, rows int) error {
	fd := int(slave.Fd())
	size := &unix.Winsize{Col: uint16(cols), Row: uint16(rows)}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
		return os.NewSyscallError("ioctl TIOCSWINSZ", err)
	}
	if err := syscall.Fstat(fd, &p.slave); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	file, err := polledCopy(master)
	if err != nil {
		return err
	}
	p.file = file
	p.raw, err = file.SyscallConn()
	p.polled = file.SetDeadline(never) == nil
	return err
}

// polledCopy duplicates a master that the library left blocking into one that
// the netpoller watches. From here on Fd is never called on it and sizes are
// never set through the library: both would make it blocking again.
func polledCopy(master *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl F_SETFL", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "ptmx"), nil
}

// openExhausted are the errors by which a system says that no terminal or no
// descriptor is left; ENXIO is macOS's for the former.
var openExhausted = []syscall.Errno{unix.ENOSPC, unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENXIO}

func exhausted(err error, because ...syscall.Errno) error {
	for _, errno := range because {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrExhausted, err)
		}
	}
	return err
}

// PID is the child's, which is also its session's id.
func (p *PTY) PID() int { return p.pid }

// Done is closed after the child has ended and was reaped.
func (p *PTY) Done() <-chan struct{} { return p.done }

// Status tells how the child ended; it is only valid after Done.
func (p *PTY) Status() Status { return p.status }

// Close closes the master. A Read or Write under way returns os.ErrClosed. A
// second call does nothing.
func (p *PTY) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	return p.file.Close()
}
