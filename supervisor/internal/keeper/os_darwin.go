package keeper

import (
	"os"

	"golang.org/x/sys/unix"
)

// becomeReaper: orphans go to launchd here.
func becomeReaper() error { return nil }

// programOf: a program can only be started by its path here.
func programOf(int) int { return 0 }

func programPath(_ int, path string) string { return path }

func memoryFile() (*os.File, error) {
	f, err := os.CreateTemp("", "keeper")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func nameProcess() {}

func raiseFiles(limit unix.Rlimit) error {
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
}
