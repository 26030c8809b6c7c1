package protocol_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"holdfast/protocol"
)

// A step is a message that a viewer receives; one field is set.
type step struct {
	Attached *struct {
		Resume        *uint64 `json:"resume"`
		Offset        uint64  `json:"offset"`
		BytesMissed   uint64  `json:"bytes_missed"`
		SnapshotBytes int     `json:"snapshot_bytes"`
	} `json:"attached"`
	Snapshot int `json:"snapshot"`
	Output   *struct {
		Offset uint64 `json:"offset"`
		Bytes  int    `json:"bytes"`
	} `json:"output"`
	Resync *struct {
		Offset        uint64 `json:"offset"`
		BytesMissed   uint64 `json:"bytes_missed"`
		SnapshotBytes int    `json:"snapshot_bytes"`
		View          bool   `json:"view"`
	} `json:"resync"`
	View uint64 `json:"view"`
}

func (s *step) do(p *protocol.Position) {
	switch {
	case s.Attached != nil:
		var resume *protocol.Resume
		if s.Attached.Resume != nil {
			resume = &protocol.Resume{Instance: "i", Offset: *s.Attached.Resume}
		}
		p.Attached(protocol.AttachInfo{
			Session: protocol.SessionInfo{Instance: "i"}, Offset: s.Attached.Offset, BytesMissed: s.Attached.BytesMissed, SnapshotBytes: s.Attached.SnapshotBytes,
		}, resume)
	case s.Output != nil:
		p.Output(s.Output.Offset, s.Output.Bytes)
	case s.Resync != nil:
		p.Resync(s.Resync.Offset, s.Resync.BytesMissed, s.Resync.SnapshotBytes, s.Resync.View)
	case s.View > 0:
		p.View(s.View)
	default:
		p.Snapshot(s.Snapshot)
	}
}

// A viewer that has lost its connection resumes at its position. The vectors are for clients in all languages.
func TestPositionResume(t *testing.T) {
	b, err := os.ReadFile("testdata/client-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Positions []struct {
			Name   string
			Steps  []step
			Resume struct {
				Offset     uint64
				Snapshot   bool
				ScreenOnly bool `json:"screen_only"`
			}
		}
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Positions) == 0 {
		t.Fatal("there are no positions")
	}
	spec := protocol.AttachSpec{SessionID: "s", Cols: 100, Rows: 40, Writer: "w", Steal: true}
	for _, v := range vectors.Positions {
		t.Run(v.Name, func(t *testing.T) {
			var p protocol.Position
			for _, s := range v.Steps {
				s.do(&p)
			}
			want := spec
			want.Resume = &protocol.Resume{Instance: "i", Offset: v.Resume.Offset}
			want.Steal, want.Snapshot, want.ScreenOnly = false, v.Resume.Snapshot, v.Resume.ScreenOnly
			if got := p.Resume(spec, false); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v at %+v, want %+v at %+v", got, got.Resume, want, want.Resume)
			}
		})
	}
}

// A viewer whose window was resized requests a snapshot of the screen.
func TestPositionReshaped(t *testing.T) {
	var p protocol.Position
	p.Output(0, 100)
	if got := p.Resume(protocol.AttachSpec{}, true); !got.Snapshot || !got.ScreenOnly || got.Resume.Offset != 100 {
		t.Errorf("got %+v at %+v, want a snapshot of the screen at 100", got, got.Resume)
	}
}
