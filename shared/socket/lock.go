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
	"time"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// A fileID identifies a file independently of its names.
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

// Owner returns the uid of the owner of the file at path. It follows symbolic links.
func Owner(path string) (uid int, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return ownerOf(fi), nil
}

func lockPath(path string) string { return path + ".lock" }

// Acquire creates the file path+".lock" if it does not exist, locks it, and returns it.
// The lock ends when all duplicates of the file are closed. If another process holds the
// lock, the error is an *InUseError with the pid that the file contains. Acquire also
// succeeds if the pid of this process cannot be written to the file.
func Acquire(path string) (*os.File, error) {
	lock, err := acquire(path)
	if err != nil {
		return nil, err
	}
	writePID(lock)
	return lock, nil
}

// AdoptLock reports whether f, a file of Acquire that another program has left, still is the file path+".lock", and holds the lock.
func AdoptLock(f *os.File, path string) bool {
	return isAt(f, lockPath(path)) && takeLock(f, path) == nil
}

// acquire locks the file path+".lock" without writing a pid to it. If another process
// holds the lock, acquire returns an *InUseError.
func acquire(path string) (*os.File, error) {
	// If the file is removed between open and flock, the lock is worthless, and the loop
	// tries again. A file is removed only by a process that holds its lock, and only once its
	// owner has ended, so the loop ends.
	for {
		f, err := os.OpenFile(lockPath(path), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := takeLock(f, path); err != nil {
			_ = f.Close()
			return nil, err
		}
		if isAt(f, lockPath(path)) {
			return f, nil
		}
		_ = f.Close()
	}
}

// A call of Locked holds a shared lock between two system calls, which takes about 4 µs. The system
// may suspend its process in between: 0.3 s was measured with four busy processes per processor.
// takeLock retries for askedTime, at intervals of askedPause. A long time costs nothing if another
// process serves, because takeLock then finds an exclusive lock and returns at once. The time must
// have an end, because the process of Locked may have been stopped by a signal.
const (
	askedTime  = time.Second
	askedPause = time.Millisecond
)

// takeLock locks f, the file path+".lock". It changes nothing if the open file description of f
// holds the lock already. If another one holds it, takeLock returns an *InUseError.
func takeLock(f *os.File, path string) error {
	for limit := time.Now().Add(askedTime); ; time.Sleep(askedPause) {
		err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", lockPath(path), err)
		case !isOnlyAsked(f):
			return &InUseError{path, readPID(f)}
		case time.Now().After(limit):
			return &InUseError{Path: path}
		}
	}
}

// isOnlyAsked reports whether no process holds the lock f exclusively, so that all its holders are
// calls of Locked. It takes a shared lock for a moment, as Locked does.
func isOnlyAsked(f *os.File) bool {
	return flock(f, unix.LOCK_SH|unix.LOCK_NB) == nil && flock(f, unix.LOCK_UN) == nil
}

// Holder returns the pid in the lock's file of the socket at path, or 0 if the file
// contains none, as on a full disk. The pid is meant for messages, because it may be
// outdated.
func Holder(path string) int {
	f, err := os.OpenFile(lockPath(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // the file was only read
	return readPID(f)
}

// Locked reports whether a process holds the lock of the socket at path. There is no way
// to ask without taking the lock, so Locked takes a shared lock for a moment. If another
// process calls Listen or Acquire in that moment, the call waits.
func Locked(path string) (bool, error) {
	f, err := os.OpenFile(lockPath(path), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

// relock takes the lock again if the lock's file was removed or replaced, or if another process that
// has a duplicate of the file has unlocked it, as Close does.
func (l *Listener) relock() error {
	if isAt(l.lock, lockPath(l.path)) {
		return takeLock(l.lock, l.path)
	}
	lock, err := acquire(l.path)
	if err != nil {
		return err
	}
	old := l.lock
	l.lock = lock
	return old.Close()
}

// unlock unlocks the lock explicitly and closes it. Closing alone might not suffice,
// because a child between fork and exec may have a duplicate for a moment.
func (l *Listener) unlock() error {
	return errors.Join(flock(l.lock, unix.LOCK_UN), l.lock.Close())
}

// isAt reports whether f is the file that has the given name now.
func isAt(f *os.File, name string) bool {
	fi, err := f.Stat()
	if err != nil {
		return false
	}
	id, err := idOf(name)
	return err == nil && id == idOfInfo(fi)
}

func flock(f *os.File, how int) error {
	return machine.Control(f, func(fd int) error { return unix.Flock(fd, how) })
}

// renewEvery is how often a lock's file gets a new modification time. Cleaners of temporary
// directories remove files that are older than some days.
const renewEvery = time.Hour

// maxPIDText is how many bytes of a lock's file are read. No decimal pid is longer.
const maxPIDText = 20

// writePID writes the pid of this process to the lock's file in decimal. It writes nothing if the
// file has that pid and was modified in the last hour, because the file may be on a disk, and a
// process whose sessions are silent must not write to the disk.
//
// writePID returns no error. Other processes use the pid in messages only, so a process must serve
// even if it cannot write its pid, for example because the disk is full.
//
// The new pid replaces the old pid in place, and the file is shortened afterwards. If the file were
// emptied first, the system would free its block, and on a full disk another process could take
// that block before the pid is written. In the meantime spaces replace the other digits of a longer
// old pid, because every release of readPID ignores spaces.
func writePID(f *os.File) {
	info, err := f.Stat()
	if err != nil || time.Since(info.ModTime()) < renewEvery && readPID(f) == os.Getpid() {
		return
	}
	pid := strconv.Itoa(os.Getpid())
	_, err = f.WriteAt(fmt.Appendf(nil, "%-*s", int(min(info.Size(), maxPIDText)), pid), 0)
	switch {
	case err == nil:
		_ = f.Truncate(int64(len(pid))) // if it fails, the file has spaces after the pid
	case readPID(f) != os.Getpid():
		_ = f.Truncate(0) // no pid is better than the pid of an earlier holder, which a user might kill
	}
}

// readPID returns the pid in the lock's file, or 0 if the file contains none.
func readPID(f *os.File) int {
	var b [maxPIDText]byte
	n, _ := f.ReadAt(b[:], 0) // a read that fails leaves b empty, and the pid is then unknown
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return 0
	}
	return pid
}
