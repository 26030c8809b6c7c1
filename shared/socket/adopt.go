//go:build unix

package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"holdfast/shared/machine"
)

// Files returns duplicates of the listening socket and of its lock file, in this
// order, for SendFiles or for an exec. The caller must close the duplicates, and must
// call Release after the other process has adopted them.
//
// The caller must not call Fd on a duplicate and must not pass it to os/exec, which
// calls Fd. Fd makes the socket blocking in both processes, because they share it.
func (l *Listener) Files() ([]*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	ln, err := machine.Duplicate(l.ln, l.path)
	if err != nil {
		return nil, err
	}
	lock, err := machine.Duplicate(l.lock, l.lock.Name())
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return []*os.File{ln, lock}, nil
}

// Adopt makes a Listener from the two Files of a Listener of another process, or of the
// same process before an exec. Adopt closes the files, even if it fails. It fails if the
// directory is not private, unless opts.AnyDir is set.
func Adopt(path string, files []*os.File, opts Options) (*Listener, error) {
	l := &Listener{path: path, opts: opts, done: make(chan struct{})}
	err := l.adopt(files)
	for _, f := range files {
		_ = f.Close() // l uses duplicates of the files
	}
	if err != nil {
		return nil, fmt.Errorf("adopt %s: %w", path, err)
	}
	return l, nil
}

func (l *Listener) adopt(files []*os.File) error {
	if len(files) != 2 {
		return fmt.Errorf("received %d files instead of 2, the listener and its lock", len(files))
	}
	if err := CheckDir(filepath.Dir(l.path)); err != nil && !l.opts.AnyDir {
		return err
	}
	ln, err := net.FileListener(files[0]) // FileListener makes a close-on-exec, non-blocking duplicate
	if err != nil {
		return err
	}
	var ok bool
	if l.ln, ok = ln.(*net.UnixListener); !ok {
		return errors.Join(fmt.Errorf("the passed listener is of network %s instead of unix", ln.Addr().Network()), ln.Close())
	}
	l.ln.SetUnlinkOnClose(false)
	if l.lock, err = machine.Duplicate(files[1], lockPath(l.path)); err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := l.adoptNames(); err != nil {
		return errors.Join(err, l.ln.Close(), l.lock.Close())
	}
	return nil
}

// adoptNames checks that the passed lock file is the file at the lock's path and that
// l holds the lock. It then stores the id of the socket's file. If a file is no longer
// at its path, adoptNames succeeds, because the next Check makes the file again.
func (l *Listener) adoptNames() error {
	if err := takeLock(l.lock, l.path); err != nil {
		return err
	}
	if id, err := idOf(lockPath(l.path)); err == nil {
		if fi, err := l.lock.Stat(); err != nil || id != idOfInfo(fi) {
			return fmt.Errorf("the passed lock is not the file %s; another process has replaced that file", lockPath(l.path))
		}
	}
	writePID(l.lock)
	id, err := idOf(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.bound = id
	return nil
}
