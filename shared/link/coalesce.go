package link

import (
	"encoding/binary"
	"io"
	"net"
)

// yamux's frame header (its spec.md): version, type, flags, stream id, length.
const (
	muxHeaderLen = 12
	muxTypeData  = 0
)

// A coalescer writes a yamux data header and the data behind it at once. yamux
// writes them one after the other, which costs a system call more and wakes
// the peer for twelve bytes; on a keystroke's way that is felt. Only yamux's
// one sending goroutine writes.
type coalescer struct {
	net.Conn
	header [muxHeaderLen]byte
	held   bool   // header waits for its data
	whole  []byte // both
}

func (c *coalescer) Write(p []byte) (int, error) {
	if !c.held && len(p) == muxHeaderLen && p[1] == muxTypeData && binary.BigEndian.Uint32(p[8:]) > 0 {
		copy(c.header[:], p)
		c.held = true
		return len(p), nil
	}
	if !c.held {
		return c.Conn.Write(p)
	}
	c.held = false
	c.whole = append(append(c.whole[:0], c.header[:]...), p...)
	n, err := c.Conn.Write(c.whole)
	if err == nil && n < len(c.whole) {
		err = io.ErrShortWrite
	}
	return max(0, n-muxHeaderLen), err
}
