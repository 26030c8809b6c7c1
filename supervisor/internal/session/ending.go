package session

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// An end that is asked for must not wait for a session's loop: a program that prints what
// is dear to show keeps that busy, and is the very one that somebody wants to end. So the
// request is recorded under a lock of its own, and a goroutine sends the signals.
//
//	Terminate   records who asked and why; the first request stays
//	            and has loop write that down, if loop answers soon
//	hangUp      sends the signals
//	loop        makes the exit record when all signals have been sent

// An ending is an end that was asked for. The first seven fields never change; loop owns the
// others.
type ending struct {
	asker    protocol.Asker
	reason   protocol.Reason
	timedOut bool
	soft     syscall.Signal
	grace    time.Duration
	adopted  bool // a supervisor before this one began with it
	all      bool // everything in the cage

	over      bool // every signal has been sent
	hard      bool
	survivors []int
}

// signalled is the last signal that was asked for and was no end.
type signalled struct {
	asker protocol.Asker
	name  string
}

// orders are what other goroutines than loop have asked of the child. Their fields may be read by any
// goroutine, and set by those that hold mu.
type orders struct {
	mu        sync.Mutex
	ending    atomic.Pointer[ending]    // nil until an end is asked for
	signalled atomic.Pointer[signalled] // nil until a signal is asked for
	sealed    bool                      // the exit record is being made: no end can be asked for any more
	cleaning  bool                      // an end was asked for after the child had ended
}

// seal has no end be asked for from here on, and returns false if one is under way.
func (o *orders) seal() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.ending.Load(); e != nil && !e.over {
		return false
	}
	o.sealed = true
	return true
}

// End says how to end a session.
type End struct {
	Asker    protocol.Asker
	Soft     syscall.Signal // 0 is SIGHUP
	Grace    *time.Duration // nil is the configured one
	Reason   protocol.Reason
	TimedOut bool
	Idle     time.Duration // where not 0: only if there was no I/O for so long
	All      bool          // everything in the cage, which there must be; also if the child has ended
}

// Terminate begins the end: the soft signal, the grace, SIGKILL. It returns at once, and
// does nothing if an end has begun already: the first reason stays. A loop that is busy
// puts the answer off by noteTime at most.
//
// Errors: session_exited; session_not_found for a session that was forgotten;
// session_running if there was I/O within e.Idle; unsupported if e.All is set and the
// session has no cage.
func (s *Session) Terminate(e End) error {
	if e.All {
		if ended, err := s.endLeft(); ended || err != nil {
			return err
		}
	}
	end, err := s.order(e)
	if err != nil || end == nil {
		return err
	}
	s.thawForEnd()
	s.log.Info().Str(logging.Reason, string(end.reason)).Dur("grace", end.grace).Msg("session ending")
	seen, ok := s.lookAtChild()
	note := func() {
		if ok {
			s.saw(seen)
		}
		s.note()
	}
	if err := s.ask(noteTime, note); err != nil { // hangUp has it noted
		s.log.Info().Msg("session is busy; its end goes on, and is written down later")
	}
	go s.hangUp(end, note)
	return nil
}

// order records that an end is asked for, and returns it; nil if none has to begin.
func (s *Session) order(e End) (*ending, error) {
	if isClosed(s.exited) {
		if isClosed(s.gone) {
			return nil, notFound(s.id)
		}
		return nil, exitedError(s.id, s.exit)
	}
	soft, grace := e.Soft, s.cfg.Grace
	if soft == 0 {
		soft = syscall.SIGHUP
	}
	if e.Grace != nil {
		grace = *e.Grace
	}
	o := &s.orders
	o.mu.Lock()
	defer o.mu.Unlock()
	if old := o.ending.Load(); o.sealed || old != nil {
		if old != nil && e.All && !old.all {
			go s.cage.Kill()
		}
		return nil, nil
	}
	if since := s.cfg.Now().Sub(s.lastIO.get()); e.Idle > 0 && (since < e.Idle || len(s.chunks) > 0) { // not counting what the machine slept
		return nil, protocol.Errorf(protocol.CodeSessionRunning, fmt.Sprintf("session %s was in use %v ago", s.id, since.Round(time.Millisecond)))
	}
	if isClosed(s.pty.Done()) { // it ended by itself; what is left of its tree goes, the record stays true
		if !o.cleaning {
			o.cleaning = true
			s.running.Go(func() { s.pty.Hangup(soft, grace) }) // await runs still, since nothing is sealed
		}
		return nil, nil
	}
	end := &ending{asker: e.Asker.Cut(), reason: cmp.Or(e.Reason, protocol.ReasonUserRequested), timedOut: e.TimedOut, soft: soft, grace: grace, all: e.All}
	o.ending.Store(end)
	return end, nil
}

// noteTime is how long a signal waits for loop to write down who asked for it, so that it
// is known after a crash as well. Loop takes some microseconds unless its program floods.
const noteTime = 25 * time.Millisecond

// hangUp sends the signals of an ending, which loop is to note.
func (s *Session) hangUp(e *ending, note func()) {
	var hard bool
	var survivors []int
	if e.all {
		hard, survivors = s.endAll(e.soft, e.grace)
	}
	if len(survivors) == 0 {
		var byHangup bool
		byHangup, survivors = s.pty.Hangup(e.soft, e.grace)
		hard = hard || byHangup
	}
	s.do(func() {
		note()
		e.over, e.hard, e.survivors = true, hard, survivors
		s.finishIfOver()
	})
}

// lookAtChild returns what can be seen of the child only while it lives.
func (s *Session) lookAtChild() (seen postmortem.Seen, ok bool) {
	seen, ok = postmortem.Look(s.pty.PID())
	return seen, ok && !isClosed(s.pty.Done()) // else the pid may be another's
}

// Interrupt sends SIGINT to the foreground process group.
func (s *Session) Interrupt() error { return s.signal(PTY.Interrupt) }

// Signal sends a signal to every process group of the terminal.
func (s *Session) Signal(sig syscall.Signal) error { return s.SignalFor(protocol.Asker{}, sig) }

// SignalFor is Signal for an asker that the exit record is to name, should the child end by
// the signal.
func (s *Session) SignalFor(asker protocol.Asker, sig syscall.Signal) error {
	if err := s.open(); err != nil {
		return err
	}
	s.orders.signalled.Store(&signalled{asker.Cut(), pty.SignalName(sig)})
	_ = s.ask(noteTime, s.note) // in vain: the record that is made next has it
	return s.signal(func(p PTY) error { return p.Signal(sig) })
}

// signal does not wait for loop, and the PTY knows by itself when its child is no longer
// there.
func (s *Session) signal(send func(PTY) error) error {
	if err := s.open(); err != nil {
		return err
	}
	if err := send(s.pty); err != nil {
		return fmt.Errorf("signal %s: %w", s.id, err)
	}
	return nil
}

// open returns an error unless the session takes input, signals and sizes. It may be called
// by any goroutine.
//
// Errors: session_exited; session_not_found for a session that is ending, or was forgotten.
func (s *Session) open() error {
	switch {
	case isClosed(s.gone):
		return notFound(s.id)
	case isClosed(s.exited):
		return exitedError(s.id, s.exit)
	case s.orders.ending.Load() != nil || isClosed(s.pty.Done()):
		return protocol.Errorf(protocol.CodeSessionNotFound, fmt.Sprintf("session %s is ending", s.id))
	}
	return nil
}
