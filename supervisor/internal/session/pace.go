package session

import (
	"sync/atomic"
	"time"
)

const (
	// paceTime is how long a child waits for a viewer at a time. The wait must be bounded, because
	// a viewer that has stopped reading for good must not stop the child.
	paceTime = 10 * time.Second
	// firstViewerTime is how long a child that has filled half of the ring waits for its first viewer. The client that
	// starts a session usually attaches within some milliseconds, and must not miss the first output if the machine is
	// busy and the child prints much. A session whose client does not attach, although it is not unattended
	// (protocol.SpawnSpec), is delayed once by this time, so it must be short.
	firstViewerTime = time.Second
)

// pacer is the position of a viewer, for other goroutines. The viewer may make the child wait if its spec has Pace.
type pacer struct {
	pos   atomic.Uint64
	moved chan struct{} // receives after pos has changed
	first bool          // the place of the first viewer, which has not attached yet
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
// is more than half of the ring behind, or while the first viewer has not attached. If the viewer does not move for
// paceTime, or does not attach for firstViewerTime, pace does not wait for it again until the viewer has caught up.
func (r *reader) pace() {
	p := r.pacer.Load()
	if p == nil || !r.mustWait(p) {
		r.pacerTimedOut = false
		return
	}
	if r.pacerTimedOut {
		return
	}
	limit := paceTime
	if p.first {
		limit = firstViewerTime
	}
	timer := time.NewTimer(limit)
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

// expectViewer makes the child wait for the first viewer.
func (r *reader) expectViewer() {
	r.pacer.Store(&pacer{moved: make(chan struct{}, 1), first: true})
}

// viewerCame makes the child wait for a viewer that has asked for it, and no more for the first one.
func (r *reader) viewerCame(a *Attachment) {
	was := r.pacer.Load()
	if a.spec.Pace {
		r.pacer.Store(&a.pacer)
	} else if was != nil && was.first {
		r.pacer.Store(nil)
	}
	if was != nil {
		was.signal()
	}
}

// viewerLeft makes the child wait for the viewer no more.
func (r *reader) viewerLeft(a *Attachment) {
	r.pacer.CompareAndSwap(&a.pacer, nil)
	a.pacer.signal()
}

// mustWait reports whether the unread output of a viewer exceeds half of the ring, so that the child
// must wait.
func (r *reader) mustWait(p *pacer) bool {
	_, end, _ := r.ring.Bounds()
	seen := p.pos.Load()
	return end > seen && end-seen > uint64(r.ring.Keep()/2)
}
