package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// enterCage makes the session's cage, and sets spec so that the child starts in it. Errors:
// unsupported if limits are required and cannot be set.
func (s *Session) enterCage(spec *pty.Spec, defaults protocol.Limits) (err error) {
	if s.cfg.Cages == nil {
		if s.spec.Limits.IsZero() {
			return nil
		}
		return cage.Unsupported("a session with limits", "this supervisor makes no cages")
	}
	if s.cage, err = s.cfg.Cages.New(string(s.instance), s.spec.Limits, defaults); err != nil || s.cage == nil {
		return err
	}
	s.spec.Limits = s.spec.Limits.Over(defaults)
	spec.Cgroup, err = s.cage.Open()
	return err
}

// startChild starts the child, in its cage if there is one. If the kernel refuses the cage and
// the request demands no limits, the child starts without a cage.
func (s *Session) startChild(spec pty.Spec, defaults protocol.Limits) (PTY, error) {
	limited := !s.spec.Limits.IsZero()
	err := s.enterCage(&spec, defaults)
	if err != nil {
		s.removeCage()
		return nil, err
	}
	if spec.Cgroup != nil {
		defer func(f *os.File) { _ = f.Close() }(spec.Cgroup)
	}
	p, err := s.cfg.Start(spec)
	if err != nil && s.cage != nil && !limited && refusedCgroup(err) {
		s.log.Warn().Err(err).Msg("the kernel refused the cage; session starts without one")
		s.removeCage()
		s.spec.Limits = protocol.Limits{}
		spec.Cgroup = nil
		p, err = s.cfg.Start(spec)
	}
	if err != nil {
		s.removeCage()
	}
	return p, err
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

// removeCage removes a cage in which no process has started.
func (s *Session) removeCage() {
	s.cage.Remove()
	s.cage = nil
}

// Use returns what the session uses now, as the kernel counts it, and the session's limits. It
// is nil if the session has no cage or has exited. Use does not wait for loop.
func (s *Session) Use() *protocol.Cage {
	if s.hasExited() {
		return nil // the exit record has its use
	}
	use := s.cage.Use()
	if use != nil {
		use.Limits = *s.limits.Load()
	}
	return use
}

// cageUseAtExit returns the use for the exit record. It must be called after the child has
// ended, so that the counts cover its whole life.
func (s *Session) cageUseAtExit() *protocol.Cage {
	use := s.cage.Use()
	if use == nil {
		return nil
	}
	use.Limits = *s.limits.Load()
	use.MemoryBytes = 0
	if use.OOMKills > 0 {
		use.OOMKilled = postmortem.OOMKilled(filepath.Base(s.cage.Dir()))
	}
	return use
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
		s.spec.Limits = l.Over(s.spec.Limits)
		s.storeLimits(s.spec.Limits)
		s.noteChange()
		return s.newSavedSpec()
	})
}

// storeLimits publishes the limits in force to other goroutines.
func (s *Session) storeLimits(l protocol.Limits) { s.limits.Store(&l) }

// SetFrozen freezes or thaws all processes of the session's cage. It does not wait for loop.
// Errors: unsupported, and those of checkOpen.
func (s *Session) SetFrozen(frozen bool) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	return s.setFrozen(frozen)
}

func (s *Session) setFrozen(frozen bool) error {
	s.orders.mu.Lock()
	defer s.orders.mu.Unlock()
	if s.cage != nil && s.cageFrozen.Load() == frozen {
		return nil
	}
	if err := s.cage.Freeze(frozen); err != nil {
		if protocol.CodeOf(err) == protocol.CodeInternal {
			err = fmt.Errorf("freeze session %s: %w", s.id, err)
		}
		return err
	}
	s.cageFrozen.Store(frozen)
	if !frozen {
		s.lastIO.set(s.cfg.Now()) // the idle time begins again
	}
	go s.do(s.publishFrozen) // if loop is busy, the event comes after the answer
	return nil
}

// publishFrozen publishes whether the session is frozen, if that has changed. It is called in
// loop, so that all events of the session are in order.
func (s *Session) publishFrozen() {
	frozen := s.cageFrozen.Load()
	if frozen == s.publishedFrozen {
		return
	}
	s.publishedFrozen, s.isUnpublished = frozen, true
	kind, what := protocol.EventThawed, "session thawed"
	if frozen {
		kind, what = protocol.EventFrozen, "session frozen"
	}
	s.log.Info().Msg(what)
	s.publishEvent(kind)
}

// thawForEnd thaws a frozen session before it is ended, because a frozen process reacts to no
// signal except SIGKILL.
func (s *Session) thawForEnd() {
	if !s.cageFrozen.Load() {
		return
	}
	if err := s.setFrozen(false); err != nil {
		s.log.Warn().Err(err).Msg("session not thawed before its end")
	}
}

// killRemaining kills the processes that an ended child has left in its cage. ended is false if
// there are none, or if the child still runs.
func (s *Session) killRemaining() (ended bool, err error) {
	switch {
	case s.isGone():
		return false, notFound(s.id)
	case s.cage == nil:
		return false, cage.Unsupported("to end all", "the session has no cage")
	case !isClosed(s.pty.Done()) || !s.cage.Populated():
		return false, nil
	}
	go func() {
		if left := s.cage.Kill(); len(left) > 0 {
			s.log.Warn().Ints("pids", left).Msg("processes of the session's cage could not be killed")
		}
		if s.hasExited() {
			s.cage.Remove()
		}
	}()
	return true, nil
}

// endCage ends all processes of the cage. It sends the soft signal to the terminal's programs,
// waits until the child has ended or grace is over, and then sends SIGKILL to all that remain.
// It returns the pids that survived.
func (s *Session) endCage(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	_ = s.pty.Signal(soft) // fails if the child has ended before
	select {
	case <-s.pty.Done():
	case <-time.After(grace):
		hard = true
	}
	return hard, s.cage.Kill()
}
