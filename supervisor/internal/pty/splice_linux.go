package pty

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// SpliceFrom moves up to n bytes from a pipe into the terminal's input, as many as the kernel
// accepts at once, and never blocks. If accepted < n and err is nil, the terminal's buffer is
// full or the pipe is empty. A byte leaves the pipe if and only if the terminal has accepted
// it, even if this process is killed during the call. The length of the pipe therefore always
// tells how much input is left.
//
// The error matches errors.ErrUnsupported if the kernel cannot splice to a terminal (Linux
// 5.10.0 to 5.10.9); no byte was accepted then.
func (p *PTY) SpliceFrom(pipe uintptr, n int) (accepted int, err error) {
	// Control must be used here, because AwaitWritable may hold the lock for writing while it
	// waits.
	ctlErr := p.raw.Control(func(fd uintptr) { accepted, err = spliceAll(pipe, fd, n) })
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return accepted, p.wrap("splice", errors.Join(ctlErr, err))
}

func spliceAll(from, to uintptr, n int) (accepted int, err error) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	for accepted < n {
		// A raw system call is safe, as in package rawio, because neither end blocks.
		k, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, from, 0, to, 0, uintptr(n-accepted), flags)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EINVAL:
			return accepted, fmt.Errorf("%w: %w", errors.ErrUnsupported, errno)
		case errno != 0:
			return accepted, errno
		case k == 0: // the pipe is empty
			return accepted, nil
		}
		accepted += int(k)
	}
	return accepted, nil
}
