//go:build unix

package past

import (
	"errors"
	"os"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkWritable returns EROFS if a directory is on a read-only file system. It is a variable, because tests have none.
var checkWritable = func(path string) error {
	if err := unix.Access(path, unix.W_OK); errors.Is(err, unix.EROFS) {
		return &os.PathError{Op: "sync", Path: path, Err: err}
	}
	return nil // also if the directory was removed
}

// lockFile locks the file until it is closed.
func lockFile(f *os.File) error {
	err := machine.Control(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
