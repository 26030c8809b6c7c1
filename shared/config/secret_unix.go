//go:build unix

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkSecretFile returns an error unless the file is regular, belongs to the user of this
// process, and has no rights for other users.
func checkSecretFile(fi fs.FileInfo) error {
	owner := int(fi.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !fi.Mode().IsRegular():
		return errors.New("it is not a regular file: put the secret into a file of mode 0600")
	case owner != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d instead of the user of this process, uid %d", owner, os.Geteuid())
	case fi.Mode().Perm()&0o177 != 0:
		return fmt.Errorf("it has mode %04o, so other users may know the secret: put a new secret into a file of mode 0600", fi.Mode().Perm())
	}
	return nil
}
