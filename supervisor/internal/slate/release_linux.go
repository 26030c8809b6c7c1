package slate

import (
	"os"

	"golang.org/x/sys/unix"
)

// release gives the memory of a part of the file back.
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
