//go:build !unix

package machine

// UseOwnFiles does nothing, because this system has no umask.
func UseOwnFiles() {}
