package link

import (
	"errors"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// When a session ends, yamux wakes all goroutines that wait in Read or Write of a stream.
// Each of them then spins until yamux has marked its stream as closed. If a thousand
// goroutines spin, the goroutine that marks the streams does not run for minutes. A Conn
// therefore counts the waiting goroutines of each stream. Before the session learns that it
// has ended, the Conn makes them return by a deadline; then they wait for the end without
// spinning.

// longAgo is a deadline in the past. It ends all reads and writes in progress.
var longAgo = time.Unix(1, 0)

// A watchedConn calls ending before yamux learns that the connection has ended. If yamux
// itself ends the connection because the peer has violated its protocol, ending is called a
// moment late, by Close.
type watchedConn struct {
	net.Conn
	ending func()
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.ending()
	}
	return n, err
}

func (w *watchedConn) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		w.ending()
	}
	return n, err
}

func (w *watchedConn) Close() error {
	w.ending()
	return w.Conn.Close()
}

// addWaiter registers a goroutine that may wait in s. It returns false if the session is
// about to end; the goroutine must not wait in s then.
func (c *Conn) addWaiter(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return false
	}
	c.waiting[s]++
	return true
}

// removeWaiter removes a registration of addWaiter.
func (c *Conn) removeWaiter(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[s]--; c.waiting[s] == 0 {
		delete(c.waiting, s)
	}
}

// interruptWaiters makes all waiting goroutines return, because the session is about to end.
func (c *Conn) interruptWaiters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	for s := range c.waiting {
		_ = s.mux.SetDeadline(longAgo) // SetDeadline of yamux always succeeds
	}
}

// awaitEnd returns false at once if the session is not about to end. Otherwise it waits until
// the session has ended, and returns true.
func (c *Conn) awaitEnd() bool {
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	if ending {
		_ = c.mux.Close() // if another goroutine closes the session, Close waits until that has finished
	}
	return ending
}

// Read reads bytes that the peer has sent. If the link ends, Read still returns all bytes
// that have arrived, and then io.EOF.
func (s *Stream) Read(p []byte) (int, error) {
	if s.conn.addWaiter(s) {
		n, err := s.mux.Read(p)
		s.conn.removeWaiter(s)
		if n > 0 || !errors.Is(err, yamux.ErrTimeout) || !s.conn.awaitEnd() {
			return n, err
		}
	}
	s.conn.awaitEnd()
	return s.mux.Read(p)
}

func (s *Stream) write(p []byte) error {
	if !s.conn.addWaiter(s) {
		return yamux.ErrSessionShutdown
	}
	defer s.conn.removeWaiter(s)
	_, err := s.mux.Write(p)
	return err
}

// SetDeadline sets the deadline of all present and future reads and writes of the stream.
func (s *Stream) SetDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.ending {
		return nil // the deadline of interruptWaiters must remain
	}
	return s.mux.SetDeadline(t)
}
