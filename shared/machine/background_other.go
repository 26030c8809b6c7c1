//go:build !unix

package machine

// Background does nothing here.
func Background() error { return nil }
