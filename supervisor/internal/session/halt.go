package session

import (
	"sync"
	"time"
)

// A session comes to rest where another program is to go on with it: nothing is
// read of its terminal or typed into it, and loop does nothing else, until it goes
// on. What was printed meanwhile is in the kernel; the child waits if that is full.

// A halt is one such rest.
type halt struct {
	reader chan struct{} // read is at rest
	again  chan struct{} // closed when it may read again
}

// rest is called by read.
func (h *halt) rest() {
	h.reader <- struct{}{}
	<-h.again
}

// longAgo is the deadline that ends what is under way.
var longAgo = time.Unix(1, 0)

// halt brings the session to rest, and calls look, in loop, when it is; thaw lets
// it go on.
//
// Errors: session_not_found for one that is gone; busy if loop does not answer within
// limit, and then nothing has changed.
func (s *Session) halt(limit time.Duration, look func()) (thaw func(), err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	halted, thawed := make(chan struct{}), make(chan struct{})
	ask := func() {
		h := &halt{reader: make(chan struct{}), again: make(chan struct{})}
		s.stand(h)
		look()
		close(halted)
		<-thawed
		s.goOn(h)
	}
	select {
	case s.asks <- ask:
		<-halted
		return sync.OnceFunc(func() { close(thawed) }), nil
	case <-s.gone:
		return nil, notFound(s.id)
	case <-timer.C:
		return nil, busyError(s.id)
	}
}

// stand stops read and await, and takes what has been read. All input that is not
// typed is in the journal then.
func (s *Session) stand(h *halt) {
	s.halting.Store(h)
	if !s.outputOver {
		_ = s.pty.SetReadDeadline(longAgo) // fails only where Read ends by itself
		if s.thawing != nil {              // read is at rest still; it comes to the next one
			close(s.thawing.again)
			s.thawing = nil
		}
		select {
		case s.poke <- struct{}{}:
		default: // it has yet to look
		}
		s.standReader(h)
	}
	if s.input.waiting {
		_ = s.pty.SetWriteDeadline(longAgo) // the same of AwaitWritable
		<-s.takes                           // whatever it says: goOn tries
		s.input.waiting = false
	}
}

// standReader returns when read is at rest, or has ended, and loop has received
// all that it has read.
func (s *Session) standReader(h *halt) {
	for resting := false; !resting || len(s.chunks) > 0; {
		select {
		case c, ok := <-s.chunks:
			if !ok {
				s.outputOver = true // loop sees it, too
				return
			}
			s.receive(c)
		case <-h.reader:
			resting = true
		}
	}
}

// goOn takes stand back.
func (s *Session) goOn(h *halt) {
	s.halting.Store(nil)
	until := time.Time{}
	if s.childEnded {
		until = time.Now().Add(drainQuiet)
	}
	if s.exit == nil {
		_ = s.pty.SetReadDeadline(until)
		_ = s.pty.SetWriteDeadline(time.Time{})
	}
	select {
	case <-s.poke: // nobody had to be told
	default:
	}
	_, s.received, _ = s.ring.Bounds()
	s.thawing = h
	s.wakeReader()
	s.typeOn(nil)
}

// wakeReader has read go on after a rest, once loop has caught up: else more could lie
// between loop and the ring's end than loop may be behind.
func (s *Session) wakeReader() {
	if s.thawing != nil && !s.behind() {
		close(s.thawing.again)
		s.thawing = nil
	}
}
