package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/shared/rawio"
)

// pipeBytes is what a pipe holds: about what a terminal takes while nobody
// reads it (measured: 14 to 19 KB), so that what need not wait needs no queue. A
// larger one types no faster, and a user's pipes share 16,384 pages
// (fs.pipe-user-pages-soft), which a thousand of the default's 16 would use up
// and leave all later ones of the user, those of shells, with two.
const pipeBytes = 16 << 10

// newPipe returns a pipe in one descriptor, open both ways: half as many for a
// thousand sessions, and no writer ever finds it closed. It returns -1 where
// /proc is not mounted or closed to us.
func newPipe() (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe2", err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", ends[0]), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, unix.Close(ends[0]), unix.Close(ends[1])); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
			return -1, nil
		}
		return -1, fmt.Errorf("open pipe: %w", err)
	}
	return fd, nil
}

// setUpPipe returns how many bytes are in the pipe. The system may not let it
// have the size we want; then it holds less.
func setUpPipe(fd int) (int, error) {
	if fd < 0 {
		return 0, nil
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD: exact for a pipe
	if err != nil {
		return 0, os.NewSyscallError("ioctl FIONREAD", err)
	}
	unix.CloseOnExec(fd)
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes)
	return n, os.NewSyscallError("fcntl F_SETFL", unix.SetNonblock(fd, true))
}

// writePipe writes what there is room for. Up to atomicWrite bytes go whole or
// not at all.
func writePipe(fd int, p []byte) (int, error) {
	n, err := rawio.Write(uintptr(fd), p)
	if err == unix.EAGAIN {
		err = nil
	}
	return n, os.NewSyscallError("write", err)
}

// readPipe fills p.
func readPipe(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := rawio.Read(uintptr(fd), p)
		if err != nil {
			return os.NewSyscallError("read", err)
		}
		p = p[n:]
	}
	return nil
}
