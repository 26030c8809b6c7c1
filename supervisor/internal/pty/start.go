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

// A PTY is the master side of a terminal, and the child that runs on it.
//
//	watch   reaps the child; sets status and closes done
//
// At most one goroutine may read and one may write at a time; all other methods may be called
// from any goroutine. Hangup should be called before Close: while the master is open, no other
// terminal gets the same device number, and the child's last output can still be read.
type PTY struct {
	file      *os.File
	raw       syscall.RawConn
	isPolled  bool // the netpoller watches file
	isClosed  atomic.Bool
	deadlines deadlines    // the deadlines if isPolled is false
	budget    rawio.Budget // of the goroutine that reads

	pid   int
	start uint64         // start time of the child, which a later process of the same pid does not have
	slave syscall.Stat_t // identifies the terminal

	reaping   sync.Mutex // held to reap the child, and to signal it before that
	done      chan struct{}
	status    Status // valid after done is closed
	onEnded   func(Status)
	isForeign bool // another process is the child's parent
}

// Start runs the program of spec as leader of a new session with a new terminal. The errors are
// named at ErrUnsupported.
func Start(spec Spec) (*PTY, error) {
	if err := checkSize(spec.Cols, spec.Rows); err != nil {
		return nil, err
	}
	path, err := programs.find(spec)
	if err != nil {
		return nil, err
	}
	p, slave, err := open(spec.Cols, spec.Rows)
	if err != nil {
		return nil, err
	}
	// The slave must be closed in this process, because Read returns no io.EOF while any process
	// has it open.
	defer slave.Close()
	p.onEnded = spec.Ended
	if spec.Opened != nil {
		if err := spec.Opened(p); err != nil {
			return nil, errors.Join(fmt.Errorf("pty: open: %w", err), p.file.Close())
		}
	}
	pidfd := -1
	fd := slave.Fd() // Fd also makes the slave blocking, as programs expect
	attr := sysProcAttr(&pidfd, spec.Cgroup)
	forkExpendable(func() {
		p.pid, err = syscall.ForkExec(path, spec.Argv, &syscall.ProcAttr{Dir: spec.Dir, Env: spec.Env, Files: []uintptr{fd, fd, fd}, Sys: attr})
	})
	if err != nil {
		_ = p.file.Close()
		return nil, fmt.Errorf("pty: start %s: %w", path, exhausted(err, unix.EMFILE, unix.ENFILE))
	}
	if q, err := readProc(p.pid); err == nil { // must be before watch, which may reap the child
		p.start = q.start
	}
	p.watch(pidfd)
	return p, nil
}

// open returns a terminal of the given size without a child, and its slave. The caller must
// close the slave.
func open(cols, rows int) (*PTY, *os.File, error) {
	master, slave, err := creack.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("pty: open: %w", exhausted(err, openExhausted...))
	}
	defer master.Close() // the PTY has a duplicate
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
	p.isPolled = file.SetDeadline(never) == nil
	return err
}

// polledCopy returns a duplicate of master that the netpoller can watch, because the library
// opens masters in blocking mode. Fd must not be called on the duplicate, and the size must not
// be set through the library: both would make it blocking again.
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

// openExhausted are the errors that mean that no terminal or no descriptor is left. On macOS,
// ENXIO means that no terminal is left.
var openExhausted = []syscall.Errno{unix.ENOSPC, unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENXIO}

func exhausted(err error, causes ...syscall.Errno) error {
	for _, errno := range causes {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrExhausted, err)
		}
	}
	return err
}

// PID returns the child's pid, which is also its session's id.
func (p *PTY) PID() int { return p.pid }

// Done returns a channel that is closed after the child has ended and was reaped.
func (p *PTY) Done() <-chan struct{} { return p.done }

// Status returns how the child ended. It must not be called before Done is closed.
func (p *PTY) Status() Status { return p.status }

// Close closes the master. A waiting Read or Write returns os.ErrClosed. A second call has no
// effect.
func (p *PTY) Close() error {
	if p.isClosed.Swap(true) {
		return nil
	}
	return p.file.Close()
}
