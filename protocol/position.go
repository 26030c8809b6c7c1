package protocol

// A Position is a viewer's position in the output of a session. With it the viewer can continue on
// another connection or through another proxy.
type Position struct {
	instance     Instance
	offset       uint64 // offset of the next byte of output, or of the incomplete snapshot
	shownTo      uint64 // output before this offset was shown, or reported as missed
	snapshotLeft int    // bytes of the snapshot that have not arrived yet
	view         bool   // the viewer shows a view of its own, which output cannot continue
}

// Attached sets the position from the reply to an attach. resume is the position at which the
// attach asked to continue, or nil.
func (p *Position) Attached(a AttachInfo, resume *Resume) {
	*p = Position{instance: a.Session.Instance, offset: a.Offset, shownTo: a.Offset, snapshotLeft: a.SnapshotBytes, view: a.View}
	if resume != nil && a.SnapshotBytes > 0 {
		p.shownTo = resume.Offset + a.BytesMissed
	}
}

// Resync sets the position after the supervisor has made the viewer begin again with a snapshot at
// offset. view tells whether the snapshot is one of the viewer's own view.
func (p *Position) Resync(offset, missed uint64, snapshotBytes int, view bool) {
	p.offset, p.snapshotLeft, p.view = offset, snapshotBytes, view
	p.shownTo += missed
	p.complete()
}

// complete sets shownTo if a snapshot is complete, because it shows all output before its offset.
func (p *Position) complete() {
	if p.snapshotLeft == 0 {
		p.shownTo = p.offset
	}
}

// Output records n bytes of output at offset.
func (p *Position) Output(offset uint64, n int) {
	p.offset = offset + uint64(n)
	p.shownTo = p.offset
}

// Snapshot records n bytes of a snapshot and returns the number of bytes that are still missing.
func (p *Position) Snapshot(n int) int {
	p.snapshotLeft = max(0, p.snapshotLeft-n)
	p.complete()
	return p.snapshotLeft
}

// View records that the viewer has received a view of its own for offset.
func (p *Position) View(offset uint64) { p.offset, p.shownTo, p.view = offset, offset, true }

// Offset returns the offset of the next byte of output.
func (p *Position) Offset() uint64 { return p.offset }

// Resume returns spec, changed so that the attach continues at this position. If a snapshot is
// incomplete, the attach asks for a new one. If the viewer shows a view, or if its window was
// resized (reshaped), output cannot continue, so the attach asks for a snapshot of the screen only.
// The attach must not steal, because another client may have attached exclusively in the meantime.
func (p *Position) Resume(spec AttachSpec, reshaped bool) AttachSpec {
	spec.Resume = &Resume{Instance: p.instance, Offset: p.shownTo}
	spec.Steal = false
	spec.Snapshot = p.snapshotLeft > 0 || p.view || reshaped
	spec.ScreenOnly = spec.Snapshot && p.snapshotLeft == 0
	return spec
}
