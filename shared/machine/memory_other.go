//go:build !linux

package machine

import (
	"errors"
	"os"
)

// MemoryFile returns an empty temporary file without a path, because this system has no files in
// memory. Before the path is removed, only the user can open the file.
func MemoryFile(name string) (*os.File, error) {
	f, err := os.CreateTemp("", name+"-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
