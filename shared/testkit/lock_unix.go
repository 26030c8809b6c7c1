//go:build unix

package testkit

import (
	"os"
	"syscall"
)

// lockFile waits until no other open file has locked f, and locks it until it is closed.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
