//go:build unix

package logging

import (
	"os"

	"golang.org/x/sys/unix"
)

// awaitRoom waits until a write of a line to f does not block, and reports whether the limit in milliseconds was long enough.
// It returns true if the system does not tell.
func awaitRoom(f *os.File, limit int) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(fds, limit)
		if err != unix.EINTR {
			return n != 0 || err != nil
		}
	}
}
