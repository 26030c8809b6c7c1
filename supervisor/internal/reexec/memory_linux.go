package reexec

import (
	"os"

	"golang.org/x/sys/unix"
)

func newMemory() (*os.File, error) {
	fd, err := unix.MemfdCreate("holdfast-manifest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "manifest"), nil
}
