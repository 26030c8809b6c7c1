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

// setAside keeps old, which a new instance has replaced. It returns the instance that must be
// forgotten now: old itself if there is no room, otherwise the one that was set aside before,
// or nil. mu must be held.
func (t *Table) setAside(old *Session) (giveUp *Session) {
	if old == nil || isClosed(old.gone) {
		return nil
	}
	giveUp = t.aside[old.id]
	if giveUp == nil && len(t.aside) >= maxAside {
		return old
	}
	t.aside[old.id] = old
	time.AfterFunc(asideTime, func() {
		t.mu.Lock()
		still := t.aside[old.id] == old
		if still {
			delete(t.aside, old.id)
		}
		t.mu.Unlock()
		if still {
			_ = old.try(old.leave)
		}
	})
	return giveUp
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
func (s *Session) endedEarly() bool {
	return s.early > 0 && s.exit.ExitedAt.Sub(s.exit.StartedAt) <= s.early
}

// watchOpener restores the instance before s after openerTime, unless the opener of s does so
// earlier. mu must be held.
func (t *Table) watchOpener(s *Session) {
	if t.aside[s.id] == nil || !s.endedEarly() {
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
	if err := s.forget(); err != nil {
		return err
	}
	t.mu.Lock()
	var old *Session
	if t.sessions[id] == s {
		delete(t.sessions, id)
		old = t.aside[id]
		delete(t.aside, id)
		if restore = restore && old != nil && t.opening[id] == nil; restore {
			t.sessions[id] = old
		}
	}
	t.drop(s)
	if restore && old != nil {
		t.exited = append(t.exited, old)
		t.expireLater(old, t.cfg.ExitKeep)
	}
	t.mu.Unlock()
	switch {
	case old == nil:
	case restore:
		s.log.Info().Str("restored", string(old.instance)).Msg("session failed right after its start; its previous instance is restored with its exit record")
		_ = old.try(old.publishRestored)
	default:
		_ = old.try(old.leave)
	}
	return nil
}

// adoptAside sets old aside after both instances of an id were adopted from a predecessor.
func (t *Table) adoptAside(old, s *Session) {
	_ = old.try(func() error { old.isAside, old.isUnpublished = true, true; return nil })
	t.mu.Lock()
	giveUp := t.setAside(old)
	if s.exit != nil {
		t.watchOpener(s)
	}
	t.mu.Unlock()
	if giveUp != nil {
		_ = giveUp.try(giveUp.leave)
	}
}
