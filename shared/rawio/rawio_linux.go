package rawio

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

// Read calls read(2) once. It returns syscall.EAGAIN if there is nothing to read.
func Read(fd uintptr, p []byte) (int, error) {
	return call(syscall.SYS_READ, fd, p)
}

// Write calls write(2) once. It returns syscall.EAGAIN if the descriptor's buffer is full.
func Write(fd uintptr, p []byte) (int, error) {
	return call(syscall.SYS_WRITE, fd, p)
}

// call runs a system call with p and repeats it if a signal has interrupted it.
func call(trap, fd uintptr, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// A conn is a connection with raw reads and writes. Only one goroutine may read from it.
type conn struct {
	net.Conn
	raw    syscall.RawConn
	budget Budget // of the reading goroutine
}

// Conn returns c with raw reads and writes, or c itself if it has no descriptor.
func Conn(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	bell() // makes its descriptor now, because later there may be no free one
	return &conn{Conn: c, raw: raw}
}

func (c *conn) Read(p []byte) (int, error) {
	var n, tries int
	var err error
	waitErr := c.raw.Read(func(fd uintptr) bool {
		tries++
		n, err = Read(fd, p)
		return err != syscall.EAGAIN
	})
	c.budget.Spend(n, perRead, tries > 1)
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err == nil && n == 0 && len(p) > 0:
		return 0, io.EOF
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: c.RemoteAddr().Network(), Err: err}
	}
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	total := 0
	var err error
	waitErr := c.raw.Write(func(fd uintptr) bool {
		for total < len(p) {
			var n int
			if n, err = Write(fd, p[total:]); err != nil {
				return err != syscall.EAGAIN
			}
			total += n
		}
		return true
	})
	switch {
	case waitErr != nil:
		return total, waitErr
	case err != nil:
		return total, &net.OpError{Op: "write", Net: c.RemoteAddr().Network(), Err: err}
	}
	return total, nil
}
