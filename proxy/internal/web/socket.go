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
	closeTimeout  = 200 * time.Millisecond // for the close frame, to a client that does not read
	lingerTimeout = time.Second            // for a client to read the last bytes and to close
	answerTimeout = time.Second            // for a client to receive an answer that is not a file
)

// Close statuses that package ws does not name.
const (
	statusServiceRestart ws.StatusCode = 1012
	statusTryAgainLater  ws.StatusCode = 1013
)

// A socket is the server's end of a live WebSocket.
//
//	next   must be called by one goroutine; it answers pings and the client's close
//	write  may be called by any goroutine; it writes one whole message
//	close  may be called by any goroutine: it sends one close frame, and then next and write fail
//	end    must be the owner's last call, when no goroutine uses the socket any more
type socket struct {
	nc net.Conn
	in *reader // owned by next's goroutine

	out *apiserver.Outbox

	wmu     sync.Mutex // held while a frame is written; guards head and scratch
	head    bytes.Buffer
	scratch [ws.MaxHeaderSize]byte
	broken  atomic.Bool // a frame may have been written in part, so no other frame may follow

	closing sync.Once
	wg      sync.WaitGroup // counts sendControl

	mu           sync.Mutex
	isClosed     bool          // close owns the deadlines from here on
	verdict      ws.StatusCode // status that answers the client's close or its violation; 0 if there was none
	reason       string
	clientClosed bool // the client has closed its side
	control      *control
}

// A control is a control frame that waits until the frame before it is written.
type control struct {
	op      ws.OpCode
	payload []byte
}

func newSocket(nc net.Conn, remainder []byte) *socket {
	return &socket{nc: nc, in: newReader(nc, frame.Max, remainder), out: apiserver.NewOutbox(nc)}
}

// next returns the next message, which begins with headroom and is valid until the next call.
//
// Its errors are a *violation, which close reports to the client; io.EOF after the client's
// close; or the error of the connection.
func (s *socket) next() (ws.OpCode, []byte, error) {
	for {
		op, m, err := s.in.next()
		if err == nil && op == ws.OpClose {
			err = s.closedByClient(m[headroom:])
		}
		switch {
		case err != nil:
			s.noteFailure(err)
			return 0, nil, err
		case op == ws.OpPing:
			s.sendLater(ws.OpPong, append([]byte{}, m[headroom:]...))
		case op.IsData():
			return op, m, nil
		}
	}
}

// noteFailure stores the close status that an error of next calls for.
func (s *socket) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v *violation
	if errors.As(err, &v) {
		s.verdict, s.reason = v.status, v.reason
	} else if errors.Is(err, io.EOF) {
		s.clientClosed = true
	}
}

// closedByClient stores the status of the client's close frame, which the answer must repeat. It
// returns io.EOF, or a *violation if the frame is invalid.
func (s *socket) closedByClient(payload []byte) error {
	status := ws.StatusNoStatusRcvd
	if len(payload) > 0 {
		var reason string
		status, reason = ws.ParseCloseFrameData(payload)
		if err := ws.CheckCloseFrameData(status, reason); err != nil {
			return newViolation(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdict = status
	return io.EOF
}

// sendLater queues a control frame behind the frame that is being written, and does not wait: a
// client may write without reading, and next must continue to read from it. If several pongs are
// queued, only the last one is sent (RFC 6455, 5.5.3). A ping never replaces a queued pong.
func (s *socket) sendLater(op ws.OpCode, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.control != nil
	if s.isClosed || waiting && op == ws.OpPing {
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
	_ = s.writeLocked(c.op, c.payload) // later writes fail, because broken is set
}

// write sends one message. After an error all later calls fail.
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
	_ = ws.WriteHeaderBuffer(&s.head, h, s.scratch[:]) // writing to a bytes.Buffer cannot fail
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
	s.sendLater(ws.OpPing, nil)
	return nil
}

// Client and the methods up to WriteRest implement apiserver.Movable.
func (s *socket) Client() net.Conn { return s.nc }

func (s *socket) Stop() { s.out.Stop() }

func (s *socket) Stuck() bool { return s.out.Stuck() }

func (s *socket) Waiting() time.Duration { return s.out.Waiting() }

func (s *socket) Leftover() []byte { return s.in.leftover() }

func (s *socket) Unwritten() []byte {
	s.wg.Wait() // sendControl may be writing a pong
	return s.out.Unwritten()
}

func (s *socket) WriteRest(p []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return s.out.Write(p)
}

// SetReadDeadline sets the deadline of next.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return net.ErrClosed
	}
	return s.nc.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of write.
func (s *socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return net.ErrClosed
	}
	return s.nc.SetWriteDeadline(t)
}

// close sends a close frame as the last frame, and makes next return. If the client has closed or
// violated the protocol, the status for that replaces the given one. Only the first call acts;
// other calls return when the first one is done.
func (s *socket) close(status ws.StatusCode, reason string) {
	s.closing.Do(func() {
		s.mu.Lock()
		s.isClosed = true
		if s.verdict != 0 {
			status, reason = s.verdict, s.reason
		}
		_ = s.nc.SetWriteDeadline(time.Now().Add(closeTimeout)) // also bounds a write that is under way
		s.mu.Unlock()
		var body []byte
		if status != ws.StatusNoStatusRcvd {
			body = ws.NewCloseFrameBody(status, reason)
		}
		s.wmu.Lock()
		_ = s.writeLocked(ws.OpClose, body) // fails if the client has gone; the connection ends in any case
		s.broken.Store(true)
		s.wmu.Unlock()
		closeWrite(s.nc)
		_ = s.nc.SetReadDeadline(longAgo)
	})
}

// end closes the connection. Unless the client has closed its side, end first gives the client
// time to read the last bytes: if a socket with unread input is closed, the system sends a reset,
// and the client loses those bytes.
func (s *socket) end() {
	s.close(ws.StatusGoingAway, "")
	s.wg.Wait()
	s.mu.Lock()
	clientClosed := s.clientClosed
	s.mu.Unlock()
	if !clientClosed {
		linger(s.nc)
	}
	_ = s.nc.Close()
}

// errMoved means that another process serves the connection.
var errMoved = errors.New("the connection has been moved")

// endUnless ends the socket, or returns errMoved if the connection has been moved.
func (s *socket) endUnless(moved bool) error {
	if moved {
		return errMoved
	}
	s.end()
	return nil
}

// linger closes the sending side and waits up to lingerTimeout until the peer closes the other
// one.
func linger(nc net.Conn) {
	closeWrite(nc)
	if nc.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		_, _ = io.Copy(io.Discard, nc)
	}
}

func closeWrite(nc net.Conn) {
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // fails if the peer has closed the connection
	}
}
