//go:build !linux

package handoff

import (
	"errors"
	"os"
)

// recordFile has no name any more; it is only ours to read before that, too.
func recordFile(record []byte) (*os.File, error) {
	f, err := os.CreateTemp("", "holdfast-record-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return fill(f, record)
}
