package session

import (
	"sync"
	"time"
)

// A session is halted while another program takes it over. Then its reader does not read from the
// terminal, no goroutine writes to it, and loop does no other work. Output stays in the kernel
// meanwhile; if the kernel's buffer is full, the child waits.

// halt halts the session and then calls whenHalted in loop. thaw ends the halt.
//
// Errors: session_not_found if the session is gone; busy if loop does not answer within limit,
// and then the session was not halted.
func (s *Session) halt(limit time.Duration, whenHalted func()) (thaw func(), err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	halted, thawed := make(chan struct{}), make(chan struct{})
	q := newAsk(func() {
		h := newHalt()
		s.reader.stop(h, s.receive)
		s.input.stop() // from now on, all input that is not written to the terminal is in the journal
		whenHalted()
		close(halted)
		<-thawed
		s.reader.resume(h) // it continues only after loop has caught up
		if s.exit == nil {
			until := time.Time{}
			if s.childEnded {
				until = time.Now().Add(drainQuiet)
			}
			s.reader.setDeadline(until)
		}
		_, s.display.received, _ = s.ring.Bounds()
		s.input.restart()
	})
	q.isAlone = true
	select {
	case s.asks <- q:
		<-halted
		return sync.OnceFunc(func() { close(thawed) }), nil
	case <-s.gone:
		return nil, notFound(s.id)
	case <-timer.C:
		return nil, busyError(s.id)
	}
}
