//go:build !linux && !darwin

package pty

// AwaitWritable returns ErrUnsupported.
func (*PTY) AwaitWritable() error { return ErrUnsupported }
