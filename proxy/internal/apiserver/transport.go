package apiserver

import (
	"bytes"
	"errors"
	"net"
	"os"
	"sync"

	"holdfast/protocol/frame"
	"holdfast/shared/rawio"
)

// streamTransport is the framed byte stream of the Unix socket.
type streamTransport struct {
	net.Conn
	plain  net.Conn // the same, as it came
	frames *frame.Reader

	mu        sync.Mutex
	stopped   bool
	unwritten []byte
}

func newStreamTransport(nc net.Conn) *streamTransport { return streamAfter(nc, nil) }

// NewStream is the framed byte stream of a connection of which rest was read
// before.
func NewStream(nc net.Conn, rest []byte) Movable { return streamAfter(nc, rest) }

func streamAfter(nc net.Conn, rest []byte) *streamTransport {
	raw := rawio.Conn(nc)
	t := &streamTransport{Conn: raw, plain: nc, frames: frame.NewReader(raw, frame.MaxHello)}
	t.frames.Begin(rest)
	return t
}

func (t *streamTransport) Next() ([]byte, error) { return t.frames.NextRaw() }
func (t *streamTransport) SetLimit(n int)        { t.frames.SetMax(n) }

// Write writes a frame; one that the client does not take, or not in whole, is
// kept once Stop was called.
func (t *streamTransport) Write(raw []byte) error {
	t.mu.Lock()
	if len(t.unwritten) > 0 {
		t.unwritten = append(t.unwritten, raw...)
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()
	n, err := t.Conn.Write(raw)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.stopped && errors.Is(err, os.ErrDeadlineExceeded) {
		t.unwritten = append(t.unwritten, raw[n:]...)
		return nil
	}
	return err
}

// Client implements Movable, as do Stop, Leftover and Unwritten.
func (t *streamTransport) Client() net.Conn { return t.plain }

func (t *streamTransport) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	_ = t.SetWriteDeadline(longAgo)
}

func (t *streamTransport) Stuck() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.unwritten) > 0
}

func (t *streamTransport) Leftover() []byte { return bytes.Clone(t.frames.Buffered()) }

func (t *streamTransport) Unwritten() []byte { return t.unwritten }

// WriteRest is Write: a part of a frame is as good as a whole one.
func (t *streamTransport) WriteRest(p []byte) error { return t.Write(p) }
