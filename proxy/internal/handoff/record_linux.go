package handoff

import (
	"os"

	"golang.org/x/sys/unix"
)

func recordFile(record []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("holdfast-record", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return fill(os.NewFile(uintptr(fd), "holdfast-record"), record)
}
