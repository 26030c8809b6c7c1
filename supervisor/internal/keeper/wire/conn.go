//go:build linux || darwin

package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxRights is how many descriptors the kernel passes at once. A buffer for all
// lets us close what is too many, where a short one would hide it on macOS.
const maxRights = 253

// A Conn is one end of the socket between keeper and supervisor. One goroutine
// may receive while another one sends.
type Conn struct {
	*os.File      // for its deadlines and Close
	Now      bool // Receive and Send do not wait: os.ErrDeadlineExceeded
	FD       int  // its number; Fd would make it block
	raw      syscall.RawConn
	rights   [maxRights*4 + 64]byte

	// The frame that is being read, kept over a deadline.
	buf  []byte // only its length, if it is too long
	got  int    // bytes
	fds  []int
	lost bool // descriptors that came could not be taken
}

// NewConn takes a socket over.
func NewConn(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "keeper")
	raw, err := f.SyscallConn()
	return &Conn{File: f, FD: fd, raw: raw}, err
}

// Pair returns both ends of a socket: the keeper's, which does not wait, and one for
// a supervisor. Nobody may fork meanwhile.
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

// Partial says whether a frame is read in part.
func (c *Conn) Partial() bool { return c.got > 0 }

// Receive returns the next message, with descriptors that are now the caller's.
// After a *BadFrame it can be called again; after a deadline it goes on where it
// was. It reads no further than a frame's end, so that descriptors are of that
// frame.
func (c *Conn) Receive() (Message, []int, error) {
	for {
		size := 4
		if c.got >= size {
			size += int(binary.BigEndian.Uint32(c.buf))
			if c.got == size {
				return c.take()
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

// take is the frame that is there now.
func (c *Conn) take() (m Message, fds []int, err error) {
	body, got, fds, lost := c.buf, c.got, c.fds, c.lost
	c.buf, c.got, c.fds, c.lost = nil, 0, nil, false
	switch {
	case got > len(body):
		err = &BadFrame{"too long"}
	case json.Unmarshal(body[4:], &m) != nil:
		err = &BadFrame{"no message"}
	case lost || m.FDs != len(fds):
		err = &BadFrame{"not the descriptors it announced, or more than may be open"}
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
		Close(c.fds) // of a frame that is not ended any more
		c.fds, err = nil, io.EOF
	}
	return n, err
}

// recvmsg marks what it got before any child of ours can be forked with it; a
// flag for that is Linux's alone.
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
	c.lost = c.lost || flags&unix.MSG_CTRUNC != 0
	parts, _ := unix.ParseSocketControlMessage(c.rights[:oobn])
	for _, part := range parts {
		fds, _ := unix.ParseUnixRights(&part)
		for _, got := range fds {
			unix.CloseOnExec(got)
		}
		room := min(len(fds), MaxFDs-len(c.fds))
		c.fds, c.lost = append(c.fds, fds[:room]...), c.lost || room < len(fds)
		Close(fds[room:])
	}
	return n, nil
}

// Send writes a frame and descriptors with its first byte; on an error it says
// how much was written, and the rest is to be written before anything else.
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

// Close closes descriptors that came with a message.
func Close(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
