package protocol

// A Position is where a viewer stands in a session's output: what it has to
// remember to go on through another proxy, or another connection.
type Position struct {
	instance     Instance
	offset       uint64 // of the next byte of output, or what the snapshot that is under way stands for
	had          uint64 // everything before was shown, or told to be missed
	snapshotLeft int    // bytes of a snapshot still to come
	view         bool   // what is shown is a view of the viewer's own, which output cannot continue
}

// Attached sets the position from the answer to an attach, which went on at
// resume, if not nil.
func (p *Position) Attached(a AttachInfo, resume *Resume) {
	*p = Position{instance: a.Session.Instance, offset: a.Offset, had: a.Offset, snapshotLeft: a.SnapshotBytes, view: a.View}
	if resume != nil && a.SnapshotBytes > 0 {
		p.had = resume.Offset + a.BytesMissed
	}
}

// Resync sets the position of a viewer that begins anew, perhaps with a view of
// its own.
func (p *Position) Resync(offset, missed uint64, snapshotBytes int, view bool) {
	p.offset, p.snapshotLeft, p.view = offset, snapshotBytes, view
	p.had += missed
	p.complete()
}

// complete: a snapshot that has come whole shows all before its offset.
func (p *Position) complete() {
	if p.snapshotLeft == 0 {
		p.had = p.offset
	}
}

// Output notes n bytes of output at offset.
func (p *Position) Output(offset uint64, n int) {
	p.offset = offset + uint64(n)
	p.had = p.offset
}

// Snapshot notes n bytes of a snapshot, and returns how many are to come.
func (p *Position) Snapshot(n int) int {
	p.snapshotLeft = max(0, p.snapshotLeft-n)
	p.complete()
	return p.snapshotLeft
}

// View notes that the viewer is shown a view of its own that stands for offset.
func (p *Position) View(offset uint64) { p.offset, p.had, p.view = offset, offset, true }

// Offset returns the offset of the next byte of output.
func (p *Position) Offset() uint64 { return p.offset }

// Resume changes an attach request so that it goes on from here. Half a
// snapshot is of no use: then a new one is asked for. Nor can output continue a
// view, or what was shown in a window that has another size since: then the
// screen alone is asked for. Who has come in this one's place in the meantime
// is not stolen from.
func (p *Position) Resume(spec AttachSpec, reshaped bool) AttachSpec {
	spec.Resume = &Resume{Instance: p.instance, Offset: p.had}
	spec.Steal = false
	spec.Snapshot = p.snapshotLeft > 0 || p.view || reshaped
	spec.ScreenOnly = spec.Snapshot && p.snapshotLeft == 0
	return spec
}
