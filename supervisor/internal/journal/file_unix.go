//go:build unix

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readFile fills p. If the file ends before, the error matches io.ErrUnexpectedEOF.
func readFile(fd int, p []byte, at int64) error {
	return whole("pread", p, at, func(p []byte, at int64) (int, error) { return unix.Pread(fd, p, at) })
}

// writeFile writes all of p at an offset of the file.
func writeFile(fd int, p []byte, at int64) error {
	return whole("pwrite", p, at, func(p []byte, at int64) (int, error) { return unix.Pwrite(fd, p, at) })
}

func whole(name string, p []byte, at int64, call func([]byte, int64) (int, error)) error {
	for len(p) > 0 {
		n, err := call(p, at)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError(name, err)
		case n == 0:
			return fmt.Errorf("%s: %w", name, io.ErrUnexpectedEOF)
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

func fileSize(fd int) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Size, os.NewSyscallError("fstat", err)
}

func cutFile(fd int) error { return os.NewSyscallError("ftruncate", unix.Ftruncate(fd, 0)) }

func closeOnExec(fd int) {
	if fd >= 0 {
		unix.CloseOnExec(fd)
	}
}

func closeFile(fd int) error {
	if fd < 0 {
		return nil
	}
	return os.NewSyscallError("close", unix.Close(fd))
}
