package machine

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// TemporaryPrefix begins the names of the files that ReplaceFile and CreateFile write first. If the machine
// loses its power meanwhile, such a file stays behind; it has no meaning.
const TemporaryPrefix = ".new-"

// PrivateMode is the mode of a file that only its owner may read and write. ReplaceFile and CreateFile change no mode for
// it, so that they work on a file system that cannot, as some network file systems.
const PrivateMode fs.FileMode = 0o600

// ReplaceFile writes content to the file at path, with the permissions of mode. At every moment the file has either its
// old content or all of the new one; after ReplaceFile it has the new one, also if the machine loses its power.
// A process that has opened the old file keeps it.
func ReplaceFile(path string, content io.Reader, mode fs.FileMode) error {
	return writeFile(path, content, mode, os.Rename)
}

// CreateFile is like ReplaceFile, but returns an error that is fs.ErrExist if there is a file at path.
func CreateFile(path string, content io.Reader, mode fs.FileMode) error {
	return writeFile(path, content, mode, os.Link)
}

// writeFile writes a temporary file, and has place give it its name.
func writeFile(path string, content io.Reader, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, TemporaryPrefix+"*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // a rename has removed it
	_, err = io.Copy(f, content)
	if mode != PrivateMode { // CreateTemp has made it private
		err = errors.Join(err, f.Chmod(mode))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// RemoveFile removes the file at path, if there is one, so that it stays removed if the machine loses its power.
func RemoveFile(path string) error {
	if err := os.Remove(path); err != nil {
		if _, missing := os.Lstat(path); errors.Is(missing, fs.ErrNotExist) { // the error of a read-only file system is another one
			return nil
		}
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable, as far as the system can.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) {
		err = nil // Windows, and some network file systems
	}
	return errors.Join(err, f.Close())
}
