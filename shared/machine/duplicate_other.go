//go:build !unix

package machine

import (
	"errors"
	"os"
	"syscall"
)

// Duplicate returns errors.ErrUnsupported.
func Duplicate(syscall.Conn, string) (*os.File, error) { return nil, errors.ErrUnsupported }
