package session

import "time"

// paceTime is how long a child waits for a viewer at a time. The wait must be bounded, because
// a viewer that has stopped reading for good must not stop the child.
const paceTime = 10 * time.Second

// pace delays the next read of the terminal, and so the child, while a viewer that asked for it
// is more than half of the ring behind. If the viewer does not move for paceTime, pace does not
// wait for it again until the viewer has caught up.
func (s *Session) pace() {
	a := s.pacer.Load()
	if a == nil || !a.holdsChild() {
		s.pacerTimedOut = false
		return
	}
	if s.pacerTimedOut {
		return
	}
	timer := time.NewTimer(paceTime)
	defer timer.Stop()
	for a == s.pacer.Load() && a.holdsChild() {
		select {
		case <-a.paceMoved:
		case <-s.pty.Done():
			return
		case <-s.pokeReader:
			return
		case <-timer.C:
			s.pacerTimedOut = true
			return
		}
	}
}

// holdsChild reports whether a's unread output exceeds half of the ring, so that the child must
// wait.
func (a *Attachment) holdsChild() bool {
	_, end, _ := a.s.ring.Bounds()
	seen := a.pacePos.Load()
	return end > seen && end-seen > uint64(a.s.ring.Keep()/2)
}

// moveTo sets the viewer's position. If the child may be waiting for this viewer, moveTo wakes
// pace.
func (a *Attachment) moveTo(pos uint64) {
	a.pos = pos
	if !a.spec.Pace {
		return
	}
	a.pacePos.Store(pos)
	a.signalMoved()
}

// signalMoved makes pace check again whether it must wait.
func (a *Attachment) signalMoved() {
	select {
	case a.paceMoved <- struct{}{}:
	default:
	}
}
