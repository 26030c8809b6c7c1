package pty

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// SpliceFrom types up to n bytes out of a pipe, as many as the kernel takes at
// once, and never blocks: fewer than n without an error means that its buffer is
// full, or the pipe empty. What was typed has left the pipe and nothing else
// has, even if the process is killed inside, so the pipe knows how much is left.
//
// It matches errors.ErrUnsupported, and has typed nothing, where the kernel
// cannot splice to a terminal (5.10.0 to 5.10.9).
func (p *PTY) SpliceFrom(pipe uintptr, n int) (typed int, err error) {
	// Control, as AwaitWritable may hold the lock for writing and wait.
	ctlErr := p.raw.Control(func(fd uintptr) { typed, err = spliceAll(pipe, fd, n) })
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return typed, p.wrap("splice", errors.Join(ctlErr, err))
}

func spliceAll(from, to uintptr, n int) (typed int, err error) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	for typed < n {
		// Raw, as in package rawio: neither end blocks.
		k, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, from, 0, to, 0, uintptr(n-typed), flags)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EINVAL:
			return typed, fmt.Errorf("%w: %w", errors.ErrUnsupported, errno)
		case errno != 0:
			return typed, errno
		case k == 0: // the pipe has no more
			return typed, nil
		}
		typed += int(k)
	}
	return typed, nil
}
