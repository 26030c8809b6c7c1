package e2e

import (
	"errors"
	"net"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// A peer is a connection whose frames the test writes and reads itself, so that it can also break the rules
// of the protocol.
type peer struct {
	net.Conn
	frames *frame.Reader
}

// peer connects to a socket of the world.
func (w *world) peer(socket string) (*peer, error) {
	nc, err := net.Dial("unix", w.Path(socket))
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return &peer{nc, frame.NewReader(nc, frame.Max)}, nil
}

// client connects to the proxy and sends hello. It does not wait for the answer.
func (w *world) client(hello api.Hello) *peer {
	w.T.Helper()
	p, err := w.peer("proxy.sock")
	testkit.Must(w.T, err)
	w.T.Cleanup(func() { _ = p.Close() })
	if hello.Client == "" {
		hello.Client = "by hand"
	}
	testkit.Must(w.T, p.send(hello))
	return p
}

// encode returns a message as a frame.
func encode(m protocol.Message) []byte {
	b, err := protocol.Encode(m)
	if err != nil {
		panic(err) // this program made the message, so it can be encoded
	}
	return frame.Append(nil, frame.Control, b)
}

func (p *peer) send(m protocol.Message) error {
	_, err := p.Write(encode(m))
	return err
}

// receive returns the next control message. It drops all other frames.
func (p *peer) receive() (protocol.Message, error) {
	for {
		kind, payload, err := p.frames.Next()
		if err != nil {
			return nil, err
		}
		if kind == frame.Control {
			m, _, err := api.Messages.Decode(payload)
			return m, err
		}
	}
}

// greet sends hello with a token, which may be empty, and expects welcome.
func (p *peer) greet(token string) error {
	if err := p.send(api.Hello{Protocol: protocol.Supported(), Client: "by hand", Token: token}); err != nil {
		return err
	}
	m, err := p.receive()
	if err != nil {
		return err
	}
	if _, ok := m.(*api.Welcome); !ok {
		return errors.New("hello answered by " + m.MessageType())
	}
	return nil
}

func (p *peer) list() error {
	if err := p.send(&api.List{Request: protocol.Request{RequestID: "1"}}); err != nil {
		return err
	}
	m, err := p.receive()
	if err != nil {
		return err
	}
	if _, ok := m.(*api.Sessions); !ok {
		return errors.New("list answered by " + m.MessageType())
	}
	return nil
}
