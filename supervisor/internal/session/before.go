package session

import (
	"time"

	"holdfast/protocol"
)

// A reopened session replaces an instance that has exited. If the new instance ends right after
// its start, the exit record of the old one must not be lost. Therefore the old instance is set
// aside for a while, and can be restored.
//
//	Reopen               sets the old instance aside; an event reports it as forgotten
//	Forget with restore  removes the failed new instance and restores the old one
//	watchOpener          restores the old instance if the new one ended within the time that
//	                     its opener promised to watch, but the opener has not removed it,
//	                     because the opener itself has ended
//	asideTime            forgets the old instance for good
//
// The vault holds both instances, so that a successor finds both and continues.

const (
	// asideTime must exceed the time for which an opener watches a new instance, at most a
	// minute.
	asideTime = 70 * time.Second
	// maxAside bounds the instances that are set aside. Beyond it, old instances are forgotten
	// at once.
	maxAside = 64
	// openerTime is how long the opener may take to remove an instance that ended early.
	openerTime = 5 * time.Second
)

// forgetReplaced forgets the instances that need not be kept after a new one has replaced r.old.
// If r.old was set aside, that is after asideTime.
func (t *Table) forgetReplaced(r replaced[*Session]) {
	if old := r.old; r.isAside {
		time.AfterFunc(asideTime, func() {
			if t.registry.endAside(old) {
				_ = old.try(old.discard)
			}
		})
	}
	if r.giveUp != nil {
		_ = r.giveUp.try(r.giveUp.discard)
	}
}

// publishForgotten reports the session as forgotten, although it may be restored. It is called
// in loop.
func (s *Session) publishForgotten() error {
	s.isAside, s.isUnpublished = true, true
	info := s.info()
	info.State = protocol.StateForgotten
	s.hub.Publish(protocol.EventForgotten, &info, nil)
	return nil
}

// publishRestored reports a restored session as exited. It is called in loop.
func (s *Session) publishRestored() error {
	s.isAside, s.isUnpublished = false, true
	s.publishEvent(protocol.EventExited)
	return nil
}

// endedEarly reports whether an exited session has ended within the time that its opener
// watches.
func (c *child) endedEarly() bool {
	return c.early > 0 && c.exit.ExitedAt.Sub(c.exit.StartedAt) <= c.early
}

// watchOpener restores the instance before s after openerTime, unless the opener of s does so
// earlier.
func (t *Table) watchOpener(s *Session) {
	if !t.registry.hasAside(s.id) || !s.endedEarly() {
		return
	}
	id, instance := s.id, s.instance
	time.AfterFunc(openerTime, func() { t.remove(id, instance, true) })
}

// remove forgets a session, with or without restoring the instance before. If the session is
// busy, remove tries again later.
func (t *Table) remove(id protocol.SessionID, instance protocol.Instance, restore bool) {
	if protocol.CodeOf(t.forget(id, instance, restore)) == protocol.CodeBusy { // otherwise it is forgotten, or reopened
		time.AfterFunc(answerTime, func() { t.remove(id, instance, restore) })
	}
}

// ForgetFailed removes an instance that has failed right after its start, and restores the
// instance before it with its exit record, if that is still set aside. Errors: those of Forget.
func (t *Table) ForgetFailed(id protocol.SessionID, instance protocol.Instance) error {
	return t.forget(id, instance, true)
}

func (t *Table) forget(id protocol.SessionID, instance protocol.Instance, restore bool) error {
	s, err := t.GetInstance(id, instance)
	if err != nil {
		return err
	}
	if err := s.request(s.discard); err != nil {
		return err
	}
	old, isRestored := t.registry.remove(s, restore)
	switch {
	case old == nil:
	case isRestored:
		if !old.isLost() { // a lost session stays until a user forgets it
			t.expireLater(old, t.cfg.ExitKeep)
		}
		s.log.Info().Str("restored", string(old.instance)).Msg("session failed right after its start; its previous instance is restored with its exit record")
		_ = old.try(old.publishRestored)
	default:
		_ = old.try(old.discard)
	}
	return nil
}

// adoptAside sets old aside after both instances of an id were adopted from a predecessor.
func (t *Table) adoptAside(old, s *Session) {
	_ = old.try(func() error { old.isAside, old.isUnpublished = true, true; return nil })
	r := t.registry.putAside(old)
	if s.exit != nil {
		t.watchOpener(s)
	}
	t.forgetReplaced(r)
}
