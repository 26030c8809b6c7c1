//go:build !unix

package doctor

import "errors"

func writable(string) error { return nil }

// Locked returns errors.ErrUnsupported.
func Locked(string) (bool, error) { return false, errors.ErrUnsupported }

func openPtmx(string) error { return errors.ErrUnsupported }
