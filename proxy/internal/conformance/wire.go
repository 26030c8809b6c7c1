package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// The transports of the api.
const (
	Unix      = "unix"
	WebSocket = "websocket"
)

const (
	apiPath = "/v1/api"
	// lingers is how long a connection that is cut is read on, so that the end of the stream does not overtake
	// the bytes before it.
	lingers = 100 * time.Millisecond
)

// listen returns a listener, and the address in the form of the fields of Command.
func listen(transport, dir string) (net.Listener, Command, error) {
	if transport == WebSocket {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, Command{}, err
		}
		return l, Command{Do: "connect", URL: "ws://" + l.Addr().String() + apiPath}, nil
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	return l, Command{Do: "connect", Socket: path}, err
}

// A conn is a connection of the client.
type conn struct {
	nc    net.Conn
	isWeb bool
	rd    *frame.Reader // of a Unix socket
	began time.Time     // when the connection was accepted

	mu    sync.Mutex // held while bytes are written
	ended chan struct{}
	once  sync.Once
}

// accept makes a conn of an accepted connection, after the handshake of a WebSocket.
func accept(nc net.Conn, transport string) (*conn, error) {
	c := &conn{nc: nc, isWeb: transport == WebSocket, began: time.Now(), ended: make(chan struct{})}
	if !c.isWeb {
		c.rd = frame.NewReader(nc, frame.Max)
		return c, nil
	}
	var path string
	u := ws.Upgrader{
		OnRequest: func(uri []byte) error { path = string(uri); return nil },
		Protocol:  func(p []byte) bool { return string(p) == api.Subprotocol },
	}
	h, err := u.Upgrade(nc)
	switch {
	case err != nil:
		return nil, fmt.Errorf("handshake of the WebSocket: %w", err)
	case h.Protocol != api.Subprotocol:
		return nil, fmt.Errorf("the client does not offer the subprotocol %s", api.Subprotocol)
	case path != apiPath:
		return nil, fmt.Errorf("the client requests the path %q", path)
	}
	return c, nil
}

// hasLeft reports whether accept failed because the client has closed the connection during the handshake, as one does
// that is closed while it connects.
func hasLeft(err error) bool {
	var broken *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken) && !broken.Timeout()
}

// next returns the kind and the payload of the next frame.
func (c *conn) next() (frame.Kind, []byte, error) {
	if !c.isWeb {
		kind, payload, err := c.rd.Next()
		return kind, slices.Clone(payload), err
	}
	op, message, err := c.nextMessage()
	switch {
	case err != nil:
		return 0, nil, err
	case op == ws.OpText:
		return frame.Control, message, nil
	case len(message) == 0 || message[0] == byte(frame.Control):
		return 0, nil, errors.New("a binary message carries no frame of another kind than control")
	}
	return frame.Kind(message[0]), message[1:], nil
}

// nextMessage returns the next text or binary message of a WebSocket.
func (c *conn) nextMessage() (ws.OpCode, []byte, error) {
	var op ws.OpCode
	var message []byte
	for {
		f, err := readFrame(c.nc, frame.Max-len(message))
		if err != nil {
			return 0, nil, err
		}
		if !f.Header.Masked {
			return 0, nil, errors.New("a frame of the WebSocket is not masked")
		}
		f = ws.UnmaskFrameInPlace(f)
		switch f.Header.OpCode {
		case ws.OpPing:
			_ = c.write(compile(ws.NewPongFrame(f.Payload))) // the next read tells that it failed
			continue
		case ws.OpPong:
			continue
		case ws.OpClose:
			_ = c.write(compile(ws.NewCloseFrame(f.Payload))) // the client is leaving
			return 0, nil, io.EOF
		case ws.OpText, ws.OpBinary:
			op = f.Header.OpCode
		}
		if message = append(message, f.Payload...); f.Header.Fin {
			return op, message, nil
		}
	}
}

// readFrame reads a frame of a WebSocket whose payload has at most limit bytes.
func readFrame(r io.Reader, limit int) (ws.Frame, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return ws.Frame{}, err
	}
	if h.Length > int64(limit) {
		return ws.Frame{}, fmt.Errorf("a message of the WebSocket exceeds %d bytes", frame.Max)
	}
	f := ws.Frame{Header: h, Payload: make([]byte, h.Length)}
	_, err = io.ReadFull(r, f.Payload)
	return f, err
}

func compile(f ws.Frame) []byte {
	var b bytes.Buffer
	_ = ws.WriteFrame(&b, f) // writing to a bytes.Buffer cannot fail
	return b.Bytes()
}

// encode returns the bytes of a frame on this transport.
func (c *conn) encode(kind frame.Kind, payload []byte) []byte {
	switch {
	case !c.isWeb:
		return frame.Append(nil, kind, payload)
	case kind == frame.Control:
		return compile(ws.NewTextFrame(payload))
	}
	return compile(ws.NewBinaryFrame(append([]byte{byte(kind)}, payload...)))
}

// message returns the bytes of a control message.
func (c *conn) message(m protocol.Message) []byte {
	b, err := protocol.Encode(m)
	if err != nil {
		panic(err) // a mistake of a scenario
	}
	return c.encode(frame.Control, b)
}

// fields returns the bytes of a control message that package api cannot make.
func (c *conn) fields(m map[string]any) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a mistake of a scenario
	}
	return c.encode(frame.Control, b)
}

// dataPayload returns the payload of a frame of output, snapshot or view.
func dataPayload(attachment uint32, offset uint64, data []byte) []byte {
	return frame.AppendData(nil, frame.Output, attachment, offset, data)[frame.HeaderLen:]
}

// write writes bytes to the client. An error means that the client has closed the connection, which is no
// mistake in itself.
func (c *conn) write(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.nc.Write(b)
	return err
}

// cut ends the connection after the bytes that were written, without a word.
func (c *conn) cut() {
	c.endWriting()
	time.AfterFunc(lingers, func() { _ = c.nc.Close() })
}

// endWriting ends the stream to the client and leaves the other direction open.
func (c *conn) endWriting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the client may have closed it
	}
}

// closeWith closes a WebSocket with a status.
func (c *conn) closeWith(status ws.StatusCode) {
	_ = c.write(compile(ws.NewCloseFrame(ws.NewCloseFrameBody(status, "")))) // the client may have closed it
	c.cut()
}

func (c *conn) markEnded() { c.once.Do(func() { close(c.ended) }) }

// fragments returns a binary message in three fragments, with a ping before the last one.
func fragments(message []byte) [][]byte {
	first, rest := message[:20], message[20:]
	second, third := rest[:len(rest)/2], rest[len(rest)/2:]
	return [][]byte{
		compile(ws.NewFrame(ws.OpBinary, false, first)), compile(ws.NewFrame(ws.OpContinuation, false, second)),
		compile(ws.NewPingFrame([]byte("there?"))), compile(ws.NewFrame(ws.OpContinuation, true, third)),
	}
}
