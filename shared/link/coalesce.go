package link

import (
	"encoding/binary"
	"errors"
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
	held   bool // header waits for its data
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
	parts := net.Buffers{c.header[:], p}
	n, err := parts.WriteTo(c.Conn) // writev(2)
	if err == nil && n != int64(muxHeaderLen+len(p)) {
		err = errors.New("short write")
	}
	return max(0, int(n)-muxHeaderLen), err
}
