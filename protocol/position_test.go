package protocol_test

import (
	"reflect"
	"testing"

	"holdfast/protocol"
)

// After a lost connection, a viewer must ask for the next byte, or for a new snapshot if it has received only
// a part of one.
func TestPositionResume(t *testing.T) {
	spec := protocol.AttachSpec{SessionID: "s", Cols: 100, Rows: 40, Writer: "w"}
	at := func(offset uint64) protocol.AttachSpec {
		s := spec
		s.Resume = &protocol.Resume{Instance: "i", Offset: offset}
		return s
	}
	anew := func(offset uint64) protocol.AttachSpec {
		s := at(offset)
		s.Snapshot = true
		return s
	}
	screen := func(offset uint64) protocol.AttachSpec {
		s := anew(offset)
		s.ScreenOnly = true
		return s
	}
	attached := protocol.AttachInfo{Session: protocol.SessionInfo{Instance: "i"}, Offset: 100, SnapshotBytes: 30}
	tests := []struct {
		name string
		do   func(p *protocol.Position)
		want protocol.AttachSpec

		reshaped bool
		from     *protocol.Resume
		missed   uint64
	}{
		{name: "before the snapshot", do: func(*protocol.Position) {}, want: anew(100)},
		{name: "within the snapshot", do: func(p *protocol.Position) { p.Snapshot(29) }, want: anew(100)},
		{name: "after the snapshot", do: func(p *protocol.Position) { p.Snapshot(20); p.Snapshot(10) }, want: at(100)},
		{name: "after output", do: func(p *protocol.Position) { p.Snapshot(30); p.Output(100, 7) }, want: at(107)},
		{name: "overtaken", do: func(p *protocol.Position) { p.Snapshot(30); p.Resync(500, 50, 10, false) }, want: anew(150)},
		{name: "overtaken within a snapshot", do: func(p *protocol.Position) { p.Snapshot(30); p.Resync(500, 50, 10, false); p.Resync(900, 60, 10, false) }, want: anew(210)},
		{name: "within the snapshot of a resumption", do: func(*protocol.Position) {}, want: anew(47), from: &protocol.Resume{Offset: 40}, missed: 7},
		{name: "overtaken, empty snapshot", do: func(p *protocol.Position) { p.Snapshot(30); p.Resync(500, 50, 0, false) }, want: at(500)},
		{name: "a view", do: func(p *protocol.Position) { p.Snapshot(30); p.Resync(500, 0, 0, true); p.View(600) }, want: screen(600)},
		{name: "a view that has yet to come", do: func(p *protocol.Position) { p.Resync(500, 0, 1, true); p.Snapshot(1) }, want: screen(500)},
		{name: "half a view's snapshot", do: func(p *protocol.Position) { p.Snapshot(30); p.Resync(500, 0, 2, true); p.Snapshot(1) }, want: anew(100)},
		{name: "no view any more", do: func(p *protocol.Position) { p.Resync(500, 0, 0, true); p.View(600); p.Resync(700, 0, 0, false) }, want: at(700)},
		{name: "another window", do: func(p *protocol.Position) { p.Snapshot(30) }, want: screen(100), reshaped: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p protocol.Position
			info := attached
			info.BytesMissed = tt.missed
			p.Attached(info, tt.from)
			tt.do(&p)
			got := p.Resume(spec, tt.reshaped)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
