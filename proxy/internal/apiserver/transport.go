package apiserver

import (
	"bytes"
	"net"
	"time"

	"holdfast/protocol/frame"
	"holdfast/shared/rawio"
)

// streamTransport is the framed byte stream of a Unix socket or a named pipe.
type streamTransport struct {
	*Outbox
	nc     net.Conn // the connection that was accepted
	raw    net.Conn // the same connection without Go's scheduler, for reads and writes
	frames *frame.Reader
}

// NewStream returns a transport for the framed byte stream of nc. rest is the beginning of the
// stream that was already read.
func NewStream(nc net.Conn, rest []byte) Movable {
	raw := rawio.Conn(nc)
	t := &streamTransport{Outbox: NewOutbox(raw), nc: nc, raw: raw, frames: frame.NewReader(raw, frame.MaxHello)}
	t.frames.Begin(rest)
	return t
}

func (t *streamTransport) Next() ([]byte, error)               { return t.frames.NextRaw() }
func (t *streamTransport) Write(frame []byte) error            { return t.Outbox.Write(frame) }
func (t *streamTransport) SetLimit(n int)                      { t.frames.SetMax(n) }
func (t *streamTransport) SetReadDeadline(at time.Time) error  { return t.raw.SetReadDeadline(at) }
func (t *streamTransport) SetWriteDeadline(at time.Time) error { return t.raw.SetWriteDeadline(at) }
func (t *streamTransport) Close() error                        { return t.raw.Close() }

// Client implements Movable.
func (t *streamTransport) Client() net.Conn { return t.nc }

// Leftover implements Movable.
func (t *streamTransport) Leftover() []byte { return bytes.Clone(t.frames.Buffered()) }

// WriteRest implements Movable. It is the same as Write, because Write accepts parts of frames.
func (t *streamTransport) WriteRest(p []byte) error { return t.Write(p) }
