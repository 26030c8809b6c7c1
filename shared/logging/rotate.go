package logging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// A rotated is a log file, to which several processes may write. If a write would make the file larger than maxBytes, the
// file gets another name and a new file is made. A write is never split between two files. If a full disk
// takes only a part of a line, that line is ended before the next one begins.
type rotated struct {
	path     string
	maxBytes int64
	keep     int

	mu     sync.Mutex
	file   *os.File
	size   int64
	isTorn bool // the last byte of the file ends no line
	asked  time.Time
}

// askEvery is how often Write asks whether another process has renamed or removed the file.
const askEvery = time.Second

func openRotated(path string, maxBytes int64, keep int) (*rotated, error) {
	r := &rotated{path: path, maxBytes: maxBytes, keep: keep}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// open opens the file at the path again. If it fails, the old file stays in use.
func (r *rotated) open() error {
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err == nil && fi.Mode().Perm()&0o077 != 0 {
		err = f.Chmod(0o600) // the file may have been made by a redirection in a shell
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	last := []byte{'\n'}
	if fi.Size() > 0 {
		_, _ = f.ReadAt(last, fi.Size()-1) // if it fails, the line before is taken for a whole one
	}
	old := r.file
	r.file, r.size, r.isTorn = f, fi.Size(), last[0] != '\n'
	if old != nil {
		return old.Close()
	}
	return nil
}

// Write appends p. If the rotation fails, Write appends to the old file and returns the error,
// because a log that is too large is better than a missing line.
func (r *rotated) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rotation error
	if r.size > 0 && r.size+int64(len(p)) > r.maxBytes {
		rotation = r.rotate()
	} else if now := time.Now(); now.Sub(r.asked) >= askEvery {
		if r.asked = now; !r.isCurrent() {
			rotation = r.open()
		}
	}
	if r.isTorn {
		n, err := r.file.Write([]byte{'\n'})
		r.size += int64(n)
		if r.isTorn = n == 0; r.isTorn {
			return 0, errors.Join(err, rotation)
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	r.isTorn = n > 0 && p[n-1] != '\n'
	return n, errors.Join(err, rotation)
}

// rotate renames PATH to PATH.1, PATH.1 to PATH.2 and so on, and opens a new file. If another
// process has renamed the files already, rotate only opens the new file.
func (r *rotated) rotate() error {
	if r.isCurrent() {
		for i := r.keep; i > 0; i-- {
			if err := os.Rename(r.name(i-1), r.name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("rotate %s: %w", r.path, err)
			}
		}
	}
	return r.open()
}

// name returns the path of the file, or of the i-th rotated file if i is not 0.
func (r *rotated) name(i int) string {
	if i == 0 {
		return r.path
	}
	return fmt.Sprintf("%s.%d", r.path, i)
}

// isCurrent reports whether the open file is still the file at the path.
func (r *rotated) isCurrent() bool {
	open, err := r.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(r.path)
	return err == nil && os.SameFile(open, named)
}

func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}
