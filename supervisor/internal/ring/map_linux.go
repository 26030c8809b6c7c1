package ring

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps an anonymous memory file of n bytes.
func mapFile(n int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate("holdfast-ring", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	return mapFD(os.NewFile(uintptr(fd), "holdfast-ring"), n)
}
