//go:build linux

package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/coder/websocket"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
)

// A terminal is a client that is attached to one session. Write sends input.
type terminal interface {
	Write(p []byte) (int, error)
	// printed returns the next output. It fails if the client can tell that a byte is missing or comes twice.
	printed() ([]byte, error)
	close()
}

// A library is a terminal of this version's client library.
type library struct {
	*client.Attachment
	pos uint64
}

func (w *world) library(c *client.Client, s *client.Spawned, mode protocol.Mode) (*library, error) {
	a, err := c.Attach(w.ctx(), s.SessionID, client.AttachOptions{Mode: mode, Resume: &protocol.Resume{Instance: s.Session.Instance}})
	return &library{Attachment: a}, err
}

func (l *library) printed() ([]byte, error) {
	for {
		m, err := l.Receive(limit)
		switch {
		case err != nil:
			return nil, err
		case m.Kind == client.Resized: // a resume repeats the size
			continue
		case m.Kind != client.Output || m.Offset != l.pos:
			return nil, fmt.Errorf("unexpected message at offset %d: %+v", l.pos, m)
		}
		l.pos += uint64(len(m.Data))
		return m.Data, nil
	}
}

func (l *library) close() { _ = l.Detach() }

// A command is a terminal that runs "proxy attach" of any version.
type command struct {
	*exec.Cmd
	in  io.WriteCloser
	out io.Reader
	buf []byte
}

func (w *world) attachCommand(version string, s *client.Spawned) (*command, error) {
	c := &command{Cmd: w.command(version, "proxy", "attach", string(s.SessionID)), buf: make([]byte, 4<<10)}
	var err, err2 error
	c.in, err = c.StdinPipe()
	c.out, err2 = c.StdoutPipe()
	c.Stderr = os.Stderr
	return c, errors.Join(err, err2, c.Start())
}

func (c *command) Write(p []byte) (int, error) { return c.in.Write(p) }

func (c *command) printed() ([]byte, error) {
	n, err := c.out.Read(c.buf)
	return c.buf[:n], err
}

func (c *command) close() { _ = c.Process.Kill() }

// A wire carries frames to and from a proxy.
type wire interface {
	send(f []byte) error
	receive() (frame.Kind, []byte, error)
	close()
}

// A stream is a wire on the Unix socket.
type stream struct {
	net.Conn
	frames *frame.Reader
}

func (w *world) stream() (wire, error) {
	nc, err := net.Dial("unix", w.Path("proxy.sock"))
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(4 * limit))
	return &stream{nc, frame.NewReader(nc, frame.Max)}, nil
}

// send sends a frame in two parts, so that now and then a handoff begins in the middle of a frame.
func (s *stream) send(f []byte) error {
	if _, err := s.Write(f[:len(f)/2]); err != nil {
		return err
	}
	_, err := s.Write(f[len(f)/2:])
	return err
}

func (s *stream) receive() (frame.Kind, []byte, error) { return s.frames.Next() }

func (s *stream) close() { _ = s.Close() }

// A webSocket is read without pauses, so that its end is noticed at once.
type webSocket struct {
	*websocket.Conn
	ctx context.Context // ended by close; its cause is the error that ended reading
	end context.CancelCauseFunc
	in  chan message
}

type message struct {
	text bool
	data []byte
}

// dial opens a WebSocket. If url is a path, it uses the Unix socket.
func (w *world) dial(url string) (*webSocket, error) {
	unix := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.Path("proxy.web.sock"))
	}}}
	o := &websocket.DialOptions{}
	if strings.HasPrefix(url, "/") {
		url, o.HTTPClient = "ws://localhost"+url, unix
	}
	if strings.HasSuffix(url, "/v1/api") {
		o.Subprotocols = []string{api.Subprotocol}
	}
	conn, _, err := websocket.Dial(w.ctx(), url, o)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	s := &webSocket{Conn: conn, in: make(chan message)}
	s.ctx, s.end = context.WithCancelCause(w.web)
	go func() { s.end(s.reads()) }()
	return s, nil
}

func (s *webSocket) reads() error {
	for {
		typ, data, err := s.Read(s.ctx)
		if err != nil {
			return err
		}
		select {
		case s.in <- message{typ == websocket.MessageText, data}:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// write reports no error; next reports why the connection has ended.
func (s *webSocket) write(typ websocket.MessageType, p []byte) {
	_ = s.Conn.Write(s.ctx, typ, p)
}

func (s *webSocket) next() (message, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case m := <-s.in:
		return m, nil
	case <-s.ctx.Done():
		return message{}, context.Cause(s.ctx)
	case <-late.C:
		return message{}, os.ErrDeadlineExceeded
	}
}

func (s *webSocket) send(f []byte) error {
	if frame.Kind(f[4]) == frame.Control {
		s.write(websocket.MessageText, f[frame.HeaderLen:])
	} else {
		s.write(websocket.MessageBinary, f[4:])
	}
	return nil
}

func (s *webSocket) receive() (frame.Kind, []byte, error) {
	m, err := s.next()
	switch {
	case err != nil:
		return 0, nil, err
	case m.text:
		return frame.Control, m.data, nil
	case len(m.data) == 0:
		return 0, nil, errors.New("empty binary message")
	}
	return frame.Kind(m.data[0]), m.data[1:], nil
}

func (s *webSocket) close() {
	s.end(net.ErrClosed)
	_ = s.CloseNow()
}

// A byHand is a terminal of the api, implemented by the test.
type byHand struct {
	wire
	resume protocol.Resume
	id     protocol.SessionID
	typed  []byte // all input since the start
}

// byHand attaches at the start of a session's output.
func (w *world) byHand(s *client.Spawned, token string, open func() (wire, error)) (*byHand, error) {
	wire, err := open()
	if err != nil {
		return nil, err
	}
	h := &byHand{wire: wire, id: s.SessionID, resume: protocol.Resume{Instance: s.Session.Instance}}
	return h, h.attach(token)
}

// attach sends hello and attaches at the offset of resume.
func (h *byHand) attach(token string) error {
	hello := api.Hello{Protocol: protocol.Supported(), Client: "by hand", Token: token}
	attach := api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: h.id, Writer: protocol.NewToken(8), Resume: &h.resume}}
	if err := errors.Join(h.say(hello), h.say(attach)); err != nil {
		return err
	}
	for {
		_, payload, err := h.receive()
		if err != nil {
			return err
		}
		m, _, err := api.Messages.Decode(payload)
		switch m := m.(type) {
		case *api.Welcome:
		case *api.Attached:
			if m.Replay != protocol.ReplayExact || m.Offset != h.resume.Offset {
				return fmt.Errorf("attached at offset %d, %s, want exact at offset %d", m.Offset, m.Replay, h.resume.Offset)
			}
			return nil
		default:
			return fmt.Errorf("unexpected message %+v, %v", m, err)
		}
	}
}

func (h *byHand) say(m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return err
	}
	return h.send(frame.Append(nil, frame.Control, b))
}

func (h *byHand) Write(p []byte) (int, error) {
	at := len(h.typed)
	h.typed = append(h.typed, p...)
	return len(p), h.send(frame.AppendData(nil, frame.Input, 1, uint64(at), p))
}

// begin sends the first half of an input frame for p, and returns the second half.
func (h *byHand) begin(p []byte) (rest []byte, err error) {
	f := frame.AppendData(nil, frame.Input, 1, uint64(len(h.typed)), p)
	h.typed = append(h.typed, p...)
	return f[len(f)/2:], h.send(f[:len(f)/2])
}

func (h *byHand) printed() ([]byte, error) {
	for {
		kind, payload, err := h.receive()
		if err != nil {
			return nil, err
		}
		if kind == frame.Control {
			m, _, err := api.Messages.Decode(payload)
			switch m := m.(type) {
			case *api.Accepted, *api.Resized: // a resume repeats the size
				continue
			case *api.Error:
				if m.Error.Code == protocol.CodeInputGap && m.Error.Offset != nil { // the proxy has a new link
					if err := h.typeFrom(*m.Error.Offset); err != nil {
						return nil, err
					}
					continue
				}
			}
			return nil, fmt.Errorf("unexpected message %+v, %v", m, err)
		}
		_, offset, data, err := frame.ParseData(payload)
		if err != nil || kind != frame.Output || offset != h.resume.Offset {
			return nil, fmt.Errorf("frame of kind %d at offset %d, want offset %d: %w", kind, offset, h.resume.Offset, err)
		}
		h.resume.Offset += uint64(len(data))
		return data, nil
	}
}

// typeFrom sends the input that was not accepted.
func (h *byHand) typeFrom(accepted uint64) error {
	if accepted > uint64(len(h.typed)) {
		return fmt.Errorf("the proxy has accepted %d bytes of %d", accepted, len(h.typed))
	}
	if rest := h.typed[accepted:]; len(rest) > 0 {
		return h.send(frame.AppendData(nil, frame.Input, 1, accepted, rest))
	}
	return nil
}

// A rawTerminal is a raw WebSocket on the Unix socket. It has no offsets.
type rawTerminal struct {
	*webSocket
	rest []byte
}

func (w *world) raw(s *client.Spawned) (*rawTerminal, error) {
	socket, err := w.dial("/v1/sessions/" + string(s.SessionID) + "/raw")
	if err != nil {
		return nil, err
	}
	r := &rawTerminal{webSocket: socket}
	return r, r.begin()
}

// begin types a mark, and drops the output up to it: the snapshot, and earlier echoes.
func (r *rawTerminal) begin() error {
	mark := []byte("<mark>")
	_, _ = r.Write(mark)
	var seen []byte
	for {
		data, err := r.printed()
		if err != nil {
			return err
		}
		seen = append(seen, data...)
		if _, rest, ok := bytes.Cut(seen, mark); ok {
			r.rest = rest
			return nil
		}
	}
}

func (r *rawTerminal) Write(p []byte) (int, error) {
	r.write(websocket.MessageBinary, p)
	return len(p), nil
}

func (r *rawTerminal) printed() ([]byte, error) {
	if p := r.rest; len(p) > 0 {
		r.rest = nil
		return p, nil
	}
	m, err := r.next()
	if err == nil && m.text {
		err = fmt.Errorf("text message %.100q instead of output", m.data)
	}
	return m.data, err
}
