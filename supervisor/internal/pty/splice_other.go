//go:build !linux

package pty

import "errors"

// SpliceFrom returns an error that matches errors.ErrUnsupported, because only Linux can
// splice. The caller must use TryWrite, and after a crash it is not known how much of its input
// was accepted.
func (p *PTY) SpliceFrom(pipe uintptr, n int) (accepted int, err error) {
	return 0, errors.ErrUnsupported
}
