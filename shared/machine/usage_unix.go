//go:build unix

package machine

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Files returns how many descriptors this process has open, and how many it may have.
func Files() (open, limit uint64, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, os.NewSyscallError("getrlimit", err)
	}
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return 0, 0, err
	}
	return uint64(len(entries) - 1), r.Cur, nil // ReadDir's own descriptor is closed by now
}

// FileSize returns how long a file may become by writes of this process (RLIMIT_FSIZE). Files in memory
// are subject to it, too.
func FileSize() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &r); err != nil {
		return math.MaxUint64
	}
	return r.Cur
}
