package session

import (
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A viewer with a terminal of another size than the session's may ask for a view of its own: the
// screen laid out for its size. Such a viewer receives no output. It receives the changes of
// its view, as often as it can take them, and the effects of the output that a screen does not
// show, such as bells (screen.Effects).

// viewEvery is the shortest time between two updates of a view: 40 updates a second look like
// motion.
const viewEvery = 25 * time.Millisecond

// ownView reports whether a sees the screen at its own size, whatever the session's size. It is
// called in loop.
func (a *Attachment) ownView() bool {
	return a.spec.View == protocol.ViewOwn && a.window != (protocol.Size{})
}

// requestSnapshot makes a begin again with a snapshot, if a may have a view of its own. It must
// be called when a's size or the session's has changed.
func (a *Attachment) requestSnapshot() {
	if !a.ownView() {
		return
	}
	a.requestRenewal(newSnapshot)
}

// waitState reports whether a is paused, and whether a needs another snapshot.
func (a *Attachment) waitState() (paused, renewed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isPaused(), a.renewal != noRenewal
}

// pollView returns the next piece of an update of the view.
func (a *Attachment) pollView(buf []byte) (Item, bool, error) {
	if len(a.viewUpdate) == 0 {
		_, end, _ := a.s.ring.Bounds()
		if a.pos == end {
			return a.pollExit()
		}
		if !a.isViewDue() {
			return Item{}, false, nil
		}
		v := a.snapshotOwn()
		if v == nil { // the screen was lost; a begins again with the output that the ring has
			a.requestSnapshot()
			return Item{}, false, nil
		}
		a.scanForView(buf, v.Offset())
		a.viewUpdate = a.view.Update(v)
		a.moveTo(v.Offset())
	}
	n := copy(buf, a.viewUpdate)
	a.viewUpdate = a.viewUpdate[n:]
	return Item{Kind: ItemView, Offset: a.pos, Data: buf[:n]}, true, nil
}

// scanForView passes the output up to end to the view, which collects the effects that a screen
// does not show, such as bells. It uses buf to read the ring.
func (a *Attachment) scanForView(buf []byte, end uint64) {
	for at := a.pos; at < end; {
		n, err := a.s.ring.ReadAt(buf[:min(uint64(len(buf)), end-at)], at)
		if err != nil || n == 0 { // the ring has overtaken a
			a.view.Forget()
			return
		}
		a.view.Printed(buf[:n])
		at += uint64(n)
	}
}

// isViewDue reports whether the view may be updated now. If not, it sets a timer that wakes
// Next.
func (a *Attachment) isViewDue() bool {
	now := time.Now()
	wait := a.viewDue.Sub(now)
	if wait <= 0 || a.s.hasExited() {
		a.viewDue = now.Add(viewEvery)
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.viewTimer {
		a.viewTimer = true
		time.AfterFunc(wait, func() {
			a.mu.Lock()
			a.viewTimer = false
			a.mu.Unlock()
			a.notify()
		})
	}
	return false
}

// snapshotOwn returns a view of the screen for the size of a's view, or nil if the screen is lost.
func (a *Attachment) snapshotOwn() (v *screen.View) {
	s := a.s
	take := func() {
		s.display.useRestored(func(sc *screen.Screen) { v = sc.ViewAs(a.view.Size()) })
		if s.saved.Degraded { // an empty screen is in the place of the lost one
			v = nil
		}
	}
	if !s.do(func() { s.feed(); take(); s.idle.touch() }) {
		s.afterLoop.Lock()
		defer s.afterLoop.Unlock()
		take()
	}
	return v
}
