//go:build !unix

package machine

// Background has no effect on this system.
func Background() error { return nil }
