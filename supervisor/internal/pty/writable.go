//go:build linux || darwin

package pty

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitWritable returns when the terminal accepts input. As Write does, it returns early at the
// write deadline and at Close. Only one of the two may be called at a time. It does not return
// if no process has the terminal open, because a process may open it again.
func (p *PTY) AwaitWritable() error {
	if !p.isPolled { // poll(2) may not know such a terminal either; without the pause, a caller that retries would use all of a CPU
		time.Sleep(time.Millisecond)
	}
	return p.wrap("wait for", p.whenWritable(acceptsInput))
}

func acceptsInput(fd uintptr) bool {
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(polled, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return true // the caller's next write returns the error
		default:
			// If no process has the terminal open, poll reports POLLHUP, and the full buffer of
			// the terminal stays full.
			return n > 0 && polled[0].Revents&(unix.POLLOUT|unix.POLLERR|unix.POLLNVAL) != 0
		}
	}
}
