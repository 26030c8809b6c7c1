package session

import (
	"time"

	"holdfast/protocol"
)

// A session that is opened again takes the place of one that has ended. If the new life
// ends right after its start, the old one's record must not be lost for it. So the old life
// is set aside for a while, and can be put back.
//
//	Reopen               the old life is set aside; events say that it is forgotten
//	Forget with restore  the new life has failed: the old one is back, with its record
//	the supervisor       puts it back by itself if the new life ended within the time that
//	                     its opener watched, and nobody removed it: the opener has died
//	asideTime            the old life is given up
//
// Both lives are held by the vault, so that a successor finds both and goes on with that.

const (
	// asideTime is longer than any opener watches a new life, which is a minute at most.
	asideTime = 70 * time.Second
	// maxAside bounds the lives that are set aside; the next ones are given up at once.
	maxAside = 64
	// openerTime is how long the opener has to remove a life that ended early.
	openerTime = 5 * time.Second
)

// setAside keeps old, in whose place a new life has come, and returns it if it is to be
// given up instead, or else the one that was aside before. mu is held.
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

// putAside says that a life is forgotten, which may come back. It runs in loop.
func (s *Session) putAside() error {
	s.isAside, s.unpublished = true, true
	info := s.info()
	info.State = protocol.StateForgotten
	s.hub.Publish(protocol.EventForgotten, &info, nil)
	return nil
}

// putBack is called in loop of a life that is there again.
func (s *Session) putBack() error {
	s.isAside, s.unpublished = false, true
	info := s.info()
	s.hub.Publish(protocol.EventExited, &info, nil)
	return nil
}

// endedEarly reports whether an exited session has ended within the time that its opener
// watched.
func (s *Session) endedEarly() bool {
	return s.early > 0 && s.exit.ExitedAt.Sub(s.exit.StartedAt) <= s.early
}

// watchOpener puts the life before s back, unless the opener of s does so. mu is held.
func (t *Table) watchOpener(s *Session) {
	if t.aside[s.id] == nil || !s.endedEarly() {
		return
	}
	id, instance := s.id, s.instance
	time.AfterFunc(openerTime, func() { t.remove(id, instance, true) })
}

// remove is ForgetFailed or Forget, and comes again if the session is busy.
func (t *Table) remove(id protocol.SessionID, instance protocol.Instance, restore bool) {
	if protocol.CodeOf(t.forget(id, instance, restore)) == protocol.CodeBusy { // else it is forgotten, or reopened
		time.AfterFunc(answerTime, func() { t.remove(id, instance, restore) })
	}
}

// ForgetFailed is Forget for a life that has failed right after its start: the one in whose
// place it came is there again, with its exit record, if it is kept still.
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
		s.log.Info().Str("restored", string(old.instance)).Msg("session failed right after its start; the record of the life before is back")
		_ = old.try(old.putBack)
	default:
		_ = old.try(old.leave)
	}
	return nil
}

// adoptAside goes on with two lives of an id, as a supervisor before this one left them.
func (t *Table) adoptAside(old, s *Session) {
	_ = old.try(func() error { old.isAside, old.unpublished = true, true; return nil })
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
