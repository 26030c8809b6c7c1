//go:build unix

package keeperstate

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

// LockPID locks keeper.lock for the life of this program, so that PID returns this process as
// the keeper. If another keeper has the lock, LockPID succeeds and waits in the background
// until that keeper has ended.
func LockPID(dir string) error {
	// The file stays open, because closing any descriptor of it would end the lock.
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

// claimPause is the pause between two tries of Claim.
const claimPause = 10 * time.Millisecond

// Claim locks keeping.lock, which each keeper of a directory must hold before it starts a
// process. The keeper and its supervisors have duplicates of the returned file, so that the
// lock ends only when all of them have ended. If another keeper holds the lock, Claim retries
// until wait has passed, because that keeper may be about to end. Then it returns a
// *socket.InUseError with the pid of that keeper.
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
		return nil, fmt.Errorf("the sessions of %s already have a keeper: %w; end it with `supervisor stop`", dir, inUse)
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

// PID returns the process id of the keeper, or 0 if no keeper lives. The keeper itself must
// not call PID, because closing the file would end the keeper's own lock.
func PID(dir string) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|unix.O_NOFOLLOW, 0) // to test for a write lock
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // the file was only read
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(l.Pid), nil
}

// Choose tells the keeper of a directory which program its next supervisor must run. If no
// supervisor serves, the keeper starts one at once. Choose returns the keeper's pid, or 0 if
// no keeper lives. Other users cannot choose, because the directory belongs to the user and
// because the kernel refuses their signals. If the keeper has just started the program that it
// knows, and that program serves, the file stays until the keeper reads it or CancelChoice.
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

// Chosen returns the program of the last Choose and removes its file. If the keeper has read
// the choice already, Chosen returns "". The keeper calls Chosen at SIGHUP. Chosen ignores a
// file that does not belong to the user or is not a regular file.
func Chosen(dir string) string {
	path := filepath.Join(dir, nextFile+".read")
	if os.Rename(filepath.Join(dir, nextFile), path) != nil { // after the rename, a new Choose cannot be lost
		return ""
	}
	defer func() { _ = os.RemoveAll(path) }() // RemoveAll also removes a directory of that name
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // the file was only read
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

// CancelChoice removes the choice of Choose, and reports whether the keeper had not read it.
func CancelChoice(dir string) bool { return os.Remove(filepath.Join(dir, nextFile)) == nil }
