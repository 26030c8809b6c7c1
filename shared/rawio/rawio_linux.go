package rawio

import (
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
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

// A stream reads and writes a descriptor that the netpoller knows. Only one goroutine may read.
type stream struct {
	raw    syscall.RawConn
	wrap   func(op string, err error) error
	budget Budget // of the reading goroutine
}

// A conn is a connection with raw reads and writes.
type conn struct {
	net.Conn
	stream
}

// Conn returns c with raw reads and writes, or c itself if it has no descriptor. Only one goroutine may read from it.
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
	wrap := func(op string, err error) error {
		return &net.OpError{Op: op, Net: c.RemoteAddr().Network(), Err: err}
	}
	return &conn{Conn: c, stream: stream{raw: raw, wrap: wrap}}
}

func (c *conn) Read(p []byte) (int, error)  { return c.stream.Read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.stream.Write(p) }

// File returns raw reads and writes of f, which must be nonblocking. Only one goroutine may read. It returns f itself if the
// netpoller cannot wait for f.
func File(f *os.File) io.ReadWriter {
	raw, err := f.SyscallConn()
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return f
	}
	bell()
	return &stream{raw: raw, wrap: func(op string, err error) error { return &fs.PathError{Op: op, Path: f.Name(), Err: err} }}
}

func (s *stream) Read(p []byte) (int, error) {
	var n, tries int
	var err error
	waitErr := s.raw.Read(func(fd uintptr) bool {
		tries++
		n, err = Read(fd, p)
		return err != syscall.EAGAIN
	})
	s.budget.Spend(n, perRead, tries > 1)
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err == nil && n == 0 && len(p) > 0:
		return 0, io.EOF
	case err != nil:
		return 0, s.wrap("read", err)
	}
	return n, nil
}

func (s *stream) Write(p []byte) (int, error) {
	total := 0
	var err error
	waitErr := s.raw.Write(func(fd uintptr) bool {
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
		return total, s.wrap("write", err)
	}
	return total, nil
}
