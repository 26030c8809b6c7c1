//go:build !unix

package config

import (
	"errors"
	"io/fs"
)

// checkSecretFile checks no rights, because Windows keeps them in the access list of the file.
func checkSecretFile(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return errors.New("it is not a regular file: put the secret into an ordinary file")
	}
	return nil
}
