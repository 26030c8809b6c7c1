//go:build linux || darwin

package message

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRights is the number of descriptors that the kernel passes at once at most. The buffer has
// room for all of them, so that this process can close those above MaxFDs. On macOS a shorter
// buffer would hide them, and they would stay open.
const maxRights = 253

// A Conn is one end of the socket between keeper and supervisor. One goroutine may call Receive
// while another one calls Send.
type Conn struct {
	*os.File      // for its deadlines and Close
	Now      bool // Receive and Send do not wait, but return os.ErrDeadlineExceeded
	FD       int  // the socket's descriptor, because File.Fd would make the socket blocking
	raw      syscall.RawConn
	rights   [maxRights*4 + 64]byte

	// The frame that is being received. It survives a deadline.
	buf     []byte // only the length, if the frame is too long
	got     int    // bytes that were received
	fds     []int
	hasLost bool // a descriptor could not be received
}

// NewConn returns a Conn that owns the socket fd.
func NewConn(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "keeper")
	raw, err := f.SyscallConn()
	return &Conn{File: f, FD: fd, raw: raw}, err
}

// Pair returns both ends of a new socket: the keeper's end, which does not wait, and one for a
// supervisor. The process must not fork during the call, because the descriptors are not
// close-on-exec at first.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[1])
	c, err := NewConn(fds[0])
	if err != nil {
		Close(fds[:])
		return nil, nil, err
	}
	c.Now = true
	return c, os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// Partial reports whether a part of a frame was received.
func (c *Conn) Partial() bool { return c.got > 0 }

// Receive returns the next message, and its descriptors, which belong to the caller. It may be
// called again after a *BadFrame, and after a deadline, when it continues within the frame. It
// never reads beyond the end of a frame, so that all descriptors that it receives belong to
// that frame.
func (c *Conn) Receive() (Message, []int, error) {
	for {
		size := 4
		if c.got >= size {
			size += int(binary.BigEndian.Uint32(c.buf))
			if c.got == size {
				return c.decode()
			}
		}
		part := make([]byte, min(size-c.got, 32<<10))
		n, err := c.read(part)
		if err != nil {
			return Message{}, nil, err
		}
		if c.got += n; size <= 4+MaxFrame {
			c.buf = append(c.buf, part[:n]...)
		}
	}
}

// decode decodes the complete frame in buf.
func (c *Conn) decode() (m Message, fds []int, err error) {
	body, got, fds, hasLost := c.buf, c.got, c.fds, c.hasLost
	c.buf, c.got, c.fds, c.hasLost = nil, 0, nil, false
	switch {
	case got > len(body):
		err = &BadFrame{"longer than a frame may be"}
	case json.Unmarshal(body[4:], &m) != nil:
		err = &BadFrame{"not a message in JSON"}
	case hasLost || m.FDs != len(fds):
		err = &BadFrame{"received other descriptors than it announced, or more than this process may open"}
	}
	if err != nil {
		Close(fds)
		fds = nil
	}
	return m, fds, err
}

func (c *Conn) read(b []byte) (n int, err error) {
	waited := c.raw.Read(func(fd uintptr) bool {
		n, err = c.recvmsg(int(fd), b)
		return c.Now || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waited != nil:
		return 0, waited
	case errors.Is(err, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err == nil && n == 0:
		Close(c.fds) // the frame that they belong to will never be complete
		c.fds, err = nil, io.EOF
	}
	return n, err
}

// recvmsg receives bytes and descriptors, and makes the descriptors close-on-exec before this
// process can fork. The lock is necessary because only Linux has a flag for that.
func (c *Conn) recvmsg(fd int, b []byte) (n int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var oobn, flags int
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, oobn, flags, _, err = unix.Recvmsg(fd, b, c.rights[:], 0)
	}
	if err != nil {
		return 0, err
	}
	c.hasLost = c.hasLost || flags&unix.MSG_CTRUNC != 0
	parts, _ := unix.ParseSocketControlMessage(c.rights[:oobn])
	for _, part := range parts {
		fds, _ := unix.ParseUnixRights(&part)
		for _, got := range fds {
			unix.CloseOnExec(got)
		}
		room := min(len(fds), MaxFDs-len(c.fds))
		c.fds, c.hasLost = append(c.fds, fds[:room]...), c.hasLost || room < len(fds)
		Close(fds[room:])
	}
	return n, nil
}

// Send sends a frame, and descriptors with its first byte. If it fails, n is the number of
// bytes that were sent, and the remainder must be sent before any other frame.
func (c *Conn) Send(frame []byte, fds []int) (n int, err error) {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	for n < len(frame) {
		var sent int
		waited := c.raw.Write(func(fd uintptr) bool {
			sent, err = unix.SendmsgN(int(fd), frame[n:], rights, nil, 0)
			return c.Now || !errors.Is(err, unix.EAGAIN)
		})
		if errors.Is(err, unix.EAGAIN) {
			err = os.ErrDeadlineExceeded
		}
		if err = errors.Join(waited, err); err != nil {
			return n, err
		}
		n, rights = n+sent, nil
	}
	return n, nil
}

// Close closes descriptors that were received with a message.
func Close(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
