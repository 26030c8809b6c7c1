package apiserver

import (
	"bytes"
	"net"
	"time"

	"holdfast/protocol/frame"
	"holdfast/shared/rawio"
)

// streamTransport is the framed byte stream of the Unix socket.
type streamTransport struct {
	*Outbox
	nc     net.Conn // as it came
	raw    net.Conn // the same, for reads and writes
	frames *frame.Reader
}

// NewStream is the framed byte stream of a connection of which rest was read
// before.
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

// Client implements Movable, as do Leftover and WriteRest.
func (t *streamTransport) Client() net.Conn { return t.nc }

func (t *streamTransport) Leftover() []byte { return bytes.Clone(t.frames.Buffered()) }

// WriteRest is Write: a part of a frame is as good as a whole one.
func (t *streamTransport) WriteRest(p []byte) error { return t.Write(p) }
