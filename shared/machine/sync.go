package machine

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

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
