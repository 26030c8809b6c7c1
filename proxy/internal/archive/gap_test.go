package archive

import (
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/fakelink"
	"holdfast/supervisor/terminal"
)

// If output is missing, the output that the ring still has is recorded, and the last screen can be shown although the session
// prints nothing behind it.
func TestScreenBehindGap(t *testing.T) {
	const gap, text = 100, "\x1b[2;2Hthe end"
	size := protocol.Size{Cols: 40, Rows: 5}
	shown := terminal.New(size, protocol.DefaultHistory)
	testkit.Must(t, shown.Write(t.Context(), []byte("before"+text)))
	state, err := shown.Content(protocol.ScreenSpec{Format: protocol.ScreenState})
	testkit.Must(t, err)
	state.Offset = gap + uint64(len(text))
	sup := fakelink.New(t)
	sup.Listen()
	sup.Answer(func(st *link.Stream, request protocol.Message) {
		switch m := request.(type) {
		case *wire.Screen:
			if m.At != nil {
				_ = st.Fail(protocol.Errorf(protocol.CodeNotStored, "the screen at the beginning is not stored"))
				return
			}
			_ = st.Send(wire.ScreenContent{ScreenContent: state})
		case *wire.Attach:
			_ = st.Send(wire.Attached{AttachInfo: protocol.AttachInfo{Offset: gap, BytesMissed: gap}})
			_ = st.Send(wire.Resized{Cols: size.Cols, Rows: size.Rows})
			_ = st.SendRaw(frame.AppendData(nil, frame.Output, 1, gap, []byte(text)))
			_ = st.Send(wire.Exited{})
		}
	})
	store := OpenDir(t.TempDir())
	r := &Recorder{Link: linkTo(t, sup), Host: testName.Host, Log: zerolog.Nop(), store: store}
	r.buffer.limit = maxBuffered
	newSession(r, &protocol.SessionInfo{ID: testName.ID, Instance: testName.Instance, Size: size}).run(t.Context())

	if r := report(t, store, nil); !r.IsComplete || len(r.Problems) != 1 || r.Problems[0].Kind != ProblemMissing || r.Problems[0].To != gap || r.Start != gap || r.End != state.Offset {
		t.Errorf("%+v", r)
	}
	for name, at := range map[string]*protocol.Moment{"the end": nil, "its offset": {Offset: &state.Offset}, "now": {AgoMS: new(int64)}} {
		c, err := Show(t.Context(), store, nil, testName, at, protocol.ScreenSpec{})
		if err != nil || len(c.Lines) != 2 || c.Lines[0] != "before" || c.Lines[1] != " the end" {
			t.Errorf("%s: %q, %v", name, c.Lines, err)
		}
	}
}
