//go:build unix && !linux

package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// newFile returns the descriptor of an empty unlinked file.
func newFile() (int, error) {
	f, err := os.CreateTemp("", "holdfast-input-")
	if err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	return fd, errors.Join(os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err), os.Remove(f.Name()), f.Close())
}
