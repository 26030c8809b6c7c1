//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/rawio"
)

// never is the deadline that does not come.
var never time.Time

// Read waits once for output and then takes all there is, straight into b: the
// kernel gives about 4 KiB a read(2), far too little to be woken up for each.
// It returns io.EOF once nobody has the terminal open any more.
func (p *PTY) Read(b []byte) (n int, err error) { return p.ReadEach(b, func(int) {}) }

// ReadEach is Read, and calls each for every piece as it has come, with its
// length.
func (p *PTY) ReadEach(b []byte, each func(n int)) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	tries, reads := 0, 0
	waitErr := p.whenReadable(func(fd uintptr) bool {
		tries++
		n, reads, err = readAll(int(fd), b, each)
		return !errors.Is(err, unix.EAGAIN)
	})
	p.budget.Spend(n, reads, tries > 1)
	if waitErr != nil {
		return 0, p.wrap("read", waitErr)
	}
	return n, p.wrap("read", err)
}

// maxReads bounds how often readAll reads: a program that prints in small pieces
// and all the time would have it go on for as long as b takes, during which
// nobody is asked what else is ready.
const maxReads = 16

// readAll reads until b is full, nothing is left, or it was often enough. An
// error is only returned with no bytes; the next call will see it again.
func readAll(fd int, b []byte, each func(n int)) (n, reads int, err error) {
	for n < len(b) && reads < maxReads {
		k, err := rawio.Read(uintptr(fd), b[n:])
		reads++
		switch {
		case k > 0:
			n += k
			each(k)
		case errors.Is(err, unix.EINTR):
		case n > 0:
			return n, reads, nil
		case err == nil, errors.Is(err, unix.EIO): // EIO is Linux's EOF on a master
			return 0, reads, io.EOF
		default:
			return 0, reads, err
		}
	}
	return n, reads, nil
}

// TryWrite writes what the kernel takes at once and never blocks: n < len(b)
// without an error means that its buffer is full.
func (p *PTY) TryWrite(b []byte) (n int, err error) {
	// Control, as Write may hold the lock for writing and wait.
	ctlErr := p.raw.Control(func(fd uintptr) { n, err = writeAll(int(fd), b) })
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return n, p.wrap("write", errors.Join(ctlErr, err))
}

// Write returns when all of b is written, at the write deadline or at Close,
// and always how much was written.
func (p *PTY) Write(b []byte) (n int, err error) {
	waitErr := p.whenWritable(func(fd uintptr) bool {
		var k int
		k, err = writeAll(int(fd), b[n:])
		n += k
		return !errors.Is(err, unix.EAGAIN)
	})
	if waitErr != nil {
		err = waitErr
	}
	return n, p.wrap("write", err)
}

// writeAll writes until b is done or the kernel has had enough.
func writeAll(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		k, err := rawio.Write(uintptr(fd), b[n:])
		if k > 0 {
			n += k
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
	return n, nil
}

// SetReadDeadline makes a Read, under way or to come, return
// os.ErrDeadlineExceeded from t on; what was printed stays in the kernel.
func (p *PTY) SetReadDeadline(t time.Time) error {
	p.tries.read.Store(&t)
	if !p.polled {
		return nil
	}
	return p.wrap("set deadline", p.file.SetReadDeadline(t))
}

// SetWriteDeadline is the same for Write. TryWrite knows no deadline.
func (p *PTY) SetWriteDeadline(t time.Time) error {
	p.tries.write.Store(&t)
	if !p.polled {
		return nil
	}
	return p.wrap("set deadline", p.file.SetWriteDeadline(t))
}

// Resize sets the terminal's size in cells, and in pixels where that is known,
// else 0; the kernel tells the foreground programs.
func (p *PTY) Resize(cols, rows, width, height int) error {
	if err := checkSize(cols, rows); err != nil {
		return err
	}
	return p.control("resize", func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{
			Col: uint16(cols), Row: uint16(rows), Xpixel: uint16(width), Ypixel: uint16(height),
		})
	})
}

// LineMode reports whether the terminal gathers what is typed into lines
// (canonical mode, termios(3)), of which it keeps MaxLine bytes each.
func (p *PTY) LineMode() bool {
	return p.localModes()&unix.ICANON != 0
}

// Echoes reports whether the terminal shows what is typed. One that cannot be asked
// does not.
func (p *PTY) Echoes() bool { return p.localModes()&unix.ECHO != 0 }

// localModes are the terminal's (c_lflag); 0 where it cannot be asked.
func (p *PTY) localModes() (modes uint64) {
	_ = p.control("look at", func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil {
			modes = uint64(t.Lflag)
		}
		return err
	})
	return modes
}

// control calls f with the master's descriptor, which stays valid meanwhile.
func (p *PTY) control(verb string, f func(fd int) error) (err error) {
	ctlErr := p.raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return p.wrap(verb, errors.Join(ctlErr, err))
}

// wrap says what failed, except where callers compare: an end or a deadline is
// no failure. The runtime's own error for a closed file matches nothing.
func (p *PTY) wrap(verb string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	case p.closed.Load():
		return fmt.Errorf("pty: %s: %w", verb, os.ErrClosed)
	}
	return fmt.Errorf("pty: %s: %w", verb, err)
}
