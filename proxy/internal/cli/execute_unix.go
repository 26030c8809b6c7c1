//go:build unix

package cli

import (
	"os"
	"syscall"
)

// Execute executes a program in this process, with argv[0] as its name. It returns only if that fails.
func Execute(path string, argv []string) error {
	err := syscall.Exec(path, argv, os.Environ())
	return &os.PathError{Op: "execute", Path: path, Err: err}
}

// lockFile locks a file until it is closed, and reports whether no other process has locked it. On a file system without
// locks it always returns true.
func lockFile(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK
}
