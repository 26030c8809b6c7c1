package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"holdfast/shared/rawio"
)

// pipeBytes is the capacity of a pipe. It is about as much as a terminal accepts while no
// program reads it (measured: 14 to 19 KB), so input that does not have to wait needs no queue.
// A larger pipe would not be faster, and the pipes of one user share 16,384 pages
// (fs.pipe-user-pages-soft). A thousand pipes of the default size, 16 pages, would use them up,
// and all later pipes of that user, such as those of shells, would get only two pages.
const pipeBytes = 16 << 10

// newPipe returns a pipe as one descriptor that is open for reading and writing. That needs
// half as many descriptors, and a write never fails because the other end is closed. It returns
// -1 if /proc is not mounted or not accessible.
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

// setUpPipe configures a pipe and returns how many bytes it holds. If the system does not
// permit the wanted capacity, the pipe keeps a smaller one.
func setUpPipe(fd int) (int, error) {
	if fd < 0 {
		return 0, nil
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD, which is exact for a pipe
	if err != nil {
		return 0, os.NewSyscallError("ioctl FIONREAD", err)
	}
	unix.CloseOnExec(fd)
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes)
	return n, os.NewSyscallError("fcntl F_SETFL", unix.SetNonblock(fd, true))
}

// writePipe writes as much of p as the pipe has room for. Up to atomicWrite bytes are written
// whole or not at all.
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
