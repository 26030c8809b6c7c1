//go:build unix

package keep

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mark lets others see, for the life of this program, that this process is the
// keeper. Where another one is, it waits for that one's end in the background.
func Mark(dir string) error {
	// It stays open: to close any descriptor of the file would end the lock.
	fd, err := unix.Open(filepath.Join(dir, lockFile), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", lockFile, err)
	}
	err = lock(fd, unix.F_SETLK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		go func() { _ = lock(fd, unix.F_SETLKW) }()
		return nil
	}
	return err
}

func lock(fd, how int) error {
	for {
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		if err := unix.FcntlFlock(uintptr(fd), how, &l); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fcntl", err)
		}
	}
}

// PID is the keeper's, 0 where none lives. The keeper itself must not ask.
func PID(dir string) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|unix.O_NOFOLLOW, 0) // to test for a write lock
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(l.Pid), nil
}

// GoOn has the keeper try again, if it still is one that only holds.
func (h *Held) GoOn(dir string) error {
	if now := Look(dir); now == nil || *now != *h {
		return nil // somebody else had it go on
	}
	return syscall.Kill(h.PID, syscall.SIGHUP)
}
