package session

import (
	"reflect"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/ring"
)

// A viewer continues with the output only if the ring has it, it fits the viewer's terminal, and no
// line of it was cleared. Otherwise it begins with a snapshot, and learns how much it has missed.
func TestBegin(t *testing.T) {
	narrow, tall, wide := protocol.Size{Cols: 80, Rows: 24}, protocol.Size{Cols: 80, Rows: 30}, protocol.Size{Cols: 100, Rows: 30}
	r, err := ring.NewAt(ring.MinBytes, narrow, 1000)
	testkit.Must(t, err)
	defer r.Close()
	for _, size := range []protocol.Size{narrow, tall, wide} { // from 1000, from 1100, and from 1200 to 1300
		if size != narrow {
			r.MarkSize(size)
		}
		r.Reserve()
		r.Commit(100)
	}
	resume := func(offset uint64) *protocol.Resume { return &protocol.Resume{Offset: offset} }
	for _, tt := range []struct {
		name       string
		spec       protocol.AttachSpec
		clearedTo  uint64
		continues  bool
		screenOnly bool
		missed     uint64
	}{
		{"new", protocol.AttachSpec{ScreenOnly: true}, 0, false, true, 0},
		{"same size", protocol.AttachSpec{Resume: resume(1250)}, 0, true, false, 0},
		{"from the change of size", protocol.AttachSpec{Resume: resume(1200)}, 0, true, false, 0},
		{"at the end", protocol.AttachSpec{Resume: resume(1300)}, 0, true, false, 0},
		{"snapshot requested", protocol.AttachSpec{Resume: resume(1250), Snapshot: true, ScreenOnly: true}, 0, false, true, 0},
		{"another width", protocol.AttachSpec{Resume: resume(1199)}, 0, false, false, 0},
		{"overtaken", protocol.AttachSpec{Resume: resume(900)}, 0, false, false, 100},
		{"cleared", protocol.AttachSpec{Resume: resume(1250), ScreenOnly: true}, 1250, false, false, 0},
		{"after the clear", protocol.AttachSpec{Resume: resume(1251)}, 1250, true, false, 0},
		{"own view of the same size", protocol.AttachSpec{Resume: resume(1250), View: protocol.ViewOwn, Cols: wide.Cols, Rows: wide.Rows}, 0, true, false, 0},
		{"own view after a change", protocol.AttachSpec{Resume: resume(1199), View: protocol.ViewOwn, Cols: wide.Cols, Rows: wide.Rows}, 0, false, false, 0},
		{"own view of another size", protocol.AttachSpec{Resume: resume(1250), View: protocol.ViewOwn, Cols: 80, Rows: 24}, 0, false, false, 0},
	} {
		a := &Attachment{spec: tt.spec, noOutput: true}
		a.window, _ = tt.spec.OwnSize()
		var info protocol.AttachInfo
		isSnapshot, screenOnly := false, false
		start := a.begin(resumable{r, wide, tt.clearedTo}, &info, func(only bool) uint64 {
			isSnapshot, screenOnly = true, only
			a.left = len("screen")
			a.moveTo(1300)
			start, _, _ := r.Bounds()
			return start
		})
		want := protocol.AttachInfo{Offset: 1300, BytesMissed: tt.missed, Replay: protocol.ReplaySnapshot, SnapshotBytes: 6, View: true}
		if tt.continues {
			want = protocol.AttachInfo{Offset: tt.spec.Resume.Offset}
		}
		if start != 1000 || isSnapshot == tt.continues || screenOnly != tt.screenOnly || a.pos != info.Offset || a.noOutput == tt.continues {
			t.Errorf("%s: ring from %d, snapshot %v, screen only %v, position %d, no output %v", tt.name, start, isSnapshot, screenOnly, a.pos, a.noOutput)
		}
		if !reflect.DeepEqual(info, want) {
			t.Errorf("%s: %+v, want %+v", tt.name, info, want)
		}
	}
}

// A shadow continues with all output that the ring has, also if its width has changed or if the ring has overtaken the shadow.
// A shadow that masks secrets leaves out the first bytes of a ring that has lost output, which may be the end of a secret.
func TestBeginShadow(t *testing.T) {
	masker, _ := mask.New([]string{"TOKEN=a-secret-value"}, []string{"TOKEN"}, nil)
	const ringStart, end = 1000, 1000 + 3*mask.Context
	r, err := ring.NewAt(ring.MinBytes, protocol.Size{Cols: 80, Rows: 24}, ringStart)
	testkit.Must(t, err)
	defer r.Close()
	for n := range 3 {
		for left := mask.Context; left > 0; {
			k := min(left, len(r.Reserve()))
			r.Commit(k)
			left -= k
		}
		r.MarkSize(protocol.Size{Cols: 81 + n, Rows: 24})
	}
	for _, tt := range []struct {
		name      string
		offset    uint64
		clearedTo uint64
		masks     bool
		want      protocol.AttachInfo
	}{
		{"another width", 1001, 0, false, protocol.AttachInfo{Offset: 1001}},
		{"another width and secrets", 1001, 0, true, protocol.AttachInfo{Offset: 1001}},
		{"overtaken", 900, 0, false, protocol.AttachInfo{Offset: ringStart, BytesMissed: 100}},
		{"overtaken with secrets", 900, 0, true, protocol.AttachInfo{Offset: ringStart + mask.Context, BytesMissed: 100 + mask.Context}},
		{"cleared", 1001, 1001, false, protocol.AttachInfo{Offset: end, Replay: protocol.ReplaySnapshot, SnapshotBytes: 6, View: true}},
	} {
		a := &Attachment{s: &Session{identity: identity{masker: masker}}, spec: protocol.AttachSpec{Resume: &protocol.Resume{Offset: tt.offset}, Mask: tt.masks}, shadow: true, noOutput: true}
		var info protocol.AttachInfo
		start := a.begin(resumable{r, protocol.Size{Cols: 100, Rows: 24}, tt.clearedTo}, &info, func(bool) uint64 {
			a.left = len("screen")
			a.moveTo(end)
			return ringStart
		})
		if start != ringStart || a.pos != info.Offset || !reflect.DeepEqual(info, tt.want) {
			t.Errorf("%s: ring from %d, position %d, %+v, want %+v", tt.name, start, a.pos, info, tt.want)
		}
	}
}

// A request is refused for the same reasons to every client, and in the order in which a client can
// mend them.
func TestCheckAttach(t *testing.T) {
	i := &identity{id: "s", instance: "now"}
	exit := &protocol.ExitRecord{ExitedAt: time.Unix(1, 0)}
	for _, tt := range []struct {
		name   string
		resume *protocol.Resume
		exit   *protocol.ExitRecord
		count  int
		want   protocol.Code
	}{
		{"new", nil, nil, maxAttachments - 1, ""},
		{"too many", nil, nil, maxAttachments, protocol.CodeLimitExceeded},
		{"new after the exit", nil, exit, 0, protocol.CodeSessionExited},
		{"resumes", &protocol.Resume{Instance: "now", Offset: 100}, nil, 0, ""},
		{"resumes after the exit", &protocol.Resume{Instance: "now", Offset: 100}, exit, 0, ""},
		{"another instance", &protocol.Resume{Instance: "before", Offset: 200}, exit, maxAttachments, protocol.CodeInstanceMismatch},
		{"output of the future", &protocol.Resume{Instance: "now", Offset: 101}, nil, 0, protocol.CodeInvalidArgument},
	} {
		if err := i.checkAttach(protocol.AttachSpec{Resume: tt.resume}, tt.exit, tt.count, 100); protocol.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A late request of a writer is void, and a read-only client cannot take the name of a writer.
func TestCheckWriter(t *testing.T) {
	i := &identity{id: "s"}
	for _, tt := range []struct {
		name          string
		spec          protocol.AttachSpec
		attempt, move uint64
		isWriter      bool
		want          protocol.Code
	}{
		{"first", protocol.AttachSpec{}, 0, 0, false, ""},
		{"later attempt", protocol.AttachSpec{Attempt: 8}, 7, 3, true, ""},
		{"earlier attempt", protocol.AttachSpec{Attempt: 6, Move: 9}, 7, 3, true, protocol.CodeSuperseded},
		{"same attempt, moved on", protocol.AttachSpec{Attempt: 7, Move: 4}, 7, 3, true, ""},
		{"same attempt, moved before", protocol.AttachSpec{Attempt: 7, Move: 2}, 7, 3, true, protocol.CodeSuperseded},
		{"without numbers", protocol.AttachSpec{}, 7, 3, true, ""},
		{"reads", protocol.AttachSpec{Mode: protocol.ModeReadOnly}, 0, 0, false, ""},
		{"reads under a writer's name", protocol.AttachSpec{Mode: protocol.ModeReadOnly}, 0, 0, true, protocol.CodePermissionDenied},
	} {
		if err := i.checkWriter(tt.spec, tt.attempt, tt.move, tt.isWriter); protocol.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A viewer gets the next number, and a viewer that returns keeps its number and its time.
func TestJoin(t *testing.T) {
	var v viewers
	defer v.stop()
	count := uint64(4)
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	join := func(a *Attachment, at time.Time) *Attachment {
		t.Helper()
		wasKnown, isLost := a.number != 0, false
		if _, ok := v.lost[a.spec.Writer]; ok {
			wasKnown, isLost = true, true
		}
		if returns, wasLost := v.join(a, &count, at); returns != wasKnown || wasLost != isLost {
			t.Errorf("%s: returns %v, was lost %v", a.spec.Writer, returns, wasLost)
		}
		return a
	}
	a := join(&Attachment{spec: protocol.AttachSpec{Writer: "a"}}, first)
	v.addLost(a)
	v.remove(a, nil)
	join(&Attachment{spec: protocol.AttachSpec{Writer: "b"}}, later)
	again := join(&Attachment{spec: a.spec}, later)
	if a.number != 5 || again.number != 5 || !again.since.Equal(first) || v.of("b").number != 6 || !v.of("b").since.Equal(later) {
		t.Errorf("numbers %d, %d and %d, since %v", a.number, again.number, v.of("b").number, again.since)
	}
	replaced := join(&Attachment{spec: protocol.AttachSpec{Writer: "c"}, number: 3, since: first}, later)
	if replaced.number != 3 || !replaced.since.Equal(first) || count != 6 {
		t.Errorf("the replacement has number %d since %v; the last number is %d", replaced.number, replaced.since, count)
	}
}
