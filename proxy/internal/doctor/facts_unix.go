//go:build unix

package doctor

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// openPtmx opens a PTY and closes it.
func openPtmx(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return unix.Close(fd)
}
