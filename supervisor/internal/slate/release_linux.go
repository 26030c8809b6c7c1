package slate

import (
	"os"

	"golang.org/x/sys/unix"
)

// release frees the memory of n bytes of the file from at on. The length of the file does not
// change.
func release(file *os.File, at, n int64) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	})
	if err == nil {
		err = failed
	}
	return err
}
