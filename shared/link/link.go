// Package link is the connection between a proxy and the supervisor: yamux on a Unix
// socket, which begins with a hello message.
//
// The proxy opens streams, and the supervisor accepts them. Each stream begins with one
// request. Call sends a request, receives the reply and closes the stream. Open leaves the
// stream open for further frames. Each end closes its own side of a stream. Closing a Conn
// closes all its streams.
//
// Invariant: neither end sends or accepts another message before both have exchanged hello
// and welcome.
//
// Not here: the meaning of the messages (protocol/link), the supervisor's handlers
// (linkserver) and the proxy's requests (linkclient). No other package imports yamux.
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
	"holdfast/shared/logging"
	"holdfast/shared/rawio"
)

const (
	// helloTimeout limits the wait for the peer's hello or welcome.
	helloTimeout = 2 * time.Second
	// listTimeout limits the wait for each message of the list of sessions that follows, and
	// not for the whole list, because a list of thousands of sessions takes longer. It is
	// longer than helloTimeout, because the peer has answered by then: if it is slow, the
	// machine is busy, and another link would have to list all sessions again.
	listTimeout = 10 * time.Second
	// proxyCloseTimeout and supervisorCloseTimeout are how long a stream that the proxy or the
	// supervisor has closed waits until the other one closes it. Then the stream is reset, which
	// discards what the other one has not read. What the supervisor still writes to a stream
	// that the proxy has closed is not wanted. But the proxy must receive all of a reply and
	// the end of an attachment, however late it reads: it may be stopped, and the terminal of a
	// viewer may be paused. The second limit only bounds the memory that a proxy which closes
	// no streams takes.
	proxyCloseTimeout      = 5 * time.Second
	supervisorCloseTimeout = time.Hour
	// writeTimeout is yamux's limit for a write to the connection. If a write fails, its
	// stream must be given up, because yamux may send the frame nevertheless. The data of
	// the stream then resumes by offset on another stream.
	writeTimeout = 30 * time.Second
	acceptLimit  = 4096 // streams that the peer has opened and Accept has not returned yet
)

// A Conn is one link. Its methods are safe for concurrent use.
type Conn struct {
	mux *yamux.Session

	mu      sync.Mutex
	ending  bool
	waiting map[*Stream]int // number of goroutines that may wait in yamux, by stream; see end.go
}

// newConn makes a link of nc, which newConn closes if it fails. side is proxySide or
// supervisorSide.
func newConn(nc net.Conn, log zerolog.Logger, side func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)) (*Conn, error) {
	c := &Conn{waiting: make(map[*Stream]int)}
	var err error
	if c.mux, err = side(&watchedConn{&coalescer{Conn: rawio.Conn(nc)}, c.interruptWaiters}, config(log)); err != nil {
		return nil, fmt.Errorf("link: %w", errors.Join(err, nc.Close()))
	}
	return c, nil
}

func config(log zerolog.Logger) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false // the kernel reports the end of a Unix socket's peer at once
	c.AcceptBacklog = acceptLimit
	c.StreamOpenTimeout = 0
	c.ConnectionWriteTimeout = writeTimeout
	c.LogOutput = &logWriter{log: log}
	return c
}

func proxySide(nc io.ReadWriteCloser, c *yamux.Config) (*yamux.Session, error) {
	c.StreamCloseTimeout = proxyCloseTimeout
	return yamux.Client(nc, c)
}

func supervisorSide(nc io.ReadWriteCloser, c *yamux.Config) (*yamux.Session, error) {
	c.StreamCloseTimeout = supervisorCloseTimeout
	return yamux.Server(nc, c)
}

// A logWriter logs the lines of yamux's own log with their levels lowered by one. It limits their number, because yamux
// writes a line for each frame of a stream that one side has given up, as clients can cause at any rate.
type logWriter struct {
	log   zerolog.Logger
	limit logging.Limiter
}

func (w *logWriter) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	log := w.limit.Of(w.log)
	event := log.Debug()
	switch {
	case strings.Contains(line, "[ERR]"):
		event = log.Warn() // no error, because the user of the link reports its end
	case strings.Contains(line, "[WARN]"):
		event = log.Info()
	}
	event.Str("detail", line).Msg("yamux")
	return len(p), nil
}

// Dial sends hello on a new connection and returns the link, the supervisor's welcome and
// the sessions that the supervisor lists. Dial owns nc and closes it if it fails.
//
// If the supervisor refuses the hello, the error is its protocol_mismatch or unauthorized.
// Otherwise the error is that of the connection.
func Dial(nc net.Conn, hello link.Hello, log zerolog.Logger) (*Conn, *link.Welcome, []protocol.SessionInfo, error) {
	c, err := newConn(nc, log, proxySide)
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
	defer func() { _ = s.Close() }() // the hello is complete, so a failure changes nothing
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
	sessions, err := s.readSessions(func() { _ = s.SetDeadline(time.Now().Add(listTimeout)) })
	return welcome, sessions, err
}

// A Welcomer answers a proxy's hello with a welcome and the list of sessions. If it returns
// an error, the error is sent to the proxy and the link ends.
type Welcomer func(*link.Hello) (link.Welcome, []protocol.SessionInfo, error)

// Accept receives a proxy's hello on a new connection, sends the answer, and returns the link
// and the hello. Accept owns nc and closes it if it fails.
func Accept(nc net.Conn, answer Welcomer, log zerolog.Logger) (*Conn, *link.Hello, error) {
	c, err := newConn(nc, log, supervisorSide)
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
	// AcceptStream of yamux has no deadline.
	timer := time.AfterFunc(helloTimeout, func() { _ = c.mux.Close() })
	defer timer.Stop()
	s, err := c.Accept()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	hello, err := s.receiveHello()
	if err != nil && protocol.CodeOf(err) == protocol.CodeInternal { // the connection failed, so an answer cannot be sent
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
	return hello, s.sendSessions(sessions, func() { timer.Reset(listTimeout) })
}

// receiveHello receives a hello, and returns hello_required if the message is another one.
func (s *Stream) receiveHello() (*link.Hello, error) {
	s.frames.SetMax(frame.MaxHello)
	m, err := s.Receive()
	s.frames.SetMax(frame.Max)
	hello, ok := m.(*link.Hello)
	if ok || err != nil && protocol.CodeOf(err) != protocol.CodeUnsupported {
		return hello, err
	}
	return nil, protocol.Errorf(protocol.CodeHelloRequired, "the first message must be hello")
}

// refuse sends reason to the peer and waits until the peer has closed the stream, because
// closing the connection earlier could discard the message.
func (s *Stream) refuse(reason error) error {
	err := s.Fail(reason)
	_ = s.Close()
	_, _ = io.Copy(io.Discard, s) // ends when the peer closes the stream, or at the hello's time limit
	return errors.Join(reason, err)
}

// Close ends the link and all its streams.
func (c *Conn) Close() error {
	c.interruptWaiters()
	if err := c.mux.Close(); err != nil {
		return fmt.Errorf("close link: %w", err)
	}
	return nil
}

// Done returns a channel that is closed when the link has ended.
func (c *Conn) Done() <-chan struct{} { return c.mux.CloseChan() }

func (c *Conn) open() (*Stream, error) {
	m, err := c.mux.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return newStream(c, m), nil
}

// Open opens a stream, sends a request and returns the stream with the reply. If the reply is
// an error message, Open returns it as a *protocol.Error. ctx limits the request and its
// reply, but not the stream.
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
		if ctx.Err() != nil { // err is only the effect of the deadline that ctx has set
			err = ctx.Err()
		}
		return nil, nil, err
	}
	return s, reply, nil
}

// Call sends a request on a new stream, closes the stream and returns the reply. It returns
// an error message as a *protocol.Error.
func (c *Conn) Call(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	s, reply, err := c.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	return reply, s.Close()
}

// Accept returns the next stream that the peer has opened. The first message of the stream is
// a request. If Accept fails, the link has ended.
func (c *Conn) Accept() (*Stream, error) {
	m, err := c.mux.AcceptStream()
	if err != nil {
		return nil, fmt.Errorf("accept stream: %w", err)
	}
	return newStream(c, m), nil
}

func unexpected(m protocol.Message) error {
	return protocol.Errorf(protocol.CodeBadFrame, "unexpected message %s", m.MessageType())
}

// A Stream transports frames in both directions. One goroutine may read while others write.
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

// Send writes one control message. It returns frame_too_large if the message is too large.
func (s *Stream) Send(m protocol.Message) error {
	b, err := protocol.Encode(m)
	if err != nil {
		return err
	}
	if len(b)+1 > frame.Max {
		return protocol.Errorf(protocol.CodeFrameTooLarge, "message %s has %d bytes, and a frame has at most %d", m.MessageType(), len(b), frame.Max-1)
	}
	return s.SendRaw(frame.Append(make([]byte, 0, frame.HeaderLen+len(b)), frame.Control, b))
}

// SendRaw writes one complete frame, header included.
func (s *Stream) SendRaw(b []byte) error { return s.write(b) }

// Fail sends err as an error message.
func (s *Stream) Fail(err error) error { return s.Send(link.Error{Error: *protocol.AsError(err)}) }

// Next returns the next complete frame. The frame is valid until the next call.
func (s *Stream) Next() ([]byte, error) { return s.frames.NextRaw() }

// Receive returns the next control message and skips frames of other kinds. If the type of
// the message is unknown, the error is unsupported, and Receive may be called again. After
// every other error, such as bad_frame or the end of the stream, the stream must be given up.
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

// ask sends a request and returns its reply. It returns an error message as a *protocol.Error.
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

// SendSessions sends a list of sessions, in several messages if one would be too large.
func (s *Stream) SendSessions(all []protocol.SessionInfo) error {
	return s.sendSessions(all, func() {})
}

// sendSessions sends a list of sessions, and calls beforeMessage before it makes each message.
func (s *Stream) sendSessions(all []protocol.SessionInfo, beforeMessage func()) error {
	beforeMessage()
	for part, more := range protocol.SplitSessions(all) {
		if err := s.Send(link.Sessions{Sessions: part, More: more}); err != nil {
			return err
		}
		beforeMessage()
	}
	return nil
}

// ReadSessions receives a list of sessions that SendSessions has sent.
func (s *Stream) ReadSessions() ([]protocol.SessionInfo, error) { return s.readSessions(func() {}) }

// readSessions receives a list of sessions, and calls beforeMessage before it waits for each
// message.
func (s *Stream) readSessions(beforeMessage func()) ([]protocol.SessionInfo, error) {
	var all []protocol.SessionInfo
	for {
		beforeMessage()
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

// Close closes this side of the stream, so that the peer reads io.EOF. Read still returns the
// bytes that the peer sends until the peer closes its side.
func (s *Stream) Close() error {
	var err error
	s.close.Do(func() { err = s.mux.Close() })
	return err
}

// Abort closes the stream, interrupts its reads and writes in progress, and frees the buffer of what the peer has sent.
// Otherwise yamux would keep the buffer until the peer closes its side: if one stream of the link waits for that, as long as
// that one, even after the end of the link.
func (s *Stream) Abort() {
	_ = s.SetDeadline(longAgo)
	_ = s.Close()
	s.mux.Shrink()
}
