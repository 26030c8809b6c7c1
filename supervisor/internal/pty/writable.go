//go:build linux || darwin

package pty

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitWritable returns once the terminal takes input. Like Write, in whose place
// it is called, it ends at the write deadline and at Close, and not where nobody
// has the terminal open any more: somebody may open it again.
func (p *PTY) AwaitWritable() error {
	if !p.polled { // then poll(2) may not know it either, and a caller that tries and waits would turn
		time.Sleep(time.Millisecond)
	}
	return p.wrap("await", p.whenWritable(takesInput))
}

func takesInput(fd uintptr) bool {
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(polled, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // the next try says why
		default:
			// Nobody there is POLLHUP, with which a full terminal stays full.
			return n > 0 && polled[0].Revents&(unix.POLLOUT|unix.POLLERR|unix.POLLNVAL) != 0
		}
	}
}
