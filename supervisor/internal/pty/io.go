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

// never is the zero deadline, which means that there is no deadline.
var never time.Time

// Read waits until there is output, and then reads all of it into b with several read(2),
// because the kernel returns only about 4 KiB for each, and a wake-up for each would cost too
// much. It returns io.EOF when no process has the terminal open any more.
func (p *PTY) Read(b []byte) (n int, err error) { return p.ReadEach(memory(b), func(int) {}) }

// memory is always reserved.
type memory []byte

func (b memory) Reserve() []byte { return b }
func (b memory) Withdraw()       {}

// ReadEach reads like Read, and calls each with the length of every piece directly after its
// read(2).
func (p *PTY) ReadEach(to Memory, each func(n int)) (n int, err error) {
	tries, reads := 0, 0
	waitErr := p.whenReadable(func(fd uintptr) bool {
		tries++
		b := to.Reserve()
		if len(b) == 0 {
			return true
		}
		if n, reads, err = readAll(int(fd), b, each); errors.Is(err, unix.EAGAIN) {
			to.Withdraw()
			return false
		}
		return true
	})
	p.budget.Spend(n, reads, tries > 1)
	if waitErr != nil {
		return 0, p.wrap("read", waitErr)
	}
	return n, p.wrap("read", err)
}

// maxReads bounds how often readAll reads, because a program that prints small pieces without a
// pause would otherwise keep it reading until b is full. During that time the netpoller does
// not learn which other terminals are ready.
const maxReads = 16

// readAll reads until b is full, no output is left, or it has read maxReads times. It returns
// an error only if it has read no bytes; otherwise the next call meets the error again.
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
		case err == nil, errors.Is(err, unix.EIO): // on Linux, EIO is the end of file of a master
			return 0, reads, io.EOF
		default:
			return 0, reads, err
		}
	}
	return n, reads, nil
}

// TryWrite writes as much of b as the kernel accepts at once, and never blocks. If n < len(b)
// and err is nil, the kernel's buffer is full.
func (p *PTY) TryWrite(b []byte) (n int, err error) {
	// Control must be used here, because Write may hold the lock for writing while it waits.
	ctlErr := p.raw.Control(func(fd uintptr) { n, err = writeAll(int(fd), b) })
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return n, p.wrap("write", errors.Join(ctlErr, err))
}

// Write returns when all of b is written, at the write deadline, or at Close. n is always the
// number of bytes that were written.
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

// writeAll writes until all of b is written, or the kernel returns an error such as EAGAIN.
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

// SetReadDeadline sets the time from which a Read returns os.ErrDeadlineExceeded, also a Read
// that is waiting now. Output that was not read stays in the kernel.
func (p *PTY) SetReadDeadline(t time.Time) error {
	p.deadlines.read.Store(&t)
	if !p.isPolled {
		return nil
	}
	return p.wrap("set deadline", p.file.SetReadDeadline(t))
}

// SetWriteDeadline sets the time from which a Write returns os.ErrDeadlineExceeded, also a
// Write that is waiting now. It does not concern TryWrite.
func (p *PTY) SetWriteDeadline(t time.Time) error {
	p.deadlines.write.Store(&t)
	if !p.isPolled {
		return nil
	}
	return p.wrap("set deadline", p.file.SetWriteDeadline(t))
}

// Resize sets the terminal's size in cells and in pixels; width and height are 0 if the size in
// pixels is not known. The kernel sends SIGWINCH to the foreground process group.
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

// LineMode reports whether the terminal collects its input into lines (canonical mode,
// termios(3)). It keeps at most MaxLine bytes of each.
func (p *PTY) LineMode() bool {
	return p.localModes()&unix.ICANON != 0
}

// Echoes reports whether the terminal echoes its input. It returns false if the terminal's
// modes cannot be read.
func (p *PTY) Echoes() bool { return p.localModes()&unix.ECHO != 0 }

// localModes returns the terminal's local modes (c_lflag), or 0 if they cannot be read.
func (p *PTY) localModes() (modes uint64) {
	_ = p.control("read modes", func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, getTermios)
		if err == nil {
			modes = uint64(t.Lflag)
		}
		return err
	})
	return modes
}

// control calls f with the master's descriptor, which stays open during the call.
func (p *PTY) control(verb string, f func(fd int) error) (err error) {
	ctlErr := p.raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return p.wrap(verb, errors.Join(ctlErr, err))
}

// wrap adds the failed operation to an error. It does not wrap io.EOF and
// os.ErrDeadlineExceeded, because callers compare them. If the PTY is closed, it returns
// os.ErrClosed, because the runtime's own error for a closed file matches no exported error.
func (p *PTY) wrap(verb string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	case p.isClosed.Load():
		return fmt.Errorf("pty: %s: %w", verb, os.ErrClosed)
	}
	return fmt.Errorf("pty: %s: %w", verb, err)
}
