package link

import (
	"errors"
	"net"
	"time"

	"github.com/hashicorp/yamux"
)

// When a session ends, yamux wakes whoever waits in Read or Write of a stream,
// and until it has marked that stream as closed too they go round in circles.
// A thousand of them keep the one that would mark them from running, for
// minutes. So we note who waits, and send them away by a deadline before the
// session hears of its end; they come back when it is over.

// longAgo is a deadline that ends what is under way.
var longAgo = time.Unix(1, 0)

// A watched connection tells of its end before yamux learns of it. Where the
// end is yamux's own doing, because the peer broke its rules, Close tells, a
// moment late.
type watched struct {
	net.Conn
	ending func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.ending()
	}
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		w.ending()
	}
	return n, err
}

func (w *watched) Close() error {
	w.ending()
	return w.Conn.Close()
}

// enter notes that a goroutine may wait in s, and returns false where it must
// not any more.
func (c *Conn) enter(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return false
	}
	c.waiting[s]++
	return true
}

func (c *Conn) leave(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[s]--; c.waiting[s] == 0 {
		delete(c.waiting, s)
	}
}

// sendAway is called when the session is about to end.
func (c *Conn) sendAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	for s := range c.waiting {
		_ = s.mux.SetDeadline(longAgo) // it never fails
	}
}

// ended reports whether the session is about to end, and returns when it has.
func (c *Conn) ended() bool {
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	if ending {
		_ = c.mux.Close() // or waits for whoever does
	}
	return ending
}

// Read reads what the peer sent: all of it, also when the link has ended
// meanwhile, and then io.EOF.
func (s *Stream) Read(p []byte) (int, error) {
	if s.conn.enter(s) {
		n, err := s.mux.Read(p)
		s.conn.leave(s)
		if n > 0 || !errors.Is(err, yamux.ErrTimeout) || !s.conn.ended() {
			return n, err
		}
	}
	s.conn.ended()
	return s.mux.Read(p)
}

func (s *Stream) write(p []byte) error {
	if !s.conn.enter(s) {
		return yamux.ErrSessionShutdown
	}
	defer s.conn.leave(s)
	_, err := s.mux.Write(p)
	return err
}

// SetDeadline bounds reads and writes under way and to come.
func (s *Stream) SetDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.ending {
		return nil // nothing waits any more
	}
	return s.mux.SetDeadline(t)
}
