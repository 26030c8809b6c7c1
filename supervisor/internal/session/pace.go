package session

import "time"

// paceTime is how long a child waits for a viewer at a time: one that has
// stopped for good must not stop the child with it.
const paceTime = 10 * time.Second

// pace holds up the reading of the terminal, and so the child, while a viewer
// that asked for it is more than half of the ring behind. One that was waited
// for in vain is not waited for again before it has caught up.
func (s *Session) pace() {
	a := s.pacer.Load()
	if a == nil || !a.behind() {
		s.unpaced = false
		return
	}
	if s.unpaced {
		return
	}
	timer := time.NewTimer(paceTime)
	defer timer.Stop()
	for a == s.pacer.Load() && a.behind() {
		select {
		case <-a.moved:
		case <-s.pty.Done():
			return
		case <-s.poke:
			return
		case <-timer.C:
			s.unpaced = true
			return
		}
	}
}

// behind reports whether a viewer has so much to read that its child waits.
func (a *Attachment) behind() bool {
	_, end, _ := a.s.ring.Bounds()
	seen := a.seen.Load()
	return end > seen && end-seen > uint64(a.s.ring.Keep()/2)
}

// move notes that the viewer has come to pos.
func (a *Attachment) move(pos uint64) {
	a.pos = pos
	if !a.spec.Pace {
		return
	}
	a.seen.Store(pos)
	a.stir()
}

// stir has the child look whether it still has to wait.
func (a *Attachment) stir() {
	select {
	case a.moved <- struct{}{}:
	default:
	}
}
