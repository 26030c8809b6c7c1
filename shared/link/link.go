// Package link is the pipe between a proxy and the supervisor: yamux on a
// Unix socket, with a hello before anything else.
//
// The proxy opens streams, the supervisor accepts them. Each begins with one
// request; Call is a request and its reply, Open keeps the stream for what
// follows. Both ends close their side of a stream; closing a Conn ends all.
//
// Invariant: nothing is sent or believed before both hellos have passed.
//
// Not here: what the messages mean (protocol/link), who answers (linkserver)
// and who asks (linkclient). No other package knows of yamux.
package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
	"holdfast/shared/rawio"
)

const (
	// helloTimeout is how long either side waits for the other's hello, and
	// for each part of the enumeration behind it: thousands of sessions take
	// longer than a word.
	helloTimeout = 2 * time.Second
	// closeTimeout is how long a half-closed stream waits for its peer.
	closeTimeout = 5 * time.Second
	// writeTimeout is yamux's for a whole connection; beyond it a write fails
	// and its stream has to be given up, for the frame may have gone out all
	// the same: what it carried resumes by offset on another.
	writeTimeout = 30 * time.Second
	acceptLimit  = 4096 // streams opened and not yet accepted
)

// A Conn is one link. Its methods may be called from any goroutine.
type Conn struct {
	mux *yamux.Session

	mu      sync.Mutex
	ending  bool
	waiting map[*Stream]int // who may wait in yamux, see end.go
}

// newConn owns nc; side is yamux.Client or yamux.Server.
func newConn(nc net.Conn, log zerolog.Logger, side func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) (*Conn, error) {
	c := &Conn{waiting: make(map[*Stream]int)}
	var err error
	if c.mux, err = side(&watched{&coalescer{Conn: rawio.Conn(nc)}, c.sendAway}, config(log)); err != nil {
		return nil, fmt.Errorf("link: %w", errors.Join(err, nc.Close()))
	}
	return c, nil
}

func config(log zerolog.Logger) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false // a Unix socket's death is seen at once
	c.AcceptBacklog = acceptLimit
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closeTimeout
	c.ConnectionWriteTimeout = writeTimeout
	c.LogOutput = logWriter{log}
	return c
}

// logWriter maps yamux's own log lines to levels.
type logWriter struct{ log zerolog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	event := w.log.Debug()
	switch {
	case strings.Contains(line, "[ERR]"):
		event = w.log.Warn() // the link's end is reported by who uses it
	case strings.Contains(line, "[WARN]"):
		event = w.log.Info()
	}
	event.Str("detail", line).Msg("yamux")
	return len(p), nil
}

// Dial says hello on a fresh connection, which it owns from here on, and
// returns the link, the supervisor's welcome and the sessions it enumerated.
//
// Errors: protocol_mismatch and unauthorized as the supervisor said them,
// else what went wrong on the connection.
func Dial(nc net.Conn, hello link.Hello, log zerolog.Logger) (*Conn, *link.Welcome, []protocol.SessionInfo, error) {
	c, err := newConn(nc, log, yamux.Client)
	if err != nil {
		return nil, nil, nil, err
	}
	welcome, sessions, err := c.hello(hello)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("link hello: %w", errors.Join(err, c.Close()))
	}
	return c, welcome, sessions, nil
}

func (c *Conn) hello(hello link.Hello) (*link.Welcome, []protocol.SessionInfo, error) {
	s, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = s.Close() }() // the hello has been said
	_ = s.SetDeadline(time.Now().Add(helloTimeout))
	reply, err := s.ask(hello)
	if err != nil {
		return nil, nil, err
	}
	welcome, ok := reply.(*link.Welcome)
	if !ok {
		return nil, nil, unexpected(reply)
	}
	if _, err := protocol.Agree(hello.Protocol, welcome.Protocol); err != nil {
		return nil, nil, err
	}
	sessions, err := s.readSessions(func() { _ = s.SetDeadline(time.Now().Add(helloTimeout)) })
	return welcome, sessions, err
}

// Welcomer answers a proxy's hello: with a welcome and the sessions, or with
// an error that is told to the proxy.
type Welcomer func(*link.Hello) (link.Welcome, []protocol.SessionInfo, error)

// Accept takes a proxy's hello on a fresh connection, which it owns from here
// on.
func Accept(nc net.Conn, answer Welcomer, log zerolog.Logger) (*Conn, *link.Hello, error) {
	c, err := newConn(nc, log, yamux.Server)
	if err != nil {
		return nil, nil, err
	}
	hello, err := c.welcome(answer)
	if err != nil {
		return nil, nil, fmt.Errorf("link hello: %w", errors.Join(err, c.Close()))
	}
	return c, hello, nil
}

func (c *Conn) welcome(answer Welcomer) (*link.Hello, error) {
	// yamux's accept has no deadline of its own.
	timer := time.AfterFunc(helloTimeout, func() { _ = c.mux.Close() })
	defer timer.Stop()
	s, err := c.Accept()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	hello, err := s.receiveHello()
	if err != nil && protocol.CodeOf(err) == protocol.CodeInternal { // there is nobody to tell
		return nil, err
	}
	if err != nil {
		return nil, s.refuse(err)
	}
	agreed, err := protocol.Agree(protocol.Supported(), hello.Protocol)
	if err != nil {
		return nil, s.refuse(err)
	}
	welcome, sessions, err := answer(hello)
	if err != nil {
		return nil, s.refuse(err)
	}
	welcome.Protocol, welcome.Agreed = protocol.Supported(), agreed
	if err := s.Send(welcome); err != nil {
		return nil, err
	}
	return hello, s.sendSessions(sessions, func() { timer.Reset(helloTimeout) })
}

// receiveHello returns hello_required for any other message.
func (s *Stream) receiveHello() (*link.Hello, error) {
	s.frames.SetMax(frame.MaxHello)
	m, err := s.Receive()
	s.frames.SetMax(frame.Max)
	hello, ok := m.(*link.Hello)
	if ok || err != nil && protocol.CodeOf(err) != protocol.CodeUnsupported {
		return hello, err
	}
	return nil, protocol.Errorf(protocol.CodeHelloRequired, "the first message is hello")
}

// refuse tells the peer why and waits until it has read that, since closing
// the connection would throw the words away.
func (s *Stream) refuse(reason error) error {
	err := s.Fail(reason)
	_ = s.Close()
	_, _ = io.Copy(io.Discard, s) // until the peer closes or the hello's time is over
	return errors.Join(reason, err)
}

// Close ends the link and all its streams.
func (c *Conn) Close() error {
	c.sendAway()
	if err := c.mux.Close(); err != nil {
		return fmt.Errorf("close link: %w", err)
	}
	return nil
}

// Done is closed when the link has ended.
func (c *Conn) Done() <-chan struct{} { return c.mux.CloseChan() }

func (c *Conn) open() (*Stream, error) {
	m, err := c.mux.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return newStream(c, m), nil
}

// Open starts a stream with a request and returns it with the reply, for what
// follows. An error reply is returned as *protocol.Error. ctx bounds the
// request and its reply, not the stream.
func (c *Conn) Open(ctx context.Context, request protocol.Message) (*Stream, protocol.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.SetDeadline(longAgo) })
	reply, err := s.ask(request)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = s.Close()
		if ctx.Err() != nil { // it caused the deadline's error
			err = ctx.Err()
		}
		return nil, nil, err
	}
	return s, reply, nil
}

// Call is a request and its reply.
func (c *Conn) Call(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	s, reply, err := c.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	return reply, s.Close()
}

// Accept returns the next stream; its first message is a request. Errors mean
// that the link has ended.
func (c *Conn) Accept() (*Stream, error) {
	m, err := c.mux.AcceptStream()
	if err != nil {
		return nil, fmt.Errorf("accept stream: %w", err)
	}
	return newStream(c, m), nil
}

func unexpected(m protocol.Message) error {
	return protocol.Errorf(protocol.CodeBadFrame, "unexpected "+m.MessageType())
}

// A Stream carries frames both ways. One goroutine may read while others
// write.
type Stream struct {
	conn   *Conn
	mux    *yamux.Stream
	frames *frame.Reader
	close  sync.Once
}

func newStream(c *Conn, m *yamux.Stream) *Stream {
	s := &Stream{conn: c, mux: m}
	s.frames = frame.NewReader(s, frame.Max)
	return s
}

// Send writes one control message.
func (s *Stream) Send(m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return err
	}
	if len(b)+1 > frame.Max {
		return protocol.Errorf(protocol.CodeFrameTooLarge, fmt.Sprintf("%s of %d bytes", m.MessageType(), len(b)))
	}
	return s.SendRaw(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b))
}

// SendRaw writes one whole frame.
func (s *Stream) SendRaw(b []byte) error { return s.write(b) }

// Fail answers with an error.
func (s *Stream) Fail(err error) error { return s.Send(link.Error{Error: *protocol.AsError(err)}) }

// Next returns the next frame, whole; it is valid until the next call.
func (s *Stream) Next() ([]byte, error) { return s.frames.NextRaw() }

// Receive returns the next control message and skips other kinds. Errors:
// unsupported for a type it does not know, after which it may be called again;
// bad_frame and the stream's own end it.
func (s *Stream) Receive() (protocol.Message, error) {
	for {
		kind, payload, err := s.frames.Next()
		if err != nil {
			return nil, err
		}
		if kind != frame.Control {
			continue
		}
		m, _, err := link.Messages.Decode(payload)
		return m, err
	}
}

// ask sends a request and returns its reply; an error reply is an error.
func (s *Stream) ask(request protocol.Message) (protocol.Message, error) {
	if err := s.Send(request); err != nil {
		return nil, err
	}
	reply, err := s.Receive()
	if err != nil {
		return nil, err
	}
	if e, ok := reply.(*link.Error); ok {
		return nil, &e.Error
	}
	return reply, nil
}

// SendSessions enumerates sessions in as many messages as it takes.
func (s *Stream) SendSessions(all []protocol.SessionInfo) error {
	return s.sendSessions(all, func() {})
}

// sendSessions calls each before each message.
func (s *Stream) sendSessions(all []protocol.SessionInfo, each func()) error {
	parts := protocol.SplitSessions(all)
	for i, part := range parts {
		each()
		if err := s.Send(link.Sessions{Sessions: part, More: i < len(parts)-1}); err != nil {
			return err
		}
	}
	return nil
}

// ReadSessions reads what SendSessions wrote.
func (s *Stream) ReadSessions() ([]protocol.SessionInfo, error) { return s.readSessions(func() {}) }

// readSessions calls each before it waits for a message.
func (s *Stream) readSessions(each func()) ([]protocol.SessionInfo, error) {
	var all []protocol.SessionInfo
	for {
		each()
		m, err := s.Receive()
		if err != nil {
			return nil, err
		}
		part, ok := m.(*link.Sessions)
		if !ok {
			if e, ok := m.(*link.Error); ok {
				return nil, &e.Error
			}
			return nil, unexpected(m)
		}
		all = append(all, part.Sessions...)
		if !part.More {
			return all, nil
		}
	}
}

// Close ends this side of the stream; the peer reads io.EOF. Reads go on to
// see what it still sends, until it closes too.
func (s *Stream) Close() error {
	var err error
	s.close.Do(func() { err = s.mux.Close() })
	return err
}

// Abort closes the stream and makes reads and writes under way return.
func (s *Stream) Abort() {
	_ = s.SetDeadline(longAgo)
	_ = s.Close()
}
