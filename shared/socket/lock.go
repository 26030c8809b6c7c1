//go:build unix

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A fileID tells files apart, whatever their names.
type fileID struct{ dev, ino uint64 }

func idOf(path string) (fileID, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return fileID{}, err
	}
	return idOfInfo(fi), nil
}

func idOfInfo(fi fs.FileInfo) fileID {
	st := fi.Sys().(*syscall.Stat_t)
	return fileID{uint64(st.Dev), uint64(st.Ino)}
}

func ownerOf(fi fs.FileInfo) int { return int(fi.Sys().(*syscall.Stat_t).Uid) }

// Owner returns the uid of the user that a file belongs to. It follows links.
func Owner(path string) (uid int, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return ownerOf(fi), nil
}

func lockPath(path string) string { return path + ".lock" }

// Acquire locks the file path+".lock", which it makes if it is not there, and returns
// it. The lock ends when each duplicate of the file is closed. If another process
// holds the lock, the error is an *InUseError with the pid that the file names.
func Acquire(path string) (*os.File, error) {
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	if err := writePID(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// acquire takes the lock of a socket's path, or returns an *InUseError.
func acquire(path string) (*os.File, error) {
	// A file that is removed between open and lock locks nothing: once more.
	// Nobody of ours removes it, so this ends.
	for {
		f, err := os.OpenFile(lockPath(path), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			pid := readPID(f)
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &InUseError{path, pid}
			}
			return nil, fmt.Errorf("lock %s: %w", lockPath(path), err)
		}
		if isAt(f, lockPath(path)) {
			return f, nil
		}
		_ = f.Close()
	}
}

// Holder returns the pid of the process that serves a socket, as its lock's file says,
// for messages alone; 0 if that is not known.
func Holder(path string) int {
	f, err := os.OpenFile(lockPath(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // nothing was written
	return readPID(f)
}

// Locked reports whether a socket's lock is held. It takes it for a moment,
// shared, as there is no other way to know: a process that would serve and is
// started just then finds its place taken, and the next try finds it free.
func Locked(path string) (bool, error) {
	f, err := os.OpenFile(lockPath(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// relock takes the lock again if somebody removed its file.
func (l *Listener) relock() error {
	if isAt(l.lock, lockPath(l.path)) {
		return nil
	}
	lock, err := acquire(l.path)
	if err != nil {
		return err
	}
	old := l.lock
	l.lock = lock
	return old.Close()
}

// unlock gives up the lock by word and not just by closing: a child between
// fork and exec may hold a duplicate a moment longer.
func (l *Listener) unlock() error {
	return errors.Join(flock(l.lock, unix.LOCK_UN), l.lock.Close())
}

// isAt reports whether f is the file of that name.
func isAt(f *os.File, name string) bool {
	fi, err := f.Stat()
	if err != nil {
		return false
	}
	id, err := idOf(name)
	return err == nil && id == idOfInfo(fi)
}

func flock(f *os.File, how int) error {
	return control(f, func(fd int) error { return unix.Flock(fd, how) })
}

// The lock's file holds the holder's pid in decimal, for messages alone.
func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// readPID returns 0 for what is no pid.
func readPID(f *os.File) int {
	var b [20]byte
	n, _ := f.ReadAt(b[:], 0) // io.EOF at most
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// control runs f on a descriptor. Fd would do, but it makes the descriptor
// blocking, for every process that shares it.
func control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
