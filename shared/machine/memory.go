package machine

import (
	"errors"
	"os"
)

// MemoryFileWith returns a file of MemoryFile that holds data.
func MemoryFileWith(name string, data []byte) (*os.File, error) {
	f, err := MemoryFile(name)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
