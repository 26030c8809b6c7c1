package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// CanRelease tells whether Release works on this system.
const CanRelease = true

// Release frees the memory of n bytes of a memory file from at on, which become zeros. The length of
// the file does not change.
func Release(file *os.File, at, n int64) error {
	return Control(file, func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	})
}
