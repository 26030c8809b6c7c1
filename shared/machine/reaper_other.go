//go:build !linux

package machine

// Reap has no effect, because this system gives all orphans to its first process.
func Reap() error { return nil }

// Name has no effect, because programs are started by their paths on this system.
func Name(string) error { return nil }
