package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol/api"
	"holdfast/protocol/frame"
)

// A webSocket is the client's end of a WebSocket. For an api connection it works as a net.Conn that carries
// the same frames as the Unix socket. If a frame is written in several parts, the parts are separate on the
// wire too: in turns as fragments of one message, and as one WebSocket frame whose bytes are sent in parts.
type webSocket struct {
	net.Conn
	in    *bufio.Reader
	ready []byte // bytes of frames that were received but not read

	mu     sync.Mutex // held during a write; guards the following fields
	head   []byte     // the received part of a frame's header, if it is incomplete
	op     ws.OpCode  // of the message that is being written
	length int        // the length of its payload
	sent   int        // how many bytes of the payload were sent
	whole  bool       // the message is sent as one WebSocket frame
	pong   []byte     // the payload of a ping that must be answered after the current frame
}

// mask is the masking key of all frames. The server accepts any key.
var mask = [4]byte{1, 2, 3, 4}

// openWebSocket connects to an address, which is a path or a TCP address.
func openWebSocket(network, address, target string) (*webSocket, error) {
	u, err := url.Parse("ws://localhost" + target)
	if err != nil {
		return nil, err
	}
	nc, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(limit))
	d := ws.Dialer{}
	if network == "tcp" {
		u.Host = address
	}
	if u.Path == "/v1/api" {
		d.Protocols = []string{api.Subprotocol}
	}
	in, _, err := d.Upgrade(nc, u)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	if in == nil { // the server sent no frame right after its answer
		in = bufio.NewReader(nc)
	}
	return &webSocket{Conn: nc, in: in}, nil
}

// message returns the next message.
func (s *webSocket) message() (op ws.OpCode, m []byte, err error) {
	state := ws.StateClientSide
	for {
		h, err := ws.ReadHeader(s.in)
		if err == nil {
			err = ws.CheckHeader(h, state)
		}
		if err != nil {
			return 0, nil, err
		}
		p := make([]byte, h.Length)
		if _, err := io.ReadFull(s.in, p); err != nil {
			return 0, nil, err
		}
		switch h.OpCode {
		case ws.OpClose:
			status, why := ws.ParseCloseFrameData(p)
			return 0, nil, fmt.Errorf("closed with %d, %q", status, why)
		case ws.OpPing:
			if err := s.answer(p); err != nil {
				return 0, nil, err
			}
			continue
		case ws.OpPong:
			continue
		case ws.OpContinuation:
		default:
			op = h.OpCode
		}
		m = append(m, p...)
		if h.Fin {
			return op, m, nil
		}
		state = state.Set(ws.StateFragmented)
	}
}

// Read reads frames.
func (s *webSocket) Read(p []byte) (int, error) {
	if len(s.ready) == 0 {
		op, m, err := s.message()
		switch {
		case err != nil:
			return 0, err
		case op == ws.OpText:
			s.ready = frame.Append(nil, frame.Control, m)
		case len(m) == 0 || frame.Kind(m[0]) == frame.Control:
			return 0, fmt.Errorf("a binary message of %d bytes is not a frame of the api", len(m))
		default:
			s.ready = append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...)
		}
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Write sends complete frames, or parts of frames.
func (s *webSocket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		if s.sent == s.length {
			k := min(frame.HeaderLen-len(s.head), len(p))
			s.head = append(s.head, p[:k]...)
			if p = p[k:]; len(s.head) < frame.HeaderLen {
				break
			}
			kind := s.head[frame.HeaderLen-1]
			s.op, s.length = ws.OpBinary, int(binary.BigEndian.Uint32(s.head))
			if p = append([]byte{kind}, p...); frame.Kind(kind) == frame.Control {
				s.op, s.length, p = ws.OpText, s.length-1, p[1:]
			}
			s.head, s.sent, s.whole = s.head[:0], 0, !s.whole
		}
		k := min(s.length-s.sent, len(p))
		if err := s.part(p[:k]); err != nil {
			return 0, err
		}
		p = p[k:]
	}
	return n, nil
}

// part sends the next bytes of the message. The caller holds mu.
func (s *webSocket) part(p []byte) error {
	var b bytes.Buffer
	at := s.sent
	s.sent += len(p)
	h := ws.Header{Fin: true, OpCode: s.op, Masked: true, Mask: mask, Length: int64(s.length)}
	if !s.whole {
		h.Fin, h.Length = s.sent == s.length, int64(len(p))
		if at > 0 {
			h.OpCode = ws.OpContinuation
		}
	}
	if at == 0 || !s.whole {
		_ = ws.WriteHeader(&b, h) // a Buffer accepts all bytes
	}
	if !s.whole {
		at = 0
	}
	p = bytes.Clone(p)
	ws.Cipher(p, mask, at)
	b.Write(p)
	if s.pong != nil && s.sent == s.length {
		b.Write(pong(s.pong))
		s.pong = nil
	}
	_, err := s.Conn.Write(b.Bytes())
	return err
}

func pong(p []byte) []byte {
	b, err := ws.CompileFrame(ws.MaskFrameWith(ws.NewPongFrame(p), mask))
	if err != nil {
		panic(err) // this program made the frame
	}
	return b
}

// answer sends the pong for a ping. If a frame is being written, the pong follows it.
func (s *webSocket) answer(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole && s.sent < s.length {
		s.pong = p
		return nil
	}
	_, err := s.Conn.Write(pong(p))
	return err
}

// A rawTerminal is a session's raw WebSocket.
type rawTerminal struct{ *webSocket }

// Write sends p as one message, in two parts. webSocket sends a control frame as a text message, which is how
// a raw terminal receives input.
func (r rawTerminal) Write(p []byte) (int, error) {
	f := frame.Append(nil, frame.Control, p)
	if _, err := r.webSocket.Write(f[:len(f)-len(p)/2]); err != nil {
		return 0, err
	}
	_, err := r.webSocket.Write(f[len(f)-len(p)/2:])
	return len(p), err
}

// printed implements terminal.
func (r rawTerminal) printed() ([]byte, error) {
	op, m, err := r.message()
	if err == nil && op != ws.OpBinary {
		err = fmt.Errorf("text message %.100q instead of output", m)
	}
	return m, err
}
