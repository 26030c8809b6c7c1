package session

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// A requested end must not wait for a session's loop. A program with costly output keeps
// its loop busy, and this is the very program that a user wants to end. Therefore the request
// is stored under a lock of its own, and a goroutine sends the signals.
//
//	Terminate   stores the asker of the end and the reason; a second request
//	            changes neither; loop saves this, if it answers soon
//	hangUp      sends the signals
//	loop        makes the exit record when all signals have been sent

// child is the child of a session, with its cage and the requests of users for it. Any goroutine may call its
// methods. None of them waits for a busy loop, except that SignalFor waits for noteTime.
type child struct {
	*identity
	*mailbox
	*outdated
	cfg           *Config
	log           *zerolog.Logger
	activity      *activity
	hasOutput     func() bool // output waits for loop
	publishFrozen func()      // called in loop after the cage was frozen or thawed

	pty    PTY
	cage   sessionCage
	orders orders               // ends and signals that users have requested
	exited chan struct{}        // closed when exit is set
	exit   *protocol.ExitRecord // set by loop before exited is closed; from then on any goroutine may read it
}

// Exited returns a channel that is closed when Exit has a record.
func (c *child) Exited() <-chan struct{} { return c.exited }

// Exit returns the exit record. It must be called only after the channel of Exited is closed.
func (c *child) Exit() *protocol.ExitRecord { return c.exit }

// hasExited reports whether the session has an exit record.
func (c *child) hasExited() bool { return isClosed(c.exited) }

// ending is a requested end. Its first seven fields never change; loop owns the others.
type ending struct {
	asker    protocol.Asker
	reason   protocol.Reason
	timedOut bool
	soft     syscall.Signal
	grace    time.Duration
	adopted  bool // a previous supervisor began it
	all      bool // end all processes of the cage

	over      bool // all signals have been sent
	hard      bool
	survivors []int
}

// signalled is the last requested signal that was not part of an end.
type signalled struct {
	asker protocol.Asker
	name  string
}

// orders are requests of other goroutines for the child. Any goroutine may read the atomic
// fields; a goroutine must hold mu to set a field.
type orders struct {
	mu         sync.Mutex
	ending     atomic.Pointer[ending]    // nil until an end is requested
	signalled  atomic.Pointer[signalled] // nil until a signal is requested
	isSealed   bool                      // the exit record is being made, so an end can no longer be requested
	isCleaning bool                      // an end was requested after the child had ended
}

// seal prevents further requests for an end. It returns false if an end is in progress.
func (o *orders) seal() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.ending.Load(); e != nil && !e.over {
		return false
	}
	o.isSealed = true
	return true
}

// inUse tells whether a session is in use.
type inUse struct {
	isFrozen  bool
	unusedFor time.Duration // since the last input or output
	hasOutput bool          // output waits for loop
	hasEnded  bool          // the child has ended
}

// endStep is the work that a request for an end causes.
type endStep int

const (
	endNothing   endStep = iota // the end has begun, or is over
	endCage                     // end the processes of the cage, because the end that has begun does not
	endRemainder                // end the remainder of the child's process tree; the exit record still says how the child itself ended
	endBegins                   // end the child
)

// decide returns the work that a request for the end of a session causes. mu must be held. Errors:
// session_running if the end is for an idle session, and this one is not idle.
func (o *orders) decide(e End, id protocol.SessionID, use inUse) (endStep, error) {
	if old := o.ending.Load(); old != nil && e.All && !old.all {
		return endCage, nil
	} else if old != nil || o.isSealed {
		return endNothing, nil
	}
	if e.Idle > 0 && use.isFrozen {
		return endNothing, protocol.Errorf(protocol.CodeSessionRunning, "session %s is frozen and therefore not idle; thaw it first", id)
	}
	if e.Idle > 0 && (use.unusedFor < e.Idle || use.hasOutput) {
		return endNothing, protocol.Errorf(protocol.CodeSessionRunning, "session %s is not idle: its last input or output was %v ago", id, use.unusedFor.Round(time.Millisecond))
	}
	if !use.hasEnded {
		return endBegins, nil
	}
	if o.isCleaning {
		return endNothing, nil
	}
	o.isCleaning = true
	return endRemainder, nil
}

// remainders are the processes that ended children have left on their terminals, and that were asked to
// end. Their grace may be longer than the life of their session, which does not wait for it: Hangup also
// works after the terminal is closed. All sessions of a table share one.
type remainders struct {
	mu     sync.Mutex
	ending map[chan struct{}]PTY // by a channel that is closed when all processes of the terminal have ended
}

// hangUp ends the processes of a terminal. It does not wait for their end.
func (r *remainders) hangUp(p PTY, soft syscall.Signal, grace time.Duration) {
	ended := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending == nil {
		r.ending = make(map[chan struct{}]PTY)
	}
	r.ending[ended] = p
	go func() {
		p.Hangup(soft, grace)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ending, ended)
		close(ended)
	}()
}

// finish waits until all remainders have ended, and kills those that still run after grace. A shutdown
// must call it, because no program would kill them afterwards.
func (r *remainders) finish(grace time.Duration) {
	r.mu.Lock()
	ending := maps.Clone(r.ending)
	r.mu.Unlock()
	deadline := time.Now().Add(grace)
	for ended, p := range ending {
		select {
		case <-ended:
		case <-time.After(time.Until(deadline)):
			p.Hangup(syscall.SIGKILL, 0)
		}
	}
}

// End tells how a session must end.
type End struct {
	Asker    protocol.Asker
	Soft     syscall.Signal // 0 means SIGHUP
	Grace    *time.Duration // nil means the configured time
	Reason   protocol.Reason
	TimedOut bool
	Idle     time.Duration // if not 0, end the session only if it had no input or output for so long
	All      bool          // end all processes of the cage, also after the child has ended; the session must have a cage
}

// Terminate begins the end of the session: the soft signal, the grace, SIGKILL. It does not
// wait for the end. If an end has begun before, Terminate has no effect, so that the first
// reason stays. A busy loop delays it by at most noteTime.
//
// Errors: session_exited; session_not_found if the session was forgotten; session_running if
// the session is frozen or had input or output within e.Idle; unsupported if e.All is set and
// the session has no cage.
func (s *Session) Terminate(e End) error {
	if e.All {
		if ended, err := s.killRemaining(); ended || err != nil {
			return err
		}
	}
	end, err := s.order(e)
	if err != nil || end == nil {
		return err
	}
	s.thawForEnd()
	s.log.Info().Str(logging.Reason, string(end.reason)).Dur("grace", end.grace).Msg("session ending")
	seen, ok := readChildInfo(s.pty)
	note := func() {
		if ok {
			s.setChildInfo(seen)
		}
		s.noteChange()
	}
	if err := s.ask(noteTime, note); err != nil { // hangUp saves it later
		s.log.Info().Msg("session is busy; its end continues and is saved later")
	}
	go s.hangUp(end, note)
	return nil
}

// order stores the request for an end. It returns nil if no end has to begin, because an
// end has begun before or the child has ended.
func (c *child) order(e End) (*ending, error) {
	if c.hasExited() {
		if c.isGone() {
			return nil, notFound(c.id)
		}
		return nil, exitedError(c.id, c.exit)
	}
	soft, grace := e.Soft, c.cfg.Grace
	if soft == 0 {
		soft = syscall.SIGHUP
	}
	if e.Grace != nil {
		grace = *e.Grace
	}
	o := &c.orders
	o.mu.Lock()
	defer o.mu.Unlock()
	step, err := o.decide(e, c.id, inUse{
		isFrozen: c.cage.frozen.Load(), unusedFor: c.cfg.Now().Sub(c.activity.last.get()), // the time while the machine slept does not count
		hasOutput: c.hasOutput(), hasEnded: isClosed(c.pty.Done()),
	})
	switch step {
	case endCage:
		go c.cage.Kill()
	case endRemainder:
		c.cfg.remainders.hangUp(c.pty, soft, grace)
	case endBegins:
		end := &ending{asker: e.Asker.Cut(), reason: cmp.Or(e.Reason, protocol.ReasonUserRequested), timedOut: e.TimedOut, soft: soft, grace: grace, all: e.All}
		o.ending.Store(end)
		return end, nil
	}
	return nil, err
}

// noteTime is how long a request waits until loop has saved its sender, so that a crash does
// not lose it. loop needs some microseconds, unless its program floods.
const noteTime = 25 * time.Millisecond

// hangUp sends the signals of an ending. Then it calls note in loop.
func (s *Session) hangUp(e *ending, note func()) {
	var hard bool
	var survivors []int
	if e.all {
		hard, survivors = s.cage.end(s.pty, e.soft, e.grace)
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

// readChildInfo reads the facts about a child that can only be read while it lives.
func readChildInfo(child PTY) (seen postmortem.Seen, ok bool) {
	seen, ok = postmortem.Observe(child.PID())
	return seen, ok && !isClosed(child.Done()) // otherwise the pid may belong to another process
}

// Interrupt sends SIGINT to the foreground process group. Errors: those of checkOpen.
func (c *child) Interrupt() error { return c.signal(PTY.Interrupt) }

// SignalFor sends a signal to each process group of the terminal. If the child ends by the
// signal, the exit record names asker. Errors: those of checkOpen.
func (c *child) SignalFor(asker protocol.Asker, sig syscall.Signal) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	c.orders.signalled.Store(&signalled{asker.Cut(), pty.SignalName(sig)})
	_ = c.ask(noteTime, c.noteChange) // if loop is busy, the next save contains it
	return c.signal(func(p PTY) error { return p.Signal(sig) })
}

// signal calls send unless the session ends. It does not wait for loop; the PTY itself knows
// whether its child still exists.
func (c *child) signal(send func(PTY) error) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	if err := send(c.pty); err != nil {
		return fmt.Errorf("send signal to session %s: %w", c.id, err)
	}
	return nil
}

// checkOpen returns an error unless the session takes input, signals and sizes. Any goroutine
// may call it.
//
// Errors: session_exited; session_not_found if the session is ending or was forgotten.
func (c *child) checkOpen() error {
	switch {
	case c.isGone():
		return notFound(c.id)
	case c.hasExited():
		return exitedError(c.id, c.exit)
	case c.orders.ending.Load() != nil || isClosed(c.pty.Done()):
		return protocol.Errorf(protocol.CodeSessionNotFound, "session %s is ending", c.id)
	}
	return nil
}
