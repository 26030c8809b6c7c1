//go:build !unix

package keep

import "errors"

// PID is 0: there are no keepers here.
func PID(string) (int, error) { return 0, nil }

// Mark fails.
func Mark(string) error { return errors.ErrUnsupported }

// GoOn fails.
func (*Held) GoOn(string) error { return errors.ErrUnsupported }
