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

// Cages makes the control groups of sessions; *cage.Root is the real one.
type Cages interface {
	New(name string, required, defaults protocol.Limits) (*cage.Cage, error)
	Adopt(dir string) *cage.Cage
	Sweep()
}

// enterCage makes the session's cage, and says in spec that the child starts in it.
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

// startChild starts the child, in its cage if there is one. If the kernel refuses that
// and no limits were asked for, the child starts without a cage.
func (s *Session) startChild(spec pty.Spec, defaults protocol.Limits) (PTY, error) {
	limited := !s.spec.Limits.IsZero()
	err := s.enterCage(&spec, defaults)
	if err != nil {
		s.leaveCage()
		return nil, err
	}
	if spec.Cgroup != nil {
		defer func(f *os.File) { _ = f.Close() }(spec.Cgroup)
	}
	p, err := s.cfg.Start(spec)
	if err != nil && s.cage != nil && !limited && refusedCgroup(err) {
		s.log.Warn().Err(err).Msg("session starts without a cage")
		s.leaveCage()
		s.spec.Limits = protocol.Limits{}
		spec.Cgroup = nil
		p, err = s.cfg.Start(spec)
	}
	if err != nil {
		s.leaveCage()
	}
	return p, err
}

// refusedCgroup reports whether a start can have failed for its cgroup: clone(2) says
// EBUSY and EOPNOTSUPP of what it does not like, others come of sandboxes that know
// no clone3(2), and ENODEV of a cgroup that was removed.
func refusedCgroup(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPERM, syscall.ENODEV, syscall.E2BIG} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// leaveCage gives up a cage in which nothing has started.
func (s *Session) leaveCage() {
	s.cage.Remove()
	s.cage = nil
}

// Use returns what the session uses now, as the kernel counts it, and its limits; nil
// if it has no cage or has exited. It is read at once, without the session's loop.
func (s *Session) Use() *protocol.Cage {
	if isClosed(s.exited) {
		return nil // its record has what it used
	}
	use := s.cage.Use()
	if use != nil {
		use.Limits = *s.limits.Load()
	}
	return use
}

// usedUp is what the session's exit record says of its cage. It is read when the child
// has ended, so that the counts are those of all its life.
func (s *Session) usedUp() *protocol.Cage {
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

// Limit changes limits, and leaves those that are not given. Errors: invalid_argument,
// unsupported; those of open.
func (s *Session) Limit(l protocol.Limits) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	if err := s.cage.Limit(l); err != nil {
		return err
	}
	return s.request(func() error {
		s.spec.Limits = l.Over(s.spec.Limits)
		s.storeLimits(s.spec.Limits)
		s.note()
		return s.newSavedSpec()
	})
}

// storeLimits has others read the limits in force.
func (s *Session) storeLimits(l protocol.Limits) { s.limits.Store(&l) }

// SetFrozen stops all processes of the session, or has them run on. It does not wait
// for a loop that is busy with what they print. Errors: unsupported; those of open.
func (s *Session) SetFrozen(frozen bool) error {
	if err := s.open(); err != nil {
		return err
	}
	return s.setFrozen(frozen)
}

func (s *Session) setFrozen(frozen bool) error {
	s.orders.mu.Lock()
	defer s.orders.mu.Unlock()
	if s.cage != nil && s.stopped.Load() == frozen {
		return nil
	}
	if err := s.cage.Freeze(frozen); err != nil {
		if protocol.CodeOf(err) == protocol.CodeInternal {
			err = fmt.Errorf("freeze session %s: %w", s.id, err)
		}
		return err
	}
	s.stopped.Store(frozen)
	go s.do(s.tellFrozen) // after the answer, if loop is busy
	return nil
}

// tellFrozen publishes whether the session is frozen, if that has changed. It is called
// in loop, so that events come in their order.
func (s *Session) tellFrozen() {
	frozen := s.stopped.Load()
	if frozen == s.toldFrozen {
		return
	}
	s.toldFrozen, s.unpublished = frozen, true
	kind, what := protocol.EventThawed, "session thawed"
	if frozen {
		kind, what = protocol.EventFrozen, "session frozen"
	}
	s.log.Info().Msg(what)
	info := s.info()
	s.hub.Publish(kind, &info, nil)
}

// thawForEnd has a frozen session hear the signals of its end: no other than SIGKILL
// acts on a frozen process.
func (s *Session) thawForEnd() {
	if !s.stopped.Load() {
		return
	}
	if err := s.setFrozen(false); err != nil {
		s.log.Warn().Err(err).Msg("session not thawed before its end")
	}
}

// endLeft ends what a session whose child has ended has left behind in its cage, if
// there is something.
func (s *Session) endLeft() (ended bool, err error) {
	switch {
	case isClosed(s.gone):
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
		if isClosed(s.exited) {
			s.cage.Remove()
		}
	}()
	return true, nil
}

// endAll ends everything in the cage: the terminal's programs get the soft signal
// first, and SIGKILL goes to all that is left when the child has ended or its grace
// has passed. It returns the pids that no signal ended.
func (s *Session) endAll(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	_ = s.pty.Signal(soft) // it may have ended
	select {
	case <-s.pty.Done():
	case <-time.After(grace):
		hard = true
	}
	return hard, s.cage.Kill()
}
