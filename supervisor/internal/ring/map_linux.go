package ring

import (
	"errors"
	"os"

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

// seals make the file's length final, and forbid to change the seals, because an access to a
// mapping behind the end of a file that was truncated would kill this process with SIGBUS.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newFile returns an anonymous memory file of n bytes, with the seals.
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
	return machine.Control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		return os.NewSyscallError("fcntl", err)
	})
}

// checkSeals returns an error if the file's length can still change.
func checkSeals(f *os.File) error {
	return machine.Control(f, func(fd int) error {
		has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err == nil && has&seals != seals {
			err = errors.New("file is not sealed against truncation")
		}
		return err
	})
}
