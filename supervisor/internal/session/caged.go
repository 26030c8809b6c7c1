package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/postmortem"
	"holdfast/supervisor/internal/pty"
)

// Cages makes the control groups of sessions. Package cage has the implementation, *cage.Root.
type Cages interface {
	New(name string, required, defaults protocol.Limits) (*cage.Cage, error)
	Adopt(dir string) *cage.Cage
	Sweep()
}

// sessionCage is the cage of a session, if it has one, with the limits in force. Any goroutine may
// call its methods.
type sessionCage struct {
	*cage.Cage                                 // nil if the session has no cage
	limits     atomic.Pointer[protocol.Limits] // the value never changes
	frozen     atomic.Bool                     // the processes of the cage are frozen; set while orders.mu is held
	announced  bool                            // frozen as the last event reported it; owned by loop
}

// adopt takes over the cage of a predecessor.
func (c *sessionCage) adopt(from *cage.Cage) {
	c.Cage = from
	c.announced = from.Frozen()
	c.frozen.Store(c.announced)
}

// enterCage makes the cage, and sets spec so that the child starts in it. The limits in force are those
// that the request demands, and for the others the defaults, as far as the system can set them.
// Errors: unsupported if limits are demanded and cannot be set.
func (c *child) enterCage(spec *pty.Spec, defaults protocol.Limits) (err error) {
	demanded := c.spec.Limits
	if c.cfg.Cages == nil {
		if demanded.IsZero() {
			return nil
		}
		return cage.Unsupported("a session with limits", "this supervisor makes no cages")
	}
	if c.cage.Cage, err = c.cfg.Cages.New(string(c.instance), demanded, defaults); err != nil || c.cage.Cage == nil {
		return err
	}
	inForce := demanded.Over(defaults)
	c.cage.limits.Store(&inForce)
	spec.Cgroup, err = c.cage.Open()
	return err
}

// start starts the child, in a new cage if the supervisor makes cages. If the kernel refuses the cage and
// the request demands no limits, the child starts without a cage.
func (c *child) start(spec pty.Spec, defaults protocol.Limits) (PTY, error) {
	c.cage.limits.Store(&c.spec.Limits)
	if err := c.enterCage(&spec, defaults); err != nil {
		c.cage.giveUp()
		return nil, err
	}
	if spec.Cgroup != nil {
		defer func(f *os.File) { _ = f.Close() }(spec.Cgroup)
	}
	p, err := c.cfg.Start(spec)
	if err != nil && c.cage.Cage != nil && c.spec.Limits.IsZero() && refusedCgroup(err) {
		c.log.Warn().Err(err).Msg("the kernel refused the cage; session starts without one")
		c.cage.giveUp()
		c.cage.limits.Store(&protocol.Limits{})
		spec.Cgroup = nil
		p, err = c.cfg.Start(spec)
	}
	if err != nil {
		c.cage.giveUp()
	}
	return p, err
}

// giveUp removes a cage in which no process has started.
func (c *sessionCage) giveUp() {
	c.Remove()
	c.Cage = nil
}

// use returns the resources that the session uses now, as the kernel counts them, and its limits. It
// returns nil if the session has no cage.
func (c *sessionCage) use() *protocol.Cage {
	use := c.Use()
	if use != nil {
		use.Limits = *c.limits.Load()
	}
	return use
}

// useAtExit returns the use for the exit record. It must be called after the child has ended, so
// that the counts cover its whole life.
func (c *sessionCage) useAtExit() *protocol.Cage {
	use := c.use()
	if use == nil {
		return nil
	}
	use.MemoryBytes = 0
	if use.OOMKills > 0 {
		use.OOMKilled = postmortem.OOMKilled(filepath.Base(c.Dir()))
	}
	return use
}

// isFrozenNews reports whether the session is frozen, and whether no event has reported that yet. It
// is called in loop.
func (c *sessionCage) isFrozenNews() (frozen, isNews bool) {
	frozen = c.frozen.Load()
	isNews = frozen != c.announced
	c.announced = frozen
	return frozen, isNews
}

// end ends all processes of the cage. It sends the soft signal to the terminal's programs, waits
// until the child has ended or grace is over, and then sends SIGKILL to all that remain. It returns
// the pids that survived.
func (c *sessionCage) end(p PTY, soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	_ = p.Signal(soft) // fails if the child has ended before
	select {
	case <-p.Done():
	case <-time.After(grace):
		hard = true
	}
	return hard, c.Kill()
}

// refusedCgroup reports whether the cgroup may be the reason why a start has failed. clone(2)
// returns EBUSY, EOPNOTSUPP and ENODEV for unsuitable or removed cgroups. The other errors come
// from sandboxes that do not know clone3(2).
func refusedCgroup(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPERM, syscall.ENODEV, syscall.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Use returns the resources that the session uses now, as the kernel counts them, and its limits. It
// is nil if the session has no cage or has exited. Use does not wait for loop.
func (c *child) Use() *protocol.Cage {
	if c.hasExited() {
		return nil // the exit record has its use
	}
	return c.cage.use()
}

// Limit changes the given limits and leaves the others. Errors: invalid_argument, unsupported,
// and those of checkOpen.
func (s *Session) Limit(l protocol.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if err := s.checkOpen(); err != nil {
		return err
	}
	if err := s.cage.Limit(l); err != nil {
		return err
	}
	return s.request(func() error {
		inForce := l.Over(*s.cage.limits.Load())
		s.cage.limits.Store(&inForce)
		s.noteChange()
		return s.newSavedSpec()
	})
}

// SetFrozen freezes or thaws all processes of the session's cage. It does not wait for loop.
// Errors: unsupported, and those of checkOpen.
func (c *child) SetFrozen(frozen bool) error {
	if err := c.checkOpen(); err != nil {
		return err
	}
	return c.setFrozen(frozen)
}

// setFrozen holds orders.mu while it writes to the cgroup, so that a request for an end finds the
// session either thawed, or frozen and marked as frozen. The kernel does not delay that write.
func (c *child) setFrozen(frozen bool) error {
	c.orders.mu.Lock()
	defer c.orders.mu.Unlock()
	if frozen {
		if err := c.checkOpen(); err != nil { // an end that has begun has thawed the session, and does not thaw it again
			return err
		}
	}
	if c.cage.Cage != nil && c.cage.frozen.Load() == frozen {
		return nil
	}
	if err := c.cage.Freeze(frozen); err != nil {
		if protocol.CodeOf(err) == protocol.CodeInternal {
			err = fmt.Errorf("freeze session %s: %w", c.id, err)
		}
		return err
	}
	c.cage.frozen.Store(frozen)
	if !frozen {
		c.activity.last.set(c.cfg.Now()) // the idle time begins again
	}
	go c.do(c.publishFrozen) // if loop is busy, the event comes after the answer
	return nil
}

// publishFrozen publishes whether the session is frozen, if that has changed. It is called in
// loop, so that all events of the session are in order.
func (s *Session) publishFrozen() {
	frozen, isNews := s.cage.isFrozenNews()
	if !isNews {
		return
	}
	s.noteChange() // also because a successor needs the time of the last use
	kind, what := protocol.EventThawed, "session thawed"
	if frozen {
		kind, what = protocol.EventFrozen, "session frozen"
	}
	s.log.Info().Msg(what)
	s.publishEvent(kind)
}

// thawForEnd thaws a frozen session before it is ended, because a frozen process reacts to no
// signal except SIGKILL, and after the end of the session no request can thaw the processes that its child has left.
func (c *child) thawForEnd() {
	if !c.cage.frozen.Load() {
		return
	}
	if err := c.setFrozen(false); err != nil {
		c.log.Warn().Err(err).Msg("session not thawed before its end")
	}
}

// killRemaining kills the processes that an ended child has left in its cage. ended is false if
// there are none, or if the child still runs.
func (c *child) killRemaining() (ended bool, err error) {
	switch {
	case c.isGone():
		return false, notFound(c.id)
	case c.cage.Cage == nil:
		return false, cage.Unsupported("to end all", "the session has no cage")
	case !isClosed(c.pty.Done()) || !c.cage.Populated():
		return false, nil
	}
	go func() {
		if left := c.cage.Kill(); len(left) > 0 {
			c.log.Warn().Ints("pids", left).Msg("processes of the session's cage could not be killed")
		}
		if c.hasExited() {
			c.cage.Remove()
		}
	}()
	return true, nil
}
