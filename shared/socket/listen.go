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

// Waits between tries when the system is short of something, doubling from the
// first to the last.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
)

// A Listener is a bound socket and the lock it is bound under. Any goroutine
// may call its methods.
type Listener struct {
	path string
	opts Options
	done chan struct{} // closed by Close and Release

	mu       sync.Mutex
	ln       *net.UnixListener
	lock     *os.File
	bound    fileID // the socket's file; zero if it is not known
	deadline time.Time
	closed   bool
}

// Listen binds path, which must be absolute. It returns ErrPathTooLong,
// ErrUnsafeDir, or an *InUseError where another process has the path.
//
// The order is the contract: the lock first, so that of all who start at once
// one wins; then, since an older program may not know the lock, a connect, so
// that a socket on which anybody answers is left alone; only then is what lies
// there unlinked. The socket is bound under another name and renamed, so that
// under its own it never lacks its mode.
func Listen(path string, opts Options) (*Listener, error) {
	l := &Listener{path: path, opts: opts, done: make(chan struct{})}
	if err := l.listen(); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func (l *Listener) listen() error {
	if !filepath.IsAbs(l.path) {
		return errors.New("the path must be absolute")
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
	if err := errors.Join(l.clear(), writePID(lock)); err != nil {
		return errors.Join(err, l.unlock())
	}
	if err := l.bind(); err != nil {
		return errors.Join(err, l.unlock())
	}
	return nil
}

// Path returns the path as it was given to Listen or Adopt.
func (l *Listener) Path() string { return l.path }

// CheckDir returns ErrUnsafeDir unless dir is a directory itself and not a
// link to one, belongs to us, and is closed to everybody else.
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
		return fmt.Errorf("%w: %s is no directory; choose another one", ErrUnsafeDir, dir)
	case owner != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to uid %d and not to us, uid %d; choose another one", ErrUnsafeDir, dir, owner, os.Geteuid())
	case fi.Mode().Perm() != 0o700:
		if !looksOurs(dir, fi) {
			return fmt.Errorf("%w: %s has mode %04o, and is not for us alone; choose a directory that has mode 0700 or does not exist yet", ErrUnsafeDir, dir, fi.Mode().Perm())
		}
		return fmt.Errorf("%w: %s has mode %04o; close it to others with: chmod 700 %s", ErrUnsafeDir, dir, fi.Mode().Perm(), dir)
	}
	return nil
}

// looksOurs reports whether to close a directory to others would harm nobody: it
// is empty, is named "holdfast" or has the lock of a socket of ours, and others cannot
// write to it. What is advised about another one, such as /tmp or /etc, somebody might do.
func looksOurs(dir string, fi fs.FileInfo) bool {
	if fi.Mode().Perm()&0o002 != 0 || fi.Mode()&fs.ModeSticky != 0 {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && (len(entries) == 0 || filepath.Base(dir) == "holdfast" ||
		slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".sock.lock") }))
}

// checkLen fails for a path that the system cannot bind or connect to. Its own
// answer would be "invalid argument".
func checkLen(path string) error {
	if len(path) <= MaxPath {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes and at most %d are possible; choose a shorter directory (--dir or HOLDFAST_DIR)", ErrPathTooLong, path, len(path), MaxPath)
}

// tmpPath is where the socket is bound before it gets its name. It is the same
// for every holder of the lock, so that what one that died left is found.
func (l *Listener) tmpPath() string {
	dir, base := filepath.Split(l.path)
	sum := sha256.Sum256([]byte(base))
	return dir + ".tmp" + hex.EncodeToString(sum[:3])
}

// clear removes the socket that a process which died left at the path. The
// caller holds the lock.
func (l *Listener) clear() error {
	fi, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is no socket; remove it", l.path)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.path, Net: "unix"})
	switch {
	case err == nil:
		peer, _ := PeerOf(conn)
		return errors.Join(&InUseError{l.path, peer.PID}, conn.Close())
	case errors.Is(err, unix.EAGAIN): // somebody listens whose backlog is full
		return &InUseError{Path: l.path}
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(l.path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// bind makes the socket. The caller holds the lock and has cleared the path.
func (l *Listener) bind() error {
	tmp := l.tmpPath()
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return err
	}
	ln.SetUnlinkOnClose(false) // it would unlink whatever has the name by then
	if err := l.name(tmp); err != nil {
		return errors.Join(err, ln.Close(), os.Remove(tmp))
	}
	l.ln = ln
	return nil
}

// name gives the socket bound at tmp its mode, then its name.
func (l *Listener) name(tmp string) error {
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

// Accept returns the next connection of the user let through, and who it is.
// Others are refused before a byte of theirs is read, and accepting goes on; it
// goes on, too, when the system is out of descriptors or memory, once it has
// some again. After Close or Release the error is net.ErrClosed, after a
// deadline os.ErrDeadlineExceeded.
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
		case ln != l.current(): // Check has bound another one
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

func (l *Listener) current() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ln
}

// admit says who has connected, and whether it may.
func (l *Listener) admit(conn *net.UnixConn) (Peer, error) {
	peer, err := PeerOf(conn)
	if err != nil {
		return Peer{UID: -1}, fmt.Errorf("%s: the other side's user is unknown: %w", l.path, err)
	}
	if want := l.opts.uid(); peer.UID != want {
		return peer, &PeerError{l.path, peer, want}
	}
	return peer, nil
}

// uid returns the user that is let through. A process of root's lets root
// through, so that 0 can mean "our own" without a loss.
func (o Options) uid() int {
	if o.UID == 0 {
		return os.Geteuid()
	}
	return o.UID
}

// refuse ends a connection. What the peer has sent is still unread, so that
// the kernel tells it of a reset and not of an end.
func (l *Listener) refuse(conn *net.UnixConn, peer Peer, err error) {
	_ = conn.Close() // there is nobody to tell
	if l.opts.OnRefuse != nil {
		l.opts.OnRefuse(peer, err)
	}
}

// isShortage tells errors that pass by themselves.
func isShortage(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// SetDeadline makes Accept fail at t, now and later; the zero time takes that
// back. Connections wait in the kernel's backlog meanwhile.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	return l.ln.SetDeadline(t)
}

// Check binds the path again if it is gone or no longer ours, as after a
// cleaner of temporary directories, and reports whether it did. Connections
// already accepted are not touched. The owner calls it from time to time; of
// two processes that hold one listener, only one does.
//
// It returns an *InUseError where another process has taken the path: only
// possible after the lock's file was removed, too.
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
	if err := CheckDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	if err := l.relock(); err != nil {
		return err
	}
	// The number is wrong after a handoff that was taken back. Writing it also
	// keeps the file young, so that cleaners leave it.
	if err := writePID(l.lock); err != nil {
		return err
	}
	if id, err := idOf(l.path); err == nil && id == l.bound {
		return nil
	}
	if err := l.clear(); err != nil {
		return err
	}
	old := l.ln
	if err := l.bind(); err != nil {
		return err
	}
	*rebound = true
	return errors.Join(l.ln.SetDeadline(l.deadline), old.Close())
}

// Close stops accepting, removes the socket if it is still ours, and gives up
// the lock, here and wherever else it was handed to. Connections stay.
func (l *Listener) Close() error {
	return l.shut(func() error {
		var err error
		if id, e := idOf(l.path); e == nil && id == l.bound {
			err = os.Remove(l.path)
		}
		return errors.Join(err, l.ln.Close(), l.unlock())
	})
}

// Release closes our descriptors and leaves socket and lock to the process
// that Files were handed to.
func (l *Listener) Release() error {
	return l.shut(func() error { return errors.Join(l.ln.Close(), l.lock.Close()) })
}

// shut runs end, once.
func (l *Listener) shut(end func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	return end()
}
