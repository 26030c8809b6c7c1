package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/rawio"
	"holdfast/shared/version"
)

// Failures that are not answers of the proxy; errors.Is distinguishes them. An answer of the
// proxy is a *protocol.Error.
var (
	ErrConnect = errors.New("connect") // no proxy could be reached
	ErrIO      = errors.New("i/o")     // the connection broke
	ErrDecode  = errors.New("decode")  // the proxy sent an invalid message
)

// An opError is a failure of one of the kinds above.
type opError struct {
	kind error
	err  error
}

func (e *opError) Error() string   { return e.kind.Error() + ": " + e.err.Error() }
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }

func failed(kind, err error) error {
	if err == nil {
		return nil
	}
	return &opError{kind, err}
}

// garbled returns an ErrDecode for an invalid message. It removes the error's code, because a
// code of the local decoder must not look like an answer of the proxy.
func garbled(err error) error {
	if err == nil {
		return nil
	}
	return failed(ErrDecode, errors.New(err.Error()))
}

// A goawayError is the end of a connection that the proxy has announced.
type goawayError struct{ m *api.Goaway }

func (e *goawayError) Error() string {
	return "the proxy is ending: " + e.m.Reason + "; connect again"
}

func goingAway(m *api.Goaway) error { return failed(ErrIO, &goawayError{m}) }

const (
	helloTimeout = 5 * time.Second
	// stuckTime is how long a proxy may take to read a request after the request was canceled.
	stuckTime = time.Second
)

// A conn is a connection to a proxy after hello and welcome.
type conn struct {
	net.Conn
	frames  *frame.Reader
	welcome *api.Welcome
	wmu     sync.Mutex

	isBroken, isLeaving, isGiven bool // guarded by the Client's mu

	silence silence

	answer chan received // Client.read sends the answer to the first attach to it; nil if the attachment reads the connection itself
}

// received is a message, or the error that has ended the connection.
type received struct {
	m   protocol.Message
	err error
}

// dial connects and sends hello.
func dial(ctx context.Context, o *Options) (*conn, error) {
	nc, err := o.Dial(ctx)
	if err != nil {
		return nil, failed(ErrConnect, err)
	}
	nc = rawio.Conn(nc)
	c := &conn{Conn: nc, frames: frame.NewReader(nc, frame.Max)}
	_ = nc.SetDeadline(time.Now().Add(helloTimeout)) // if it fails, the next call fails, too
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err = c.hello(o)
	if s, ok := nc.(*sshConn); ok && protocol.CodeOf(err) == protocol.CodeProtocolMismatch {
		err = fmt.Errorf("%w: %s has Holdfast %s, and this program is of %s", err, s.host(), s.release, version.String())
	}
	if o.Gate != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = failed(ErrIO, fmt.Errorf("the proxy of host %s does not answer: %w", o.Gate.Host, os.ErrDeadlineExceeded))
	}
	if !stop() && (err == nil || errors.Is(ctx.Err(), context.Canceled)) { // the deadline has turned the cancellation into an i/o error
		err = failed(ErrConnect, ctx.Err())
	}
	if err == nil {
		err = failed(ErrIO, nc.SetDeadline(time.Time{}))
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return c, nil
}

func (c *conn) hello(o *Options) error {
	err := c.send(api.Hello{
		Protocol: protocol.Supported(), Client: o.Name, PID: os.Getpid(), Token: o.Token, Secret: o.Secret,
	})
	if err != nil {
		return err
	}
	m, err := c.receive()
	if err != nil {
		return err
	}
	welcome, err := answerTo[*api.Welcome]("hello", m)
	if err != nil {
		return err
	}
	if _, err := protocol.Agree(protocol.Supported(), welcome.Protocol); err != nil {
		return err
	}
	c.welcome = welcome
	return nil
}

// answerTo returns the answer m to a request as a message of type T, or the error that the proxy has answered. The answer
// goaway means that the proxy's successor serves, or soon will.
func answerTo[T protocol.Message](request string, m protocol.Message) (answer T, err error) {
	switch m := m.(type) {
	case T:
		return m, nil
	case *api.Error:
		return answer, &m.Error
	case *api.Goaway:
		return answer, goingAway(m)
	}
	return answer, failed(ErrDecode, fmt.Errorf("%s answered by %s", request, m.MessageType()))
}

func (c *conn) send(m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return failed(ErrDecode, err)
	}
	if len(b)+1 > frame.Max {
		return protocol.Errorf(protocol.CodeFrameTooLarge, "%s of %d bytes", m.MessageType(), len(b))
	}
	return c.write(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b))
}

// sendFor sends a message for a caller with a context. If the proxy has not read all of it stuckTime after the end of ctx, sendFor
// closes the connection, because nothing can follow a part of a message.
func (c *conn) sendFor(ctx context.Context, m protocol.Message) error {
	sent := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		select {
		case <-sent:
		case <-time.After(stuckTime):
			_ = c.Close()
		}
	})()
	defer close(sent)
	err := c.send(m)
	if errors.Is(err, ErrIO) && ctx.Err() != nil {
		err = failed(ErrIO, ctx.Err())
	}
	return err
}

func (c *conn) write(raw []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, err := c.Conn.Write(raw)
	return failed(ErrIO, err)
}

// next returns the next frame; the payload is valid until the next call.
func (c *conn) next() (frame.Kind, []byte, error) {
	kind, payload, err := c.frames.Next()
	c.silence.end()
	var e *protocol.Error
	if errors.As(err, &e) {
		return 0, nil, garbled(err)
	}
	return kind, payload, failed(ErrIO, err)
}

// attachAnswer returns the answer to an attach.
func (c *conn) attachAnswer() (protocol.Message, error) {
	if c.answer == nil {
		return c.receive()
	}
	first := <-c.answer
	c.answer = nil
	return first.m, first.err
}

// receive returns the next control message of a type that this package knows.
func (c *conn) receive() (protocol.Message, error) {
	for {
		kind, payload, err := c.next()
		if err != nil {
			return nil, err
		}
		if kind != frame.Control {
			continue
		}
		m, err := decode(payload)
		if m != nil || err != nil {
			return m, err
		}
	}
}

// decode decodes a control message, and returns nil if its type is unknown.
func decode(payload []byte) (protocol.Message, error) {
	m, _, err := api.Messages.Decode(payload)
	if protocol.CodeOf(err) == protocol.CodeUnsupported {
		return nil, nil
	}
	return m, garbled(err)
}
