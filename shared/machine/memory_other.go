//go:build !linux

package machine

import (
	"errors"
	"os"
)

// MemoryFile returns an empty file whose path is removed: this system has none in
// memory. It is only ours to read before that, too.
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
