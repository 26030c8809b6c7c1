//go:build !windows

package slate

import (
	"os"

	"golang.org/x/sys/unix"
)

func duplicate(f *os.File) (dup *os.File, err error) {
	raw, err := f.SyscallConn() // Fd would make the file blocking
	if err != nil {
		return nil, err
	}
	closed := raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err != nil { // above the standard streams
			err = os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
			return
		}
		dup = os.NewFile(uintptr(n), f.Name())
	})
	if closed != nil { // the runtime's own error for a closed file matches no exported error
		err = os.ErrClosed
	}
	return dup, err
}
