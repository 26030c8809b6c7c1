//go:build !linux

package reexec

import (
	"errors"
	"os"
)

// newMemory is a file without a name: this system has none in memory.
func newMemory() (*os.File, error) {
	file, err := os.CreateTemp("", "holdfast-manifest-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
