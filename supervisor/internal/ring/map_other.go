//go:build unix && !linux

package ring

import (
	"errors"
	"os"

	"holdfast/shared/machine"
)

// newFile returns an unlinked file of n bytes.
func newFile(n int) (*os.File, error) {
	f, err := machine.MemoryFile("holdfast-ring")
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(n)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkSeals accepts every file, because there are no seals here: a process that is given the
// file must not truncate it.
func checkSeals(*os.File) error { return nil }
