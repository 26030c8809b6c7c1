package session

import (
	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/supervisor/internal/ring"
)

// resumable is the output with which a viewer can continue that has the output before.
type resumable struct {
	ring      *ring.Ring
	size      protocol.Size // present size of the terminal
	clearedTo uint64        // end of the output at the last Clear, or 0
}

// canContinue reports whether a viewer can continue at an offset: the ring has the output from there
// on, the viewer shows no line that was cleared, and the output fits its terminal. view is the size of
// the viewer's own view, or zero if it has none. start is the offset at which the ring begins.
func (o resumable) canContinue(offset uint64, view protocol.Size) (start uint64, ok bool) {
	start, _, _ = o.ring.Bounds()
	return start, offset >= start && !o.predatesClear(offset) && o.fits(offset, view)
}

// predatesClear reports whether a viewer at offset may still show deleted lines. A viewer at
// exactly the offset of the Clear may or may not know of it, so it counts as well.
func (o resumable) predatesClear(offset uint64) bool {
	return o.clearedTo > 0 && offset <= o.clearedTo
}

// fits reports whether the output from offset on may be written to a viewer's terminal. If the viewer
// has a view of its own, all of that output must be for exactly the size of the view; otherwise the
// width must not have changed since offset.
func (o resumable) fits(offset uint64, view protocol.Size) bool {
	_, end, _ := o.ring.Bounds()
	if view != (protocol.Size{}) {
		_, changes := o.ring.NextMark(offset)
		return view == o.size && !changes && o.ring.SizeAt(offset) == o.size
	}
	return offset == end || !o.ring.WidthChanged(offset)
}

// firstFrom returns the first offset from offset on at which a may receive output of a ring, and where the ring begins. If the ring
// has lost output behind offset, and a masks secrets, a begins some bytes behind the beginning of the ring, because the ring may
// have only the end of a secret there, which no pattern finds.
func (a *Attachment) firstFrom(offset uint64, r *ring.Ring) (from, start uint64) {
	start, end, _ := r.Bounds()
	switch {
	case offset >= start:
		return offset, start
	case a.masksSecrets():
		return min(start+mask.Context, end), start
	}
	return start, start
}

// begin sets where a begins, and tells it in info. If a resumes, and asks for no snapshot, it continues
// with the output o if it can. A shadow, which has no terminal that output of another width could disturb,
// continues with as much of it as the ring has. Otherwise it begins with the snapshot that takeSnapshot takes. start is
// the offset at which the ring began then, which takeSnapshot returns.
func (a *Attachment) begin(o resumable, info *protocol.AttachInfo, takeSnapshot func(screenOnly bool) (start uint64)) (start uint64) {
	r := a.spec.Resume
	if r != nil && !a.spec.Snapshot {
		var view protocol.Size
		if a.ownView() {
			view = a.window
		}
		if start, ok := o.canContinue(r.Offset, view); ok {
			a.fitsWindow, a.noOutput = a.ownView(), false
			a.moveTo(r.Offset)
			info.Offset = r.Offset
			return start
		}
		if a.shadow && !o.predatesClear(r.Offset) {
			var from uint64
			from, start = a.firstFrom(r.Offset, o.ring)
			a.noOutput = false
			a.moveTo(from)
			info.Offset, info.BytesMissed = a.pos, a.pos-r.Offset
			return start
		}
	}
	start = takeSnapshot(a.spec.ScreenOnly && (r == nil || !o.predatesClear(r.Offset)))
	info.Replay, info.Offset, info.SnapshotBytes, info.View = protocol.ReplaySnapshot, a.pos, a.left, a.noOutput
	if r != nil { // a new viewer misses no output, because the snapshot shows all of it
		info.BytesMissed = start - min(start, r.Offset)
	}
	return start
}
