package past

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A disk changes files and directories. Tests record the changes, and return errors.
type disk interface {
	MakeDir(path string) error             // fails with fs.ErrExist if the path exists
	Create(path string) (file, error)      // fails with fs.ErrExist if the path exists
	OpenToWrite(path string) (file, error) // opens an existing file
	Rename(from, to string) error          // replaces the file at to, if there is one
	Remove(path string) error              // removes a file or an empty directory
	SyncDir(path string) error             // makes the entries of a directory durable
}

// A file is a file that is being written.
type file interface {
	io.WriterAt
	Truncate(size int64) error
	Sync() error
	Close() error
}

// systemDisk is the disk of the system.
type systemDisk struct{}

func (systemDisk) MakeDir(path string) error { return os.Mkdir(path, 0o700) }

func (systemDisk) Create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err // a nil *os.File must not become a file that is not nil
	}
	return systemFile{f}, nil
}

func (systemDisk) OpenToWrite(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (systemDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (systemDisk) Remove(path string) error     { return os.Remove(path) }
func (systemDisk) SyncDir(path string) error    { return syncDir(path) }

// A systemFile is a file of the system.
type systemFile struct{ *os.File }

// Sync also fails if the file system has become read-only under the open file, as after sysrq-u: the kernel then
// accepts writes and syncs, and never writes them to the disk.
func (f systemFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return checkWritable(filepath.Dir(f.Name())) // the file may have been renamed
}

// makeDirs creates a directory and the missing ones above it, and makes each entry durable.
func makeDirs(d disk, path string) error {
	err := d.MakeDir(path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	parent := filepath.Dir(path)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err := makeDirs(d, parent); err != nil {
			return err
		}
		err = ignoreExisting(d.MakeDir(path))
	}
	if err != nil {
		return err
	}
	return d.SyncDir(parent)
}

func ignoreExisting(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// draftSuffix ends the name of a file that is written to replace another one. A crash may leave
// such a file behind; it has no meaning.
const draftSuffix = "~"

// writeDraft writes the file that will replace path, syncs it, and renames it. The returned file
// is open. The caller must then sync the directory.
func writeDraft(d disk, path string, content []byte) (file, error) {
	draft := path + draftSuffix
	if err := ignoreMissing(d.Remove(draft)); err != nil {
		return nil, err
	}
	f, err := d.Create(draft)
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.Rename(draft, path)
	}
	if err != nil {
		_ = d.Remove(draft) // the draft has no meaning, and the next one replaces it
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// replaceFile replaces the content of path. After a crash, path has either the old or the new
// content.
func replaceFile(d disk, path string, content []byte) error {
	f, err := writeDraft(d, path, content)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), d.SyncDir(filepath.Dir(path)))
}

// A dirLock is held by the only process that may write to a directory.
type dirLock struct {
	path string
	file *os.File
}

// lockDir locks a directory that exists. It returns ErrInUse if the directory is locked.
func lockDir(path string) (*dirLock, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("past: %w", err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("past: lock %s: %w", path, err), f.Close())
	}
	return &dirLock{path, f}, nil
}

// isCurrent reports whether the directory is still at its path.
func (l *dirLock) isCurrent() bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	present, err := os.Stat(l.path)
	return err == nil && os.SameFile(mine, present)
}

// Close unlocks the directory.
func (l *dirLock) Close() { _ = l.file.Close() }
