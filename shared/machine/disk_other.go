//go:build !linux

package machine

// WaitsForDisk returns false, because this system does not tell.
func WaitsForDisk() bool { return false }
