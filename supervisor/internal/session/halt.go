package session

import (
	"sync"
	"time"
)

// A session is halted while another program takes it over. Then read does not read from its
// terminal, await and loop do not write to it, and loop does no other work. Output stays in the
// kernel meanwhile; if the kernel's buffer is full, the child waits.

// halt is one such halt of a session.
type halt struct {
	readerStopped chan struct{} // receives when read has stopped
	resumed       chan struct{} // closed when read may continue
}

// wait stops read until the halt ends.
func (h *halt) wait() {
	h.readerStopped <- struct{}{}
	<-h.resumed
}

// longAgo is a deadline that ends a read or write in progress.
var longAgo = time.Unix(1, 0)

// halt halts the session and then calls whenHalted in loop. thaw ends the halt.
//
// Errors: session_not_found if the session is gone; busy if loop does not answer within limit,
// and then the session was not halted.
func (s *Session) halt(limit time.Duration, whenHalted func()) (thaw func(), err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	halted, thawed := make(chan struct{}), make(chan struct{})
	ask := func() {
		h := &halt{readerStopped: make(chan struct{}), resumed: make(chan struct{})}
		s.stopIO(h)
		whenHalted()
		close(halted)
		<-thawed
		s.resumeIO(h)
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

// stopIO stops read and await, and receives all output that was read. From then on, all input
// that is not written to the terminal is in the journal.
func (s *Session) stopIO(h *halt) {
	s.halting.Store(h)
	if !s.outputOver {
		_ = s.pty.SetReadDeadline(longAgo) // fails only on a terminal on which a read ends by itself
		if s.haltToResume != nil {         // read is still stopped by the previous halt; it continues into this one
			close(s.haltToResume.resumed)
			s.haltToResume = nil
		}
		select {
		case s.pokeReader <- struct{}{}:
		default: // a wake-up is pending already
		}
		s.stopReader(h)
	}
	if s.input.waiting {
		_ = s.pty.SetWriteDeadline(longAgo) // fails only on a terminal on which AwaitWritable ends by itself
		<-s.writable                        // the result does not matter, because resumeIO tries to write
		s.input.waiting = false
	}
}

// stopReader returns when read has stopped or ended, and loop has received all output that was
// read.
func (s *Session) stopReader(h *halt) {
	for resting := false; !resting || len(s.chunks) > 0; {
		select {
		case c, ok := <-s.chunks:
			if !ok {
				s.outputOver = true // loop finds it out as well
				return
			}
			s.receive(c)
		case <-h.readerStopped:
			resting = true
		}
	}
}

// resumeIO ends the halt. read continues only after loop has caught up, see resumeReader.
func (s *Session) resumeIO(h *halt) {
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
	case <-s.pokeReader: // read did not need the wake-up
	default:
	}
	_, s.display.received, _ = s.ring.Bounds()
	s.haltToResume = h
	s.resumeInput(nil)
}

// resumeReader lets read continue after a halt, as soon as loop has caught up. Otherwise more
// output than the ring permits could lie between loop and the end of the ring. loop calls it
// after each piece of work, because both its own turns and the feed of a request may have
// caught up.
func (s *Session) resumeReader() {
	if s.haltToResume != nil && !s.display.isBehind() {
		close(s.haltToResume.resumed)
		s.haltToResume = nil
	}
}
