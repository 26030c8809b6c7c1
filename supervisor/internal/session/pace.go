package session

import (
	"sync/atomic"
	"time"
)

// paceTime is how long a child waits for a viewer at a time. The wait must be bounded, because
// a viewer that has stopped reading for good must not stop the child.
const paceTime = 10 * time.Second

// pacer is the position of a viewer, for other goroutines. The viewer may make the child wait if its spec has Pace.
type pacer struct {
	pos   atomic.Uint64
	moved chan struct{} // receives after pos has changed
}

// moveTo sets the position.
func (p *pacer) moveTo(pos uint64) {
	p.pos.Store(pos)
	p.signal()
}

// signal makes a reader check again whether it must wait.
func (p *pacer) signal() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// pace delays the next read of the terminal, and so the child, while a viewer that asked for it
// is more than half of the ring behind. If the viewer does not move for paceTime, pace does not
// wait for it again until the viewer has caught up.
func (r *reader) pace() {
	p := r.pacer.Load()
	if p == nil || !r.mustWait(p) {
		r.pacerTimedOut = false
		return
	}
	if r.pacerTimedOut {
		return
	}
	timer := time.NewTimer(paceTime)
	defer timer.Stop()
	for p == r.pacer.Load() && r.mustWait(p) {
		select {
		case <-p.moved:
		case <-r.source.Done():
			return
		case <-r.poke:
			return
		case <-timer.C:
			r.pacerTimedOut = true
			return
		}
	}
}

// mustWait reports whether the unread output of a viewer exceeds half of the ring, so that the child
// must wait.
func (r *reader) mustWait(p *pacer) bool {
	_, end, _ := r.ring.Bounds()
	seen := p.pos.Load()
	return end > seen && end-seen > uint64(r.ring.Keep()/2)
}
