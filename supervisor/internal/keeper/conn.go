//go:build linux || darwin

package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRights is how many descriptors the kernel passes at once. A buffer for all
// lets us close what is too many, where a short one would hide it on macOS.
const maxRights = 253

// A Conn is one end of the socket between keeper and supervisor. One goroutine
// may receive while another one writes.
type Conn struct {
	*os.File // for its deadlines and Close
	fd       int
	raw      syscall.RawConn
	rights   [maxRights*4 + 64]byte
	drained  atomic.Bool

	// The frame that is being read, kept over a deadline.
	buf  []byte
	skip int64 // of a frame that is too long, to come
	fds  []int
	lost bool // descriptors that came could not be taken
}

// NewConn takes a socket over.
func NewConn(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("keeper: socket", err)
	}
	c := &Conn{File: os.NewFile(uintptr(fd), "keeper"), fd: fd}
	raw, err := c.SyscallConn()
	c.raw = raw
	return c, err
}

// FD is the socket's number. (Fd of an os.File would make it block.)
func (c *Conn) FD() int { return c.fd }

// Partial says whether a frame is read in part.
func (c *Conn) Partial() bool { return len(c.buf) > 0 || c.skip > 0 }

// Drain makes Receive return what has come already, and then io.EOF: the other
// end is dead, but others may have inherited its socket.
func (c *Conn) Drain() {
	c.drained.Store(true)
	past := time.Unix(1, 0)
	c.SetDeadline(past)
}

// Receive returns the next message, with descriptors that are now the caller's.
// After a *BadFrame it can be called again; after a deadline it goes on where it
// was. What is read ends with a frame, so that descriptors are of that frame.
func (c *Conn) Receive() (Message, []int, error) {
	if c.skip == 0 {
		if err := c.fill(4); err != nil {
			return Message{}, nil, err
		}
		size := binary.BigEndian.Uint32(c.buf)
		if size <= MaxFrame {
			if err := c.fill(4 + int(size)); err != nil {
				return Message{}, nil, err
			}
			return c.take()
		}
		c.skip, c.buf = int64(size), c.buf[:0]
	}
	for scratch := make([]byte, 4096); c.skip > 0; {
		n, err := c.read(scratch[:min(c.skip, 4096)])
		if err != nil {
			return Message{}, nil, err
		}
		c.skip -= int64(n)
	}
	c.lost = true
	return c.take()
}

func (c *Conn) fill(size int) error {
	for len(c.buf) < size {
		if cap(c.buf) < size {
			c.buf = append(make([]byte, 0, size), c.buf...)
		}
		n, err := c.read(c.buf[len(c.buf):size])
		if err != nil {
			return err
		}
		c.buf = c.buf[:len(c.buf)+n]
	}
	return nil
}

// take is the frame that is there now.
func (c *Conn) take() (m Message, fds []int, err error) {
	body, fds, lost := c.buf, c.fds, c.lost
	c.buf, c.fds, c.lost = nil, nil, false
	switch {
	case len(body) == 0:
		err = &BadFrame{"too long"}
	case json.Unmarshal(body[4:], &m) != nil:
		err = &BadFrame{"no message"}
	case lost || m.FDs != len(fds):
		err = &BadFrame{"not the descriptors it announced, or more than may be open"}
	}
	if err != nil {
		closeAll(fds)
		fds = nil
	}
	return m, fds, err
}

func (c *Conn) read(b []byte) (n int, err error) {
	again := func(fd uintptr) bool {
		n, err = c.recvmsg(int(fd), b)
		return !errors.Is(err, unix.EAGAIN)
	}
	waited := c.raw.Read(again)
	if errors.Is(waited, os.ErrDeadlineExceeded) && c.drained.Load() {
		waited = c.raw.Control(func(fd uintptr) { again(fd) })
	}
	switch {
	case waited != nil:
		return 0, waited
	case errors.Is(err, unix.EAGAIN), err == nil && n == 0: // EAGAIN: nothing more, when drained
		return 0, io.EOF
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
		closeAll(fds[room:])
	}
	return n, nil
}

// Send writes a frame and descriptors with its first byte; on an error it says
// how much was written, and the rest is to be written before anything else.
func (c *Conn) Send(frame []byte, fds []int) (n int, err error) {
	if len(fds) > 0 {
		rights := unix.UnixRights(fds...)
		waited := c.raw.Write(func(fd uintptr) bool {
			n, err = unix.SendmsgN(int(fd), frame, rights, nil, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err = errors.Join(waited, err); err != nil {
			return 0, err
		}
	}
	if n == len(frame) {
		return n, nil
	}
	more, err := c.Write(frame[n:])
	return n + more, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
