package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// newFile returns the descriptor of an empty memory file.
func newFile() (int, error) {
	fd, err := unix.MemfdCreate("holdfast-input", unix.MFD_CLOEXEC)
	return fd, os.NewSyscallError("memfd_create", err)
}
