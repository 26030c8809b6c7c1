//go:build unix

package cli

import (
	"os"
	"syscall"
)

// execute executes a program in this process, with argv[0] as its name. It returns only if that fails.
func execute(path string, argv []string) error {
	err := syscall.Exec(path, argv, os.Environ())
	return &os.PathError{Op: "execute", Path: path, Err: err}
}
