package apiserver

import (
	"net"

	"holdfast/protocol/frame"
	"holdfast/shared/rawio"
)

// streamTransport is the framed byte stream of the Unix socket.
type streamTransport struct {
	net.Conn
	frames *frame.Reader
}

func newStreamTransport(nc net.Conn) *streamTransport {
	nc = rawio.Conn(nc)
	return &streamTransport{Conn: nc, frames: frame.NewReader(nc, frame.MaxHello)}
}

func (t *streamTransport) Next() ([]byte, error) { return t.frames.NextRaw() }
func (t *streamTransport) SetLimit(n int)        { t.frames.SetMax(n) }

func (t *streamTransport) Write(raw []byte) error {
	_, err := t.Conn.Write(raw)
	return err
}
