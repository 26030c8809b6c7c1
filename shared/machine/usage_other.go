//go:build !unix

package machine

import (
	"errors"
	"math"
)

// Files returns errors.ErrUnsupported.
func Files() (open, limit uint64, err error) { return 0, 0, errors.ErrUnsupported }

// FileSize returns the largest number, because this system has no limit for the length of a file.
func FileSize() uint64 { return math.MaxUint64 }
