package linkclient

import (
	"errors"
	"io"
	"os"
	"reflect"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// A listener is a session that sends nothing by itself. It reports its streams and the messages that arrive.
type listener struct {
	streams chan *link.Stream
	attach  chan protocol.AttachSpec
	heard   chan protocol.Message // a nil shows the end of a stream
}

func listening(s *supervisor) *listener {
	l := &listener{make(chan *link.Stream, 9), make(chan protocol.AttachSpec, 9), make(chan protocol.Message, 99)}
	s.Answer(func(st *link.Stream, request protocol.Message) {
		m := request.(*wire.Attach)
		_ = st.Send(wire.Attached{AttachInfo: protocol.AttachInfo{
			Session: protocol.SessionInfo{ID: "s", Instance: life}, Replay: protocol.ReplaySnapshot, Offset: 3, Writer: "w",
		}})
		l.attach <- m.AttachSpec
		l.streams <- st
		for {
			m, err := st.Receive()
			if err != nil {
				l.heard <- nil
				return
			}
			l.heard <- m
		}
	})
	return l
}

func (l *listener) begin(t *testing.T, c *Client, spec protocol.AttachSpec) (*Attachment, *link.Stream) {
	t.Helper()
	a, _, err := c.Attach(testkit.Soon(t), 1, spec)
	testkit.Must(t, err)
	testkit.Within(t, patience, "the attach", l.attach)
	return a, testkit.Within(t, patience, "the stream", l.streams)
}

func next(t *testing.T, a *Attachment) Item {
	t.Helper()
	item, err := a.Next(testkit.Soon(t))
	testkit.Must(t, err)
	return item
}

// A view is passed on unchanged, and cannot be continued. Over the next link the attachment requests a snapshot, from
// the offset of the last view. After a resync with output it resumes by output again.
func TestView(t *testing.T) {
	s, c := running(t)
	l := listening(s)
	a, st := l.begin(t, c, protocol.AttachSpec{SessionID: "s", Cols: 90, Rows: 30, View: protocol.ViewOwn})
	raw := frame.AppendData(nil, frame.View, 1, 7, []byte("view"))
	_ = st.SendRaw(raw)
	if item := next(t, a); string(item.Raw) != string(raw) {
		t.Errorf("got %q, want %q", item.Raw, raw)
	}
	s.Cut()
	for _, want := range []string{"resync", "error"} {
		if m := next(t, a).Message; m == nil || m.MessageType() != want {
			t.Errorf("after the cut: %+v, want %s", m, want)
		}
	}
	spec := testkit.Within(t, patience, "the resume", l.attach)
	if !spec.Snapshot || !reflect.DeepEqual(spec.Resume, &protocol.Resume{Instance: life, Offset: 7}) || spec.View != protocol.ViewOwn {
		t.Errorf("the resume is %+v %+v", spec, spec.Resume)
	}

	st = testkit.Within(t, patience, "the stream", l.streams)
	_ = st.SendRaw(frame.AppendData(nil, frame.View, 1, 8, []byte("view")))
	_ = st.Send(wire.Resync{Offset: 9})
	_ = st.SendRaw(frame.AppendData(nil, frame.Output, 1, 9, []byte("output")))
	for range 3 {
		next(t, a)
	}
	s.Cut()
	next(t, a)
	if spec := testkit.Within(t, patience, "the resume", l.attach); spec.Snapshot || spec.Resume.Offset != 15 {
		t.Errorf("the resume is %+v %+v", spec, spec.Resume)
	}
	a.Close()
}

// Changes of a viewer's size and appearance while there is no link are not lost: the resumed attach has the last
// ones, and they are also sent again, once.
func TestToldAgain(t *testing.T) {
	s := newSupervisor(t)
	s.Listen()
	c, d := s.client(func(int) error { return nil })
	l := listening(s)
	a, _ := l.begin(t, c, protocol.AttachSpec{SessionID: "s", Cols: 80, Rows: 24, View: protocol.ViewOwn})
	a.Send(wire.Resize{Cols: 90, Rows: 30})
	if m := testkit.Within(t, patience, "the first size", l.heard); !reflect.DeepEqual(m, &wire.Resize{Cols: 90, Rows: 30}) {
		t.Errorf("received %+v", m)
	}
	before, _ := d.get()
	s.Stop()
	items := make(chan Item, 9)
	ended := make(chan error, 1)
	go func() {
		for {
			item, err := a.Next(testkit.Soon(t))
			if err != nil {
				ended <- err
				return
			}
			items <- item
		}
	}()
	for tries := before; tries < before+2; tries, _ = d.get() {
	}
	testkit.Within(t, patience, "the stream's end", l.heard)
	dark, light := protocol.Appearance{Background: "#000000"}, protocol.Appearance{Background: "#ffffff", CellWidth: 9}
	a.Send(wire.Appearance{Appearance: dark})
	a.Send(wire.Resize{Cols: 100, Rows: 40})
	a.Send(wire.Interrupt{}) // is lost, because it would be too late
	a.Send(wire.Appearance{Appearance: light})
	a.Send(wire.Resize{Cols: 110})
	testkit.Must(t, os.Remove(s.Path))
	s.Listen()
	spec := testkit.Within(t, patience, "the resume", l.attach)
	if spec.Cols != 110 || spec.Rows != 24 || spec.Appearance == nil || *spec.Appearance != light || !spec.Snapshot {
		t.Errorf("the resume is %+v", spec)
	}
	for _, want := range []protocol.Message{&wire.Resize{Cols: 110}, &wire.Appearance{Appearance: light}} {
		if m := testkit.Within(t, patience, "the message comes again", l.heard); !reflect.DeepEqual(m, want) {
			t.Errorf("received %+v, want %+v", m, want)
		}
	}
	// Changes are not sent again over the link after that, and the view has that size by now.
	_ = testkit.Within(t, patience, "the stream", l.streams).Send(wire.Resync{Offset: 3})
	for range 3 {
		testkit.Within(t, patience, "the messages of the resume, and the resync", items)
	}
	s.Cut()
	if spec := testkit.Within(t, patience, "the resume", l.attach); spec.Cols != 110 || spec.Snapshot {
		t.Errorf("the resume is %+v", spec)
	}
	testkit.Within(t, patience, "the stream's end", l.heard)
	_ = testkit.Within(t, patience, "the stream", l.streams).Send(wire.Resync{Offset: 3})
	for range 3 {
		testkit.Within(t, patience, "the messages of the resume, and the resync", items)
	}
	a.Detach()
	if m := testkit.Within(t, patience, "the detach", l.heard); !reflect.DeepEqual(m, &wire.Detach{}) {
		t.Errorf("received %+v", m)
	}
	if err := testkit.Within(t, patience, "the end", ended); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v", err)
	}
}

// A size of which a supervisor may have died is not sent to its successor, also if the link with the successor was made
// before the viewer learns of the loss.
func TestSizeBeforeDeath(t *testing.T) {
	s, c := running(t)
	l := listening(s)
	a, _ := l.begin(t, c, protocol.AttachSpec{SessionID: "s", Cols: 80, Rows: 24})
	a.Send(wire.Resize{Cols: 90, Rows: 30})
	testkit.Within(t, patience, "the size", l.heard)
	s.Welcome(wire.Welcome{PID: 8, Instance: life})
	dead := c.live()
	s.Cut()
	testkit.Within(t, patience, "the end of the link", dead.Done())
	if _, err := c.Conn(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	next(t, a)
	if spec := testkit.Within(t, patience, "the resume", l.attach); spec.Cols != 90 || spec.Rows != 30 {
		t.Errorf("the resume is %+v", spec)
	}
	a.Send(wire.Interrupt{})
	for {
		m := testkit.Within(t, patience, "the message after the resume", l.heard)
		if m == nil { // the end of the stream before
			continue
		}
		if !reflect.DeepEqual(m, &wire.Interrupt{}) {
			t.Errorf("received %+v", m)
		}
		break
	}
	a.Close()
}

// The supervisor receives a detach from a viewer that leaves, and none from one that is lost.
func TestDetachAndClose(t *testing.T) {
	s, c := running(t)
	l := listening(s)
	for _, detach := range []bool{true, false} {
		a, _ := l.begin(t, c, protocol.AttachSpec{SessionID: "s"})
		if detach {
			a.Detach()
			if m := testkit.Within(t, patience, "the detach", l.heard); !reflect.DeepEqual(m, &wire.Detach{}) {
				t.Errorf("received %+v", m)
			}
		}
		a.Close()
		a.Detach()
		if m := testkit.Within(t, patience, "the end", l.heard); m != nil {
			t.Errorf("received %+v", m)
		}
	}
}

// A supervisor that upgrades refuses the messages of attachments, and the viewers do not notice. Messages that it may
// not have executed are sent again over the next link, or over the same link if the upgrade fails.
func TestAttachedWhileUpgrading(t *testing.T) {
	for _, stays := range []bool{false, true} {
		s, c := running(t)
		l := listening(s)
		a, st := l.begin(t, c, protocol.AttachSpec{SessionID: "s", Cols: 80, Rows: 24})
		a.Send(wire.Resize{Cols: 90, Rows: 30})
		a.Send(wire.Pause{})
		for range 2 {
			testkit.Within(t, patience, "the resize and the pause", l.heard)
		}
		for range 2 {
			_ = st.Fail(&protocol.Error{Code: protocol.CodeUpgrading, Retryable: true})
		}
		_ = st.Send(wire.Accepted{Offset: 1})
		if m := next(t, a).Message; !reflect.DeepEqual(m, &wire.Accepted{Offset: 1}) {
			t.Errorf("received %+v", m)
		}
		if !stays {
			s.Cut()
		}
		for _, want := range []string{"resync", "error"} {
			if m := next(t, a).Message; m == nil || m.MessageType() != want {
				t.Errorf("received %+v, want %s", m, want)
			}
		}
		if spec := testkit.Within(t, patience, "the resume", l.attach); spec.Cols != 90 || spec.Rows != 30 {
			t.Errorf("the resume is %+v", spec)
		}
		var again []protocol.Message
		for range 3 {
			// The end of the old stream may come between them, or behind them.
			if m := testkit.Within(t, patience, "the message comes again", l.heard); m != nil {
				again = append(again, m)
			}
		}
		if want := []protocol.Message{&wire.Resize{Cols: 90, Rows: 30}, &wire.Pause{}}; !reflect.DeepEqual(again, want) {
			t.Errorf("received %+v, want %+v", again, want)
		}
		a.Close()
		if links := s.LinkCount(); stays != (links == 1) {
			t.Errorf("%d links; the upgrade fails: %v", links, stays)
		}
	}
}
