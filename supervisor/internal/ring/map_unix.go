//go:build unix

package ring

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func mapFD(f *os.File, n int) (*os.File, []byte, error) {
	err := f.Truncate(int64(n))
	if err == nil {
		var buf []byte
		buf, err = unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			return f, buf, nil
		}
		err = os.NewSyscallError("mmap", err)
	}
	return nil, nil, errors.Join(err, f.Close())
}

func unmap(buf []byte) error { return os.NewSyscallError("munmap", unix.Munmap(buf)) }
