package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// MemoryFile returns an empty file that lies in memory, may be sealed, and has no
// path: only who is given it can read it. The name is for people, in /proc.
func MemoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
