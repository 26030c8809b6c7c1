package link

import (
	"encoding/binary"
	"io"
	"net"
)

// Parts of yamux's frame header, which consists of version, type, flags, stream id and
// length (spec.md of yamux).
const (
	muxHeaderLen = 12
	muxTypeData  = 0
)

// A coalescer writes a yamux data header and its data with one Write. yamux writes them
// separately. That costs a second system call and wakes the peer for twelve bytes, which is
// noticeable on the way of a keystroke. A coalescer needs no lock, because only yamux's
// sending goroutine calls Write.
type coalescer struct {
	net.Conn
	header    [muxHeaderLen]byte
	hasHeader bool   // header waits for its data
	buffer    []byte // header and data of the present Write
}

// Write writes p, preceded by a stored header. If p itself is the header of a frame with
// data, Write only stores it and reports success. An error is then returned with the data.
func (c *coalescer) Write(p []byte) (int, error) {
	if !c.hasHeader && len(p) == muxHeaderLen && p[1] == muxTypeData && binary.BigEndian.Uint32(p[8:]) > 0 {
		copy(c.header[:], p)
		c.hasHeader = true
		return len(p), nil
	}
	if !c.hasHeader {
		return c.Conn.Write(p)
	}
	c.hasHeader = false
	c.buffer = append(append(c.buffer[:0], c.header[:]...), p...)
	n, err := c.Conn.Write(c.buffer)
	if err == nil && n < len(c.buffer) {
		err = io.ErrShortWrite
	}
	return max(0, n-muxHeaderLen), err
}
