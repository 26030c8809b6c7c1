//go:build !unix

package config

import (
	"errors"
	"io/fs"
)

// Who may read the file is its access list's business here.
func checkSecretFile(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return nil
}
