package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// MemoryFile returns an empty file in memory that can be sealed. It has no path, so that only
// processes that receive its descriptor can read it. name appears in /proc only.
func MemoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
