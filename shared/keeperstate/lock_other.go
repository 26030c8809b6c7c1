//go:build !unix

package keeperstate

import (
	"errors"
	"os"
	"time"
)

// PID returns 0, because this system has no keepers.
func PID(string) (int, error) { return 0, nil }

// Claim returns an error, because this system has no keepers.
func Claim(string, time.Duration) (*os.File, error) { return nil, errors.ErrUnsupported }

// Choose returns an error, because this system has no keepers.
func Choose(string, string) (int, error) { return 0, errors.ErrUnsupported }

// CancelChoice returns false, because this system has no keepers.
func CancelChoice(string) bool { return false }
