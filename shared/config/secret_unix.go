//go:build unix

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func checkSecretFile(fi fs.FileInfo) error {
	owner := int(fi.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !fi.Mode().IsRegular():
		return errors.New("not a regular file")
	case owner != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d and not to us, uid %d", owner, os.Geteuid())
	case fi.Mode().Perm()&0o177 != 0:
		return fmt.Errorf("it has mode %04o, and others may have read it: put another secret into a file of mode 0600", fi.Mode().Perm())
	}
	return nil
}
