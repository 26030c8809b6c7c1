//go:build unix

package socket

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A retry after a shortage of a system resource waits firstWait. The pause doubles with
// each further retry, up to lastWait.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// A Listener is a bound socket with its lock. Its methods are safe for concurrent use.
type Listener struct {
	path string
	opts Options
	done chan struct{} // Close and Release close it

	mu       sync.Mutex
	ln       *net.UnixListener
	lock     *os.File
	bound    fileID // the file of the socket; zero if Adopt did not find it
	deadline time.Time
	closed   bool
}

// Listen locks path, which must be absolute, and binds a socket there. It returns
// ErrPathTooLong, ErrUnsafeDir, or an *InUseError if another process holds the lock or
// listens on the path.
//
// The order of the steps must not change. Listen takes the lock first, so that only one
// of several processes that start at once continues. It then connects to the path,
// because the file of a serving process's lock may have been removed. Only if the connection
// is refused does Listen unlink the stale socket. Finally it binds the new socket under a
// temporary name, sets the mode and renames it, so that the path never shows a socket
// with a wider mode.
func Listen(path string, opts Options) (*Listener, error) {
	l := &Listener{path: path, opts: opts, done: make(chan struct{})}
	if err := l.listen(); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func (l *Listener) listen() error {
	if !filepath.IsAbs(l.path) {
		return fmt.Errorf("the socket's path %q is not absolute", l.path)
	}
	if err := errors.Join(checkLen(l.path), checkLen(l.tmpPath())); err != nil {
		return err
	}
	if err := CheckDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	lock, err := acquire(l.path)
	if err != nil {
		return err
	}
	l.lock = lock
	if err := l.removeStale(); err != nil {
		return errors.Join(err, l.unlock())
	}
	writePID(lock)
	if err := l.bind(); err != nil {
		return errors.Join(err, l.unlock())
	}
	return nil
}

// Path returns the path that was passed to Listen or Adopt.
func (l *Listener) Path() string { return l.path }

// CheckDir returns ErrUnsafeDir unless dir is a directory, is not a symbolic link, belongs
// to the user of this process, and has mode 0700.
func CheckDir(dir string) error {
	fi, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it does not exist; create it with: mkdir -m 700 %s", err, dir)
	}
	if err != nil {
		return err
	}
	switch owner := ownerOf(fi); {
	case fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %s is a symbolic link; name the directory itself", ErrUnsafeDir, dir)
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is not a directory; choose another directory", ErrUnsafeDir, dir)
	case owner != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to uid %d instead of the user of this process, uid %d; choose another directory", ErrUnsafeDir, dir, owner, os.Geteuid())
	case fi.Mode().Perm() != 0o700:
		if !isSafeToRestrict(dir, fi) {
			return fmt.Errorf("%w: %s has mode %04o, and other users may need it; choose a directory that has mode 0700 or does not exist yet", ErrUnsafeDir, dir, fi.Mode().Perm())
		}
		return fmt.Errorf("%w: %s has mode %04o; deny access to other users with: chmod 700 %s", ErrUnsafeDir, dir, fi.Mode().Perm(), dir)
	}
	return nil
}

// isSafeToRestrict reports whether an error text may advise to run chmod 700 on dir. It
// may if other users cannot write to dir and if dir is empty, is named "holdfast" or
// contains the lock of one of Holdfast's sockets. For every other directory the advice
// would be dangerous, because a user might follow it for /tmp or /etc.
func isSafeToRestrict(dir string, fi fs.FileInfo) bool {
	if fi.Mode().Perm()&0o002 != 0 || fi.Mode()&fs.ModeSticky != 0 {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && (len(entries) == 0 || filepath.Base(dir) == "holdfast" ||
		slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".sock.lock") }))
}

// checkLen returns ErrPathTooLong if the system cannot bind or connect to path. The
// system's own error would be only "invalid argument".
func checkLen(path string) error {
	if len(path) <= MaxPath {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes, and the system allows at most %d; choose a directory with a shorter path (--dir or HOLDFAST_DIR)", ErrPathTooLong, path, len(path), MaxPath)
}

// tmpPath returns the temporary name under which bind makes the socket. The name depends
// only on the path, so that the next holder of the lock removes the temporary socket of a
// process that died between bind and rename.
func (l *Listener) tmpPath() string {
	dir, base := filepath.Split(l.path)
	sum := sha256.Sum256([]byte(base))
	return dir + ".tmp" + hex.EncodeToString(sum[:3])
}

// removeStale removes a socket from the path if no process listens on it. If a process
// does, removeStale returns an *InUseError. The caller must hold the lock.
func (l *Listener) removeStale() error {
	fi, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket; remove the file or choose another directory", l.path)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.path, Net: "unix"})
	switch {
	case err == nil:
		peer, _ := PeerOf(conn)
		return errors.Join(&InUseError{l.path, peer.PID}, conn.Close())
	case errors.Is(err, unix.EAGAIN): // a process listens, and its backlog is full
		return &InUseError{Path: l.path}
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(l.path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// bind makes a listening socket at the path and stores it in l.ln. The caller must hold
// the lock and must have called removeStale.
func (l *Listener) bind() error {
	tmp := l.tmpPath()
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return err
	}
	ln.SetUnlinkOnClose(false) // Close would unlink the path even if another socket has that name by then
	if err := l.publish(tmp); err != nil {
		return errors.Join(err, ln.Close(), os.Remove(tmp))
	}
	l.ln = ln
	return nil
}

// publish sets the mode of the socket at tmp, stores the id of its file, and renames it
// to the path.
func (l *Listener) publish(tmp string) error {
	if err := os.Chmod(tmp, 0o600); err != nil {
		return err
	}
	id, err := idOf(tmp)
	if err != nil {
		return err
	}
	l.bound = id
	return os.Rename(tmp, l.path)
}

// Accept waits for the next connection of the allowed user and returns it with its peer.
// It closes connections of other users before it reads a byte from them, and continues.
// If the system has no free descriptor or memory, Accept retries until it has. After
// Close or Release the error is net.ErrClosed, and after a deadline it is
// os.ErrDeadlineExceeded.
func (l *Listener) Accept() (*net.UnixConn, Peer, error) {
	wait := firstWait
	for {
		ln := l.current()
		conn, err := ln.AcceptUnix()
		switch {
		case err == nil:
			peer, err := l.admit(conn)
			if err == nil {
				return conn, peer, nil
			}
			l.refuse(conn, peer, err)
			wait = firstWait
		case ln != l.current(): // Check has bound another socket, so Accept continues with that one
		case isShortage(err):
			select {
			case <-l.done:
			case <-time.After(wait):
			}
			wait = min(2*wait, lastWait)
		default:
			return nil, Peer{}, fmt.Errorf("accept on %s: %w", l.path, err)
		}
	}
}

// current returns the listening socket, which Check may replace.
func (l *Listener) current() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ln
}

// admit returns the peer of conn, and an error unless the peer's user is the allowed one.
func (l *Listener) admit(conn *net.UnixConn) (Peer, error) {
	peer, err := PeerOf(conn)
	if err != nil {
		return Peer{UID: -1}, fmt.Errorf("%s: the kernel did not tell the user of the peer: %w", l.path, err)
	}
	if want := l.opts.uid(); peer.UID != want {
		return peer, &PeerError{l.path, peer, want}
	}
	return peer, nil
}

// uid returns the allowed user. UID 0 means the user of this process. If that user is root,
// both meanings of 0 are the same. Another user's process cannot allow only root.
func (o Options) uid() int {
	if o.UID == 0 {
		return os.Geteuid()
	}
	return o.UID
}

// refuse closes a connection and calls OnRefuse. The bytes that the peer has sent are
// still unread, so the kernel reports a reset to the peer instead of an ordinary end.
func (l *Listener) refuse(conn *net.UnixConn, peer Peer, err error) {
	_ = conn.Close() // the connection is dropped, so a failure changes nothing
	if l.opts.OnRefuse != nil {
		l.opts.OnRefuse(peer, err)
	}
}

// isShortage reports whether err is a shortage of a system resource, which may end
// without action of this process.
func isShortage(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// SetDeadline makes each Accept fail at t. The zero time removes the deadline. The kernel
// keeps new connections in its backlog in the meantime.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	return l.ln.SetDeadline(t)
}

// Check binds the path again if the socket's file is gone or was replaced, as a cleaner
// of temporary directories may do, and reports whether it bound. It also takes the lock
// again if a process that shared it has unlocked it. If the whole directory is gone, Check
// makes it again, provided that CheckParents permits it. Accepted connections
// are not affected. The owner must call Check from time to time. If two processes hold one
// listener during a handoff, only one of them may call it.
//
// Check returns an *InUseError if another process listens on the path or holds the lock.
// That can happen only if the lock's file was removed as well, or if the lock was
// unlocked.
func (l *Listener) Check() (rebound bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, net.ErrClosed
	}
	if err := l.check(&rebound); err != nil {
		return rebound, fmt.Errorf("check %s: %w", l.path, err)
	}
	return rebound, nil
}

func (l *Listener) check(rebound *bool) error {
	if err := restoreDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	if err := l.relock(); err != nil {
		return err
	}
	// After a handoff that was taken back, the file names the pid of another process.
	// The write also renews the modification time, so that a cleaner does not remove the file.
	writePID(l.lock)
	if id, err := idOf(l.path); err == nil && id == l.bound {
		return nil
	}
	if err := l.removeStale(); err != nil {
		return err
	}
	old := l.ln
	if err := l.bind(); err != nil {
		return err
	}
	*rebound = true
	return errors.Join(l.ln.SetDeadline(l.deadline), old.Close())
}

// restoreDir makes dir again if it is missing, and returns what CheckDir returns for it. It makes nothing if
// CheckParents fails, because another user could then replace the directory.
func restoreDir(dir string) error {
	err := CheckDir(dir)
	if !errors.Is(err, fs.ErrNotExist) || CheckParents(dir) != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made it
		return err
	}
	return CheckDir(dir)
}

// Close stops accepting, removes the socket if its file is still the one that l bound,
// and unlocks the lock for every process that has a duplicate of it. Accepted
// connections stay open.
func (l *Listener) Close() error {
	return l.closeOnce(func() error {
		var err error
		if id, e := idOf(l.path); e == nil && id == l.bound {
			err = os.Remove(l.path)
		}
		return errors.Join(err, l.ln.Close(), l.unlock())
	})
}

// Release closes the descriptors of this process. Socket and lock stay with the process
// that has adopted the Files.
func (l *Listener) Release() error {
	return l.closeOnce(func() error { return errors.Join(l.ln.Close(), l.lock.Close()) })
}

// closeOnce calls end unless l is closed already.
func (l *Listener) closeOnce(end func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	return end()
}
