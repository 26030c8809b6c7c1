//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/vault"
)

// presenceDir is the directory of the presences, in the directory of the state.
const presenceDir = "supervisors"

// presenceEntry is the id of the vault entry of a presence. It has one file.
const presenceEntry = "presence"

// A presence tells other supervisors that this one runs, and that the recordings of its sessions belong to it. Another
// supervisor may have the same state directory and another runtime directory: on a second host with the same home
// directory, or in a container. It would take the sessions of this one for lost. A presence is the lock of a file with the
// identity of the supervisor. The keeper has a duplicate of the file, so the presence ends with the sessions and not with a
// supervisor that dies. The content of the file is the pid of the lock's holder, spaces up to seatAt, and the seat.
type presence struct {
	dir  string
	lock *os.File
}

// showPresence makes the presence of a supervisor unless the program before has left it, and removes the files of supervisors
// that have ended.
func (b *before) showPresence(dirs config.Dirs, self protocol.Instance) (*presence, error) {
	p := &presence{dir: filepath.Join(dirs.State, presenceDir)}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return p, err
	}
	names, err := presences(p.dir)
	for _, name := range names {
		if name != string(self) {
			err = errors.Join(err, p.removeIfEnded(name))
		}
	}
	err = errors.Join(err, p.hold(b, string(self)))
	if p.lock != nil { // if the disk is full, only awaitSeated of another supervisor does not know this one
		_, _ = p.lock.WriteAt(fmt.Appendf(nil, "%-*d%s", seatAt, os.Getpid(), seat(dirs)), 0)
	}
	return p, err
}

// lockSuffix follows the name of a presence in the name of its file, as package socket names locks.
const lockSuffix = ".lock"

// presences returns the names of the presences in a directory, also of those that have ended, and those that were read before an
// error.
func presences(dir string) (names []string, err error) {
	files, err := os.ReadDir(dir)
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), lockSuffix); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// seatAt is the offset of the seat in the file of a presence. No decimal pid is longer.
const seatAt = 20

// seat names the runtime directory, and the boot and the namespace in which its path is valid. It is "" if the system tells no
// boot.
func seat(dirs config.Dirs) string {
	boot := machine.Boot()
	if boot == "" {
		return ""
	}
	return boot + " " + dirs.Runtime
}

// awaitSeated waits while a supervisor runs whose runtime directory is that of dirs, but which holds no lock there, because the
// directory was removed, at a logout, for example, or moved, as into the trash. Such a supervisor makes the directory and its
// socket again within socket.CheckEvery. If another one took its place before, no client would reach its sessions any more.
//
// The error is an *socket.InUseError as soon as the supervisor has its lock again. After the time limit, awaitSeated returns
// nil, because that supervisor may be unable to take its lock.
func awaitSeated(dirs config.Dirs, limit time.Duration) error {
	path, own, dir := dirs.Socket(config.SupervisorSocket), seat(dirs), filepath.Join(dirs.State, presenceDir)
	isSeated := func() bool { return isPresent(dir, own) }
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // no supervisor has run here, or all directories were removed or moved
		isSeated = func() bool { return isLockAway(path, own) }
	}
	for end := time.Now().Add(limit); own != "" && time.Now().Before(end) && isSeated(); time.Sleep(seatPause) {
		if held, err := socket.Locked(path); err == nil && held {
			return &socket.InUseError{Path: path, PID: socket.Holder(path)}
		}
	}
	return nil
}

const (
	// seatTime is how long a supervisor that starts waits for one that runs without its lock. The check of the other one, which
	// CheckEvery bounds, may be late on a busy machine.
	seatTime = socket.CheckEvery + 2*time.Second
	// seatPause is the pause between two looks for such a supervisor.
	seatPause = 20 * time.Millisecond
)

// isLockAway reports whether a process of this user has the lock of a socket open although its file was removed, or has a
// presence with this seat in a directory that was moved. Only Linux tells: by the path of an open file, with " (deleted)"
// behind it if it was removed; see proc_pid_fd(5).
func isLockAway(path, seat string) bool {
	dir, _ := filepath.EvalSymlinks(filepath.Dir(path)) // the kernel's paths have no symbolic links; an error means that no path is found
	removed := filepath.Join(dir, filepath.Base(path)) + lockSuffix + " (deleted)"
	return slices.ContainsFunc(namesIn("/proc"), func(pid string) bool {
		files := filepath.Join("/proc", pid, "fd")
		return slices.ContainsFunc(namesIn(files), func(fd string) bool {
			to, _ := os.Readlink(filepath.Join(files, fd))
			in := filepath.Dir(to)
			return to == removed || filepath.Base(in) == presenceDir && isPresent(in, seat)
		})
	})
}

// namesIn returns the names in a directory of /proc, or none if it cannot be read. os.ReadDir and filepath.Glob would take
// several times as long, because they sort the names, or look at each file.
func namesIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // the directory was only read
	names, _ := f.Readdirnames(-1)   // with an error, those that were read before
	return names
}

// isPresent reports whether a supervisor with this seat has its presence in a directory.
func isPresent(dir, seat string) bool {
	names, _ := presences(dir) // an error means that none is known
	return slices.ContainsFunc(names, func(name string) bool {
		path := filepath.Join(dir, name)
		if seatIn(path+lockSuffix, len(seat)) != seat {
			return false
		}
		held, err := socket.Locked(path)
		return held && err == nil
	})
}

// seatIn returns the seat in the file of a presence. It reads at most one byte more than a seat of n bytes.
func seatIn(path string, n int) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // the file was only read
	b := make([]byte, n+1)
	n, _ = f.ReadAt(b, seatAt) // an error means that the file is shorter
	return string(b[:n])
}

// hold takes the lock of a presence, and gives the keeper a duplicate. If the program before has left the lock, hold uses that.
func (p *presence) hold(b *before, name string) error {
	if r := b.find(presenceEntry); r != nil {
		inherited := os.NewFile(uintptr(r.FDs[0]), presenceEntry)
		if socket.AdoptLock(inherited, filepath.Join(p.dir, name)) {
			p.lock, b.presence = inherited, r
			return nil
		}
		_ = inherited.Close() // its file was removed, or is that of another identity
		b.deleteEntry(presenceEntry)
	}
	var err error
	p.lock, err = socket.Acquire(filepath.Join(p.dir, name))
	if inUse := (*socket.InUseError)(nil); errors.As(err, &inUse) { // the keeper has the lock, but an earlier release has not passed on the duplicate
		return nil
	}
	if err != nil {
		return err
	}
	fd, err := machine.Descriptor(p.lock)
	if err != nil || b.vault == nil {
		return err
	}
	b.presence = &vault.Entry{ID: presenceEntry, FDs: []int{fd}}
	return inKeeperTime(func(ctx context.Context) error { return b.vault.Put(ctx, *b.presence) })
}

// removeIfEnded removes the file of a supervisor that has ended. It holds the lock meanwhile, so that the supervisor cannot
// take it just then.
func (p *presence) removeIfEnded(name string) error {
	lock, err := socket.Acquire(filepath.Join(p.dir, name))
	if inUse := (*socket.InUseError)(nil); errors.As(err, &inUse) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(p.dir, name+lockSuffix)), lock.Close())
}

// isRunning reports whether another supervisor runs that has made recordings. If that is unknown, it reports true, because
// its sessions may run.
func (p *presence) isRunning(supervisor protocol.Instance) bool {
	if name := string(supervisor); name == "" || name != filepath.Base(name) { // an earlier release made the recording, or it is damaged
		return false
	}
	held, err := socket.Locked(filepath.Join(p.dir, string(supervisor)))
	return held || err != nil && !errors.Is(err, fs.ErrNotExist)
}
