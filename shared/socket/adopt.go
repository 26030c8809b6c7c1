//go:build unix

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files returns duplicates of the listening socket and of its lock, in this
// order, for SendFiles or for an exec. The caller closes them, and calls
// Release once the other process has adopted them.
//
// Do not call Fd on them, nor let os/exec do it: it would make the listener
// blocking in both processes.
func (l *Listener) Files() ([]*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	ln, err := Dup(l.ln, l.path)
	if err != nil {
		return nil, err
	}
	lock, err := Dup(l.lock, l.lock.Name())
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return []*os.File{ln, lock}, nil
}

// Dup duplicates the descriptor of a connection, a listener or a file, as Files
// does, and with the same care to be taken.
func Dup(c syscall.Conn, name string) (*os.File, error) {
	var f *os.File
	err := control(c, func(fd int) error {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			f = os.NewFile(uintptr(n), name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", name, err)
	}
	return f, nil
}

// Adopt makes a Listener of the Files of another one, which lived in another
// process or before an exec. The files are Adopt's from then on, even if it
// fails.
func Adopt(path string, files []*os.File, opts Options) (*Listener, error) {
	l := &Listener{path: path, opts: opts, done: make(chan struct{})}
	err := l.adopt(files)
	for _, f := range files {
		_ = f.Close() // l has duplicates
	}
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", path, err)
	}
	return l, nil
}

func (l *Listener) adopt(files []*os.File) error {
	if len(files) != 2 {
		return fmt.Errorf("%d files, expected the listener and its lock", len(files))
	}
	if err := CheckDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	ln, err := net.FileListener(files[0]) // duplicates it close-on-exec and makes it non-blocking
	if err != nil {
		return err
	}
	var ok bool
	if l.ln, ok = ln.(*net.UnixListener); !ok {
		return errors.Join(fmt.Errorf("a listener on %s", ln.Addr().Network()), ln.Close())
	}
	l.ln.SetUnlinkOnClose(false)
	if l.lock, err = Dup(files[1], lockPath(l.path)); err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := l.adoptNames(); err != nil {
		return errors.Join(err, l.ln.Close(), l.lock.Close())
	}
	return nil
}

// adoptNames checks that the lock is the path's and is held, and notes which
// file the socket is. A name that is gone is Check's to mend.
func (l *Listener) adoptNames() error {
	// A lock that this very description holds is granted again; one that
	// another description holds is not.
	if err := flock(l.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &InUseError{l.path, readPID(l.lock)}
		}
		return err
	}
	if id, err := idOf(lockPath(l.path)); err == nil {
		if fi, err := l.lock.Stat(); err != nil || id != idOfInfo(fi) {
			return fmt.Errorf("the file passed as %s is another one", lockPath(l.path))
		}
	}
	if err := writePID(l.lock); err != nil {
		return err
	}
	id, err := idOf(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.bound = id
	return nil
}
