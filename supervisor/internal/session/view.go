package session

import (
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A viewer with a terminal of another size than the session's may ask for a
// view of its own: the screen as it looks at that size. It gets no output then,
// but what changes on its screen, as often as it can take that, and what the
// program says to the terminal that does not show (screen.Effects).

// viewEvery is how often a view is brought up to date at most: 40 times a
// second looks like motion.
const viewEvery = 25 * time.Millisecond

// ownView reports whether a is shown the screen at its own size, whatever the
// session's. It is called in loop.
func (a *Attachment) ownView() bool {
	return a.spec.View == protocol.ViewOwn && a.window != (protocol.Size{})
}

// renew has a begin anew with a snapshot, if it is shown the screen at its own
// size: that or the session's has changed.
func (a *Attachment) renew() {
	if !a.ownView() {
		return
	}
	a.mu.Lock()
	a.renewed = true
	a.mu.Unlock()
	a.poke()
}

// waits reports whether a is paused, and whether it needs another snapshot.
func (a *Attachment) waits() (paused, renewed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.paused, a.renewed
}

// pollView returns what brings the view up to date.
func (a *Attachment) pollView(buf []byte) (Item, bool, error) {
	if len(a.update) == 0 {
		_, end, _ := a.s.ring.Bounds()
		if a.pos == end {
			return a.pollExit()
		}
		if !a.mayView() {
			return Item{}, false, nil
		}
		v := a.s.lookAs(a.view.Size())
		if v == nil { // lost: it begins anew with what there is
			a.renew()
			return Item{}, false, nil
		}
		a.hearView(buf, v.Offset())
		a.update = a.view.Update(v)
		a.move(v.Offset())
	}
	n := copy(buf, a.update)
	a.update = a.update[n:]
	return Item{Kind: ItemView, Offset: a.pos, Data: buf[:n]}, true, nil
}

// hearView has the view find what was printed up to an offset that the viewer's
// terminal has to be told, such as bells. It reads by way of buf.
func (a *Attachment) hearView(buf []byte, end uint64) {
	for at := a.pos; at < end; {
		n, err := a.s.ring.ReadAt(buf[:min(uint64(len(buf)), end-at)], at)
		if err != nil || n == 0 { // the ring has overtaken it
			a.view.Forget()
			return
		}
		a.view.Printed(buf[:n])
		at += uint64(n)
	}
}

// mayView reports whether it is time to look, and else wakes up when it is.
func (a *Attachment) mayView() bool {
	now := time.Now()
	wait := a.viewDue.Sub(now)
	if wait <= 0 || isClosed(a.s.exited) {
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
			a.poke()
		})
	}
	return false
}

// lookAs takes a picture of the screen, for a terminal of another size; nil is of
// one that was lost with it.
func (s *Session) lookAs(size protocol.Size) (v *screen.View) {
	take := func() { v = s.screen.ViewAs(size) }
	if !s.do(func() { s.feed(); s.core(take); s.idle.touch() }) {
		s.late.Lock()
		defer s.late.Unlock()
		s.core(take)
	}
	return v
}
