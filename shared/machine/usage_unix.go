//go:build unix

package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Used returns what is used now.
func Used() Usage {
	var u Usage
	var limit unix.Rlimit
	if open, err := os.ReadDir("/dev/fd"); err == nil {
		u.Files = len(open) - 1 // the directory's own
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		u.MaxFiles = int(min(limit.Cur, 1<<31-1))
	}
	u.addKernels()
	return u
}
