//go:build !unix

package machine

import "errors"

// Files returns errors.ErrUnsupported.
func Files() (open, limit uint64, err error) { return 0, 0, errors.ErrUnsupported }
