//go:build !unix

package agent

import "os"

// isOwn always returns false, because agents do not use sockets on this system.
func isOwn(os.FileInfo) bool { return false }
