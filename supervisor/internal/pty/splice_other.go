//go:build !linux

package pty

import "errors"

// SpliceFrom exists on Linux only: it matches errors.ErrUnsupported here, and
// input goes by TryWrite, which after a crash leaves nobody who knows how much
// of it was typed.
func (p *PTY) SpliceFrom(pipe uintptr, n int) (typed int, err error) {
	return 0, errors.ErrUnsupported
}
