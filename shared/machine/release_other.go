//go:build !linux

package machine

import (
	"errors"
	"os"
)

// CanRelease tells whether Release works on this system.
const CanRelease = false

// Release does nothing: the file keeps the memory that it has used.
func Release(*os.File, int64, int64) error { return errors.ErrUnsupported }
