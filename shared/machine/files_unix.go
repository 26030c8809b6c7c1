//go:build unix

package machine

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// FilesLeft is how many files this process may still open; a lot where that is
// not known.
func FilesLeft() int {
	var limit unix.Rlimit
	open, err := os.ReadDir("/dev/fd")
	if err != nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt32)) - len(open)
}
