//go:build !linux

package machine

// Reap does nothing: orphans go to the first process here.
func Reap() error { return nil }

// Name does nothing: a program is started by its path here.
func Name(string) error { return nil }
