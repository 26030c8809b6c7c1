package web

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"holdfast/protocol/frame"
	"holdfast/proxy/internal/apiserver"
)

const (
	closeTimeout  = 200 * time.Millisecond // for our last words, to a client that does not read
	lingerTimeout = time.Second            // for a client to read them and to close
)

// Statuses that ws has no name for.
const (
	statusServiceRestart ws.StatusCode = 1012
	statusTryAgainLater  ws.StatusCode = 1013
)

// A socket is a live WebSocket, the server's end.
//
//	next   belongs to one goroutine; it answers pings and the client's close
//	write  from any goroutine, a whole message at a time
//	close  from any goroutine: says why, once, and makes next and write fail
//	end    the owner's last call, when nobody uses the socket any more
type socket struct {
	nc net.Conn
	in *reader // owned by next's goroutine

	out *apiserver.Outbox

	wmu     sync.Mutex // held while a frame is written, and over what it takes:
	head    bytes.Buffer
	scratch [ws.MaxHeaderSize]byte
	broken  atomic.Bool // part of a frame may be missing; nothing can follow

	closing sync.Once
	wg      sync.WaitGroup // of sendControl

	mu      sync.Mutex
	closed  bool          // deadlines are close's from here on
	verdict ws.StatusCode // what the client's close, or its fault, is answered with
	why     string
	gone    bool // the client closes, or has closed
	control *control
}

// control is a control frame that waits for its turn.
type control struct {
	op      ws.OpCode
	payload []byte
}

func newSocket(nc net.Conn, rest []byte) *socket {
	return &socket{nc: nc, in: newReader(nc, frame.Max, rest), out: apiserver.NewOutbox(nc)}
}

// next returns the next message, which begins with headroom and is valid until
// the next call.
//
// Errors: a *violation, which the socket will be closed with; io.EOF after the
// client's close; or what went wrong on the connection.
func (s *socket) next() (ws.OpCode, []byte, error) {
	for {
		op, m, err := s.in.next()
		if err == nil && op == ws.OpClose {
			err = s.closedByClient(m[headroom:])
		}
		switch {
		case err != nil:
			s.failed(err)
			return 0, nil, err
		case op == ws.OpPing:
			s.later(ws.OpPong, append([]byte{}, m[headroom:]...))
		case op.IsData():
			return op, m, nil
		}
	}
}

// failed notes what next's error means for the close.
func (s *socket) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v *violation
	if errors.As(err, &v) {
		s.verdict, s.why = v.status, v.what
	} else if errors.Is(err, io.EOF) {
		s.gone = true
	}
}

// closedByClient notes how a close frame is answered: with its own status. It
// returns io.EOF, or what is wrong with the frame.
func (s *socket) closedByClient(payload []byte) error {
	status := ws.StatusNoStatusRcvd
	if len(payload) > 0 {
		var reason string
		status, reason = ws.ParseCloseFrameData(payload)
		if err := ws.CheckCloseFrameData(status, reason); err != nil {
			return violated(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict = status
	return io.EOF
}

// later sends a control frame behind what is being written and does not wait
// for that: a client that writes before it reads must be read on. Of several
// pongs the last is enough (RFC 6455, 5.5.3), and a ping of ours never takes
// the place of one.
func (s *socket) later(op ws.OpCode, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.control != nil
	if s.closed || waiting && op == ws.OpPing {
		return
	}
	s.control = &control{op, payload}
	if !waiting {
		s.wg.Go(s.sendControl)
	}
}

func (s *socket) sendControl() {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	s.mu.Lock()
	c := s.control
	s.control = nil
	s.mu.Unlock()
	_ = s.writeLocked(c.op, c.payload) // a failure shows in broken
}

// write writes one message. After an error nothing more can be written.
func (s *socket) write(op ws.OpCode, payload []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return s.writeLocked(op, payload)
}

func (s *socket) writeLocked(op ws.OpCode, payload []byte) error {
	if s.broken.Load() {
		return net.ErrClosed
	}
	s.head.Reset()
	h := ws.Header{Fin: true, OpCode: op, Length: int64(len(payload))}
	_ = ws.WriteHeaderBuffer(&s.head, h, s.scratch[:]) // a Buffer takes all
	if err := s.out.Write(s.head.Bytes(), payload); err != nil {
		s.broken.Store(true)
		return err
	}
	return nil
}

// Probe implements apiserver.Prober.
func (s *socket) Probe() error {
	if s.broken.Load() {
		return net.ErrClosed
	}
	s.later(ws.OpPing, nil)
	return nil
}

// Client implements apiserver.Movable, as do the methods up to WriteRest.
func (s *socket) Client() net.Conn { return s.nc }

func (s *socket) Stop() { s.out.Stop() }

func (s *socket) Stuck() bool { return s.out.Stuck() }

func (s *socket) Waiting() time.Duration { return s.out.Waiting() }

func (s *socket) Leftover() []byte { return s.in.leftover() }

func (s *socket) Unwritten() []byte {
	s.wg.Wait() // a pong may be on its way
	return s.out.Unwritten()
}

func (s *socket) WriteRest(p []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return s.out.Write(p)
}

// SetReadDeadline bounds next.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return s.nc.SetReadDeadline(t)
}

// SetWriteDeadline bounds write.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return s.nc.SetWriteDeadline(t)
}

// close sends a close frame and nothing after it, and ends next. What the
// client's own close or fault calls for goes before the status given. It
// returns when that is done, whoever was first to call it.
func (s *socket) close(status ws.StatusCode, why string) {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		if s.verdict != 0 {
			status, why = s.verdict, s.why
		}
		_ = s.nc.SetWriteDeadline(time.Now().Add(closeTimeout)) // of a write under way, too
		s.mu.Unlock()
		var body []byte
		if status != ws.StatusNoStatusRcvd {
			body = ws.NewCloseFrameBody(status, why)
		}
		s.wmu.Lock()
		_ = s.writeLocked(ws.OpClose, body) // the client may be gone
		s.broken.Store(true)
		s.wmu.Unlock()
		closeWrite(s.nc)
		_ = s.nc.SetReadDeadline(longAgo)
	})
}

// end closes the connection. Unless the client has done so, it is given time
// to read our last words: closing on what it still sends would be a reset,
// which throws them away.
func (s *socket) end() {
	s.close(ws.StatusGoingAway, "")
	s.wg.Wait()
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		linger(s.nc)
	}
	_ = s.nc.Close()
}

// errMoved is of a connection that somebody else goes on with.
var errMoved = errors.New("the connection has been moved")

// endUnless is end for a socket that has not been moved; else it returns
// errMoved.
func (s *socket) endUnless(moved bool) error {
	if moved {
		return errMoved
	}
	s.end()
	return nil
}

// linger says that nothing more comes, and waits a while for the other side to
// close.
func linger(nc net.Conn) {
	closeWrite(nc)
	if nc.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}

func closeWrite(nc net.Conn) {
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // it may be closed by the other side
	}
}
