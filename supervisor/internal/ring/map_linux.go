package ring

import (
	"errors"
	"os"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// seals keep the file's length as it is, and themselves: behind the end of a
// file that was cut under a mapping, a look at it would kill us.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newFile returns an anonymous memory file of n bytes.
func newFile(n int) (*os.File, error) {
	f, err := machine.MemoryFile("holdfast-ring")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(int64(n)), seal(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func seal(f *os.File) error {
	return control(f, func(fd uintptr) error {
		_, err := unix.FcntlInt(fd, unix.F_ADD_SEALS, seals)
		return os.NewSyscallError("fcntl", err)
	})
}

// checkSeals returns an error unless the file's length is final.
func checkSeals(f *os.File) error {
	return control(f, func(fd uintptr) error {
		has, err := unix.FcntlInt(fd, unix.F_GET_SEALS, 0)
		if err == nil && has&seals != seals {
			err = errors.New("not sealed")
		}
		return err
	})
}
