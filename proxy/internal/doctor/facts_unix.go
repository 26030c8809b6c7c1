//go:build unix

package doctor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// Locked reports whether a socket's lock is held. It takes it for a moment,
// shared, as there is no other way to know: a process that would serve and is
// started just then finds its place taken, and the next try finds it free.
func Locked(path string) (bool, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// openPtmx makes a PTY and lets it go.
func openPtmx(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return unix.Close(fd)
}
