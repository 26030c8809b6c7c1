//go:build unix

package machine

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Duplicate returns a duplicate of the descriptor of a connection, a listener or a file. The duplicate is named name, is
// close-on-exec, and its number is above those of the standard streams. Duplicate returns os.ErrClosed if the descriptor is
// closed. Unless the caller means to make the descriptor blocking in every process that shares it, it must not call Fd on
// the duplicate.
func Duplicate(c syscall.Conn, name string) (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", name, err)
	}
	n := -1
	closed := raw.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	if closed != nil { // the runtime's own error for a closed file matches no exported error
		err = os.ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", name, err)
	}
	return os.NewFile(uintptr(n), name), nil
}
