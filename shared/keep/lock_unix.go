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
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/socket"
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

// claimPause is how long Claim waits between two tries.
const claimPause = 10 * time.Millisecond

// Claim takes the lock that each keeper of a directory holds before it starts
// anything. The keeper and its supervisors have duplicates of the returned file, so
// that the lock ends only when all of them have ended. A keeper that is about to end is waited for, for that
// long; then the error is a *socket.InUseError that names the process which keeps.
func Claim(dir string, wait time.Duration) (*os.File, error) {
	for limit := time.Now().Add(wait); ; time.Sleep(claimPause) {
		f, err := socket.Acquire(filepath.Join(dir, claimName))
		var inUse *socket.InUseError
		if !errors.As(err, &inUse) {
			return f, err
		}
		if time.Now().Before(limit) {
			continue
		}
		if pid, err := PID(dir); err == nil && pid != 0 {
			inUse.PID = pid
		}
		return nil, fmt.Errorf("the sessions of %s have a keeper already: %w; `supervisor stop` ends it", dir, inUse)
	}
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

// Choose tells the keeper of a directory which program its next supervisor shall run, and
// has it start one at once if none serves. It returns the keeper's pid, or 0 if no keeper
// lives. Only the user whose keeper that is can do so: the directory is the user's own,
// and the kernel lets nobody else send the signal. A keeper of an older release starts
// the program that it knows instead, and Choose's file stays until Forget.
func Choose(dir, program string) (pid int, err error) {
	pid, err = PID(dir)
	if err != nil || pid == 0 {
		return 0, err
	}
	path := filepath.Join(dir, nextFile)
	if err := os.WriteFile(path+".new", []byte(program), 0o600); err != nil {
		return 0, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return 0, err
	}
	return pid, syscall.Kill(pid, syscall.SIGHUP)
}

// Chosen returns the program that Choose named since the last call, or "". The keeper
// calls it at SIGHUP. A file that is not the user's own, or no plain file, names none.
func Chosen(dir string) string {
	path := filepath.Join(dir, nextFile+".read")
	if os.Rename(filepath.Join(dir, nextFile), path) != nil { // a later Choose is another file
		return ""
	}
	defer func() { _ = os.RemoveAll(path) }() // it was read
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // nothing was written
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, unix.PathMax))
	if err != nil || !filepath.IsAbs(string(text)) {
		return ""
	}
	return string(text)
}

// Forget takes back what Choose has said, if no keeper has read it, and reports whether
// that was so.
func Forget(dir string) bool { return os.Remove(filepath.Join(dir, nextFile)) == nil }
