//go:build unix

package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

func mustFiles(t *testing.T, ln *Listener) []*os.File {
	t.Helper()
	files, err := ln.Files()
	testkit.Must(t, err)
	return files
}

func isInUse(path string) bool {
	ln, err := Listen(path, Options{})
	if err == nil {
		_ = ln.Close()
	}
	var inUse *InUseError
	return errors.As(err, &inUse)
}

func isBlocking(t *testing.T, ln *Listener) bool {
	t.Helper()
	blocking := false
	err := machine.Control(ln.current(), func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		blocking = flags&unix.O_NONBLOCK == 0
		return err
	})
	testkit.Must(t, err)
	return blocking
}

// If the old holder has closed the listener instead of releasing it, Check must make the path and take the lock again.
// If another process was faster, Check must say so.
func TestCheckTakesTheLockAgain(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	for _, isTaken := range []bool{false, true} {
		old := mustListen(t, path, Options{})
		next, err := Adopt(path, mustFiles(t, old), Options{})
		testkit.Must(t, err)
		testkit.Must(t, old.Close())
		if isTaken {
			other := mustListen(t, path, Options{})
			var inUse *InUseError
			if _, err := next.Check(); !errors.As(err, &inUse) {
				t.Errorf("Check returned %v although another process serves", err)
			}
			if err := next.Release(); err != nil {
				t.Error(err)
			}
			if !isInUse(path) {
				t.Error("the other process has lost its lock")
			}
			other.Close()
			continue
		}
		if rebound, err := next.Check(); !rebound || err != nil {
			t.Errorf("Check returned %v, %v", rebound, err)
		}
		if locked, err := Locked(path); !locked || err != nil {
			t.Errorf("Locked returned %v, %v", locked, err)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The lock must be passed on: as long as either holder lives, no other process may listen.
func TestAdoptKeepsTheLock(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	old := mustListen(t, path, Options{})
	next, err := Adopt(path, mustFiles(t, old), Options{})
	testkit.Must(t, err)
	defer next.Close()
	if isBlocking(t, old) || isBlocking(t, next) {
		t.Error("a listener became blocking")
	}
	if !isInUse(path) {
		t.Error("a third Listen succeeded while both holders live")
	}
	testkit.Must(t, old.Release())
	if _, _, err := old.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Release: %v", err)
	}
	if !isInUse(path) {
		t.Error("a third Listen succeeded while the successor lives")
	}
	echoOne(t, next)
	testkit.Must(t, next.Close())
	if isInUse(path) {
		t.Error("the path is in use after Close of the last holder")
	}
}

// If the successor fails, the old listener must work as before.
func TestAdoptTakenBack(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	old := mustListen(t, path, Options{})
	next, err := Adopt(path, mustFiles(t, old), Options{})
	testkit.Must(t, err)
	testkit.Must(t, next.Release())
	if !isInUse(path) {
		t.Error("Release of the successor has released the lock")
	}
	echoOne(t, old)
	if rebound, err := old.Check(); rebound || err != nil {
		t.Errorf("Check: %v, %v", rebound, err)
	}
}

// A Listener must work after its files were sent over a socket, as in a handoff between processes.
func TestAdoptAcrossASocket(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	old := mustListen(t, path, Options{})
	here, there := pair(t)
	files := mustFiles(t, old)
	testkit.Must(t, SendFiles(here, []byte("listener"), files))
	closeAll(files)
	buf := make([]byte, 64)
	_, got, err := RecvFiles(there, buf, 2)
	testkit.Must(t, err)
	next, err := Adopt(path, got, Options{})
	testkit.Must(t, err)
	defer next.Close()
	testkit.Must(t, old.Release())
	echoOne(t, next)
}

func TestAdoptRefusesOtherFiles(t *testing.T) {
	dir := testDir(t)
	ln := mustListen(t, filepath.Join(dir, "a.sock"), Options{})
	other := mustListen(t, filepath.Join(dir, "b.sock"), Options{})
	open := func() *os.File {
		f, err := os.Open(os.DevNull)
		testkit.Must(t, err)
		return f
	}
	ours, theirs := mustFiles(t, ln), mustFiles(t, other)
	for name, files := range map[string][]*os.File{
		"none":           nil,
		"no listener":    {open(), ours[1]},
		"another's lock": {ours[0], theirs[1]},
	} {
		if got, err := Adopt(ln.Path(), files, Options{}); err == nil {
			_ = got.Release()
			t.Errorf("%s: Adopt succeeded", name)
		}
	}
	closeAll(theirs)
	if !isInUse(ln.Path()) || !isInUse(other.Path()) {
		t.Error("a failed Adopt released a lock")
	}
}

func TestCheckRebinds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		harm    func(path string) error
		rebound bool
	}{
		{"nothing", func(string) error { return nil }, false},
		{"socket removed", os.Remove, true},
		{"socket and lock removed", func(p string) error { return errors.Join(os.Remove(p), os.Remove(p+".lock")) }, true},
		{"only the lock removed", func(p string) error { return os.Remove(p + ".lock") }, false},
		{"replaced by a dead one", func(p string) error { _ = os.Remove(p); stale(t, p); return nil }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(testDir(t), "a.sock")
			ln := mustListen(t, path, Options{})
			accepted := make(chan error, 1)
			go func() { // Accept runs all the time
				conn, _, err := ln.Accept()
				if err == nil {
					err = conn.Close()
				}
				accepted <- err
			}()
			testkit.Must(t, tt.harm(path))
			if rebound, err := ln.Check(); rebound != tt.rebound || err != nil {
				t.Fatalf("Check: %v, %v", rebound, err)
			}
			conn, _, err := Dial(t.Context(), path)
			testkit.Must(t, err)
			defer conn.Close()
			testkit.Must(t, <-accepted)
			if !isInUse(path) {
				t.Error("the lock was released")
			}
			testkit.Must(t, ln.Close())
			if _, err := os.Lstat(path); err == nil {
				t.Error("the socket exists after Close")
			}
		})
	}
}

// If the whole directory was removed, Check makes it again, unless other users could replace it there.
func TestCheckRestoresDirectory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		harm    func(dir string) error
		rebound bool
	}{
		{"removed", os.RemoveAll, true},
		{"others can read the one above", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Chmod(filepath.Dir(dir), 0o755))
		}, true},
		{"others can write to the one above", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Chmod(filepath.Dir(dir), 0o777))
		}, false},
		{"others can write only their own files to the one above", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Chmod(filepath.Dir(dir), 0o777|fs.ModeSticky))
		}, true},
		{"the one above is gone", func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) }, false},
		{"a link leads elsewhere", func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Symlink(testDir(t), dir))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(testDir(t), "d")
			testkit.Must(t, os.Mkdir(dir, 0o700))
			ln := mustListen(t, filepath.Join(dir, "a.sock"), Options{})
			testkit.Must(t, tt.harm(dir))
			if rebound, err := ln.Check(); rebound != tt.rebound || (err == nil) != tt.rebound {
				t.Fatalf("Check: %v, %v", rebound, err)
			}
			if !tt.rebound {
				if _, err := os.Lstat(ln.Path()); err == nil {
					t.Error("the socket was made")
				}
				return
			}
			if err := CheckDir(dir); err != nil {
				t.Error(err)
			}
			echoOne(t, ln)
			if !isInUse(ln.Path()) {
				t.Error("the lock is not held")
			}
		})
	}
}

// Check and Close must not remove files of another listener.
func TestCheckAndCloseLeaveOthersAlone(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	ln := mustListen(t, path, Options{})
	testkit.Must(t, errors.Join(os.Remove(path), os.Remove(path+".lock")))
	other := mustListen(t, path, Options{})
	var inUse *InUseError
	if rebound, err := ln.Check(); rebound || !errors.As(err, &inUse) {
		t.Errorf("Check: %v, %v", rebound, err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	echoOne(t, other)
	if _, err := ln.Check(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Check after Close: %v", err)
	}
	if _, err := ln.Files(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Files after Close: %v", err)
	}
}
