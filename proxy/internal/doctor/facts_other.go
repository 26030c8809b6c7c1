//go:build !unix

package doctor

import "errors"

func writable(string) error { return nil }

// Files returns errors.ErrUnsupported.
func Files() (open, limit uint64, err error) { return 0, 0, errors.ErrUnsupported }

// Locked returns errors.ErrUnsupported.
func Locked(string) (bool, error) { return false, errors.ErrUnsupported }

func openPtmx(string) error { return errors.ErrUnsupported }
