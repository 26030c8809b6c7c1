//go:build !unix

package keep

import (
	"errors"
	"os"
	"time"
)

// PID is 0: there are no keepers here.
func PID(string) (int, error) { return 0, nil }

// Mark fails.
func Mark(string) error { return errors.ErrUnsupported }

// Claim fails.
func Claim(string, time.Duration) (*os.File, error) { return nil, errors.ErrUnsupported }

// Choose fails.
func Choose(string, string) (int, error) { return 0, errors.ErrUnsupported }

// Forget has nothing to forget.
func Forget(string) bool { return false }
