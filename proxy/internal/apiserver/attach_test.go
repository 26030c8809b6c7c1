package apiserver

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// A stage is the supervisor's end of attachments, where the test plays the session.
type stage struct {
	w       *world
	info    protocol.AttachInfo // the reply to each attach
	entered chan *actor         // receives an actor for each attach
}

type actor struct {
	t     testing.TB
	st    *link.Stream
	spec  wire.Attach
	heard chan protocol.Message // control messages and input from the proxy; closed at the end
}

// wantLeft checks that the next message is the viewer's detach, and that no message follows.
func (a *actor) wantLeft() {
	a.t.Helper()
	if m := testkit.Within(a.t, patience, "the viewer leaves", a.heard); !reflect.DeepEqual(m, &wire.Detach{}) {
		a.t.Errorf("received %+v, want detach", m)
	}
	if m, ok := <-a.heard; ok {
		a.t.Errorf("received %+v", m)
	}
}

// typed is input that the session has received.
type typed struct {
	attachment uint32
	offset     uint64
	bytes      string
}

func (typed) MessageType() string { return "typed" }

// newStage answers each attach with info, and all other requests with OK.
func newStage(w *world, info protocol.AttachInfo) *stage {
	s := &stage{w: w, info: info, entered: make(chan *actor, 300)}
	w.Answer(s.answer)
	return s
}

func (s *stage) answer(st *link.Stream, m protocol.Message) {
	attach, ok := m.(*wire.Attach)
	if !ok {
		_ = st.Send(wire.OK{})
		return
	}
	a := &actor{t: s.w.t, st: st, spec: *attach, heard: make(chan protocol.Message, 100)}
	info := s.info
	info.Session.ID, info.Session.Instance = attach.SessionID, "life"
	if attach.Resume != nil && !attach.Snapshot {
		info.Replay, info.Offset, info.SnapshotBytes = protocol.ReplayExact, attach.Resume.Offset, 0
	}
	_ = st.Send(wire.Attached{AttachInfo: info})
	s.entered <- a
	a.listen()
}

func (a *actor) listen() {
	defer close(a.heard)
	for {
		raw, err := a.st.Next()
		if err != nil {
			return
		}
		payload := raw[frame.HeaderLen:]
		if frame.Kind(raw[4]) == frame.Input {
			n, offset, p, err := frame.ParseData(payload)
			if err != nil {
				a.t.Error(err)
			}
			a.heard <- typed{n, offset, string(p)}
			continue
		}
		m, _, err := wire.Messages.Decode(payload)
		if err != nil {
			a.t.Error(err)
			continue
		}
		a.heard <- m
	}
}

func (a *actor) say(m protocol.Message) { _ = a.st.Send(m) }

func (a *actor) print(offset uint64, text string) {
	_ = a.st.SendRaw(frame.AppendData(nil, frame.Output, a.spec.Attachment, offset, []byte(text)))
}

func (s *stage) next() *actor {
	s.w.t.Helper()
	return testkit.Within(s.w.t, patience, "the session is attached to", s.entered)
}

// attach attaches a client, and returns the session's end of the attachment.
func (s *stage) attach(c *client, number uint32) *actor {
	c.t.Helper()
	c.send(api.Attach{Request: req("a"), Attachment: number, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	if m := expect[*api.Attached](c); m.Attachment != number {
		c.t.Fatalf("arrived %+v", m)
	}
	return s.next()
}

// An attachment passes all messages on, in both directions and in order.
// demand: R4 R6 R7
func TestAttachment(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{Replay: protocol.ReplaySnapshot, Offset: 9, SnapshotBytes: 2, BytesMissed: 7, Writer: "w", InputOffset: 5})
	c := w.client()
	spec := protocol.AttachSpec{
		SessionID: "s", Cols: 90, Rows: 30, Mode: protocol.ModeExclusive, Steal: true, History: new(5), Answers: true, Writer: "w", Term: "xterm", IsTTY: true,
	}
	c.send(api.Attach{Request: req("a"), Attachment: 7, AttachSpec: spec})
	m := expect[*api.Attached](c)
	if m.RequestID != "a" || m.Attachment != 7 || m.BytesMissed != 7 || m.SnapshotBytes != 2 || m.Writer != "w" || m.InputOffset != 5 || m.Session.ID != "s" {
		t.Errorf("arrived %+v", m)
	}
	a := s.next()
	spec.Client = "tester" // the name of the client's hello, because the attach has none
	if got := a.spec; got.Attachment != 7 || !reflect.DeepEqual(got.AttachSpec, spec) {
		t.Errorf("asked %+v", got)
	}

	_ = a.st.SendRaw(frame.AppendData(nil, frame.Snapshot, 7, 9, []byte("sn")))
	a.print(9, "out")
	a.say(wire.Resized{Cols: 5, Rows: 6})
	a.say(wire.Resync{Offset: 50, BytesMissed: 3, SnapshotBytes: 4})
	a.say(wire.Accepted{Offset: 8})
	for _, code := range []protocol.Code{protocol.CodeInputFull, protocol.CodeInputGap, protocol.CodePermissionDenied, protocol.CodeLineTooLong} {
		_ = a.st.Fail(&protocol.Error{Code: code, Message: "m", Offset: new(uint64(6))})
	}
	for _, code := range []protocol.Code{protocol.CodeSessionNotFound, protocol.CodeSessionExited} { // input to a session that ends causes no error
		_ = a.st.Fail(&protocol.Error{Code: code})
	}
	_ = a.st.SendRaw(frame.AppendData(nil, frame.View, 7, 11, []byte("view")))
	a.print(12, "more")
	n := new(uint32(7))
	for _, want := range []any{
		data{frame.Snapshot, 7, 9, "sn"}, data{frame.Output, 7, 9, "out"},
		api.Resized{Attachment: 7, Cols: 5, Rows: 6}, api.Resync{Attachment: 7, Offset: 50, BytesMissed: 3, SnapshotBytes: 4},
		api.Accepted{Attachment: n, Offset: 8},
		api.Error{Attachment: n, Error: protocol.Error{Code: protocol.CodeInputFull, Message: "m", Offset: new(uint64(6))}},
		api.Error{Attachment: n, Error: protocol.Error{Code: protocol.CodeInputGap, Message: "m", Offset: new(uint64(6))}},
		api.Error{Attachment: n, Error: protocol.Error{Code: protocol.CodePermissionDenied, Message: "m", Offset: new(uint64(6))}},
		api.Error{Attachment: n, Error: protocol.Error{Code: protocol.CodeLineTooLong, Message: "m", Offset: new(uint64(6))}},
		data{frame.View, 7, 11, "view"}, data{frame.Output, 7, 12, "more"},
	} {
		got := c.mustNext()
		if m, ok := want.(protocol.Message); ok {
			equal(t, "arrived", got.(protocol.Message), m)
		} else if got != want {
			t.Errorf("received %+v, want %+v", got, want)
		}
	}

	c.raw(frame.AppendData(nil, frame.Input, 7, 5, []byte("ls\n")))
	c.send(api.Resize{Attachment: n, Cols: 11, Rows: 12})
	c.send(api.Interrupt{Attachment: n})
	c.send(api.Resize{Request: req("r"), Attachment: n, Cols: 13, Rows: 14})
	c.send(api.Interrupt{Request: req("i"), Attachment: n})
	light := protocol.Appearance{Background: "#ffffff", CellWidth: 9}
	c.send(api.Appearance{Request: req("l"), Attachment: 7, Appearance: light})
	c.send(api.Appearance{Attachment: 7})
	c.raw(frame.AppendData(nil, frame.Input, 7, 8, []byte("x")))
	for _, want := range []protocol.Message{
		typed{7, 5, "ls\n"}, &wire.Resize{Cols: 11, Rows: 12}, &wire.Interrupt{}, &wire.Resize{Cols: 13, Rows: 14}, &wire.Interrupt{},
		&wire.Appearance{Appearance: light}, &wire.Appearance{}, typed{7, 8, "x"},
	} {
		got := testkit.Within(t, patience, "the session hears it", a.heard)
		if _, ok := want.(typed); ok {
			if got != want {
				t.Errorf("received %+v, want %+v", got, want)
			}
			continue
		}
		equal(t, "heard", got, want)
	}
	for _, want := range []string{"r", "i", "l"} {
		if m := expect[*api.OK](c); m.RequestID != want {
			t.Errorf("the reply is %+v, want one to %s", m, want)
		}
	}

	c.send(api.Detach{Request: req("d"), Attachment: 7})
	if m := expect[*api.Detached](c); m.RequestID != "d" || m.Attachment != 7 {
		t.Errorf("arrived %+v", m)
	}
	a.wantLeft()
	if asked := w.Requests(); len(asked) != 1 {
		t.Errorf("the supervisor received the requests %v, want one", asked[1:])
	}
}

// The session's exit is the attachment's last message, in the form that the client knows. Then the number can be used
// again.
// demand: B1 B3 B4 B5 B6 B8
func TestExit(t *testing.T) {
	long := strings.Repeat("x", 64)
	exit := protocol.ExitRecord{ExitCode: 2, Signal: "SIGHUP", Outcome: protocol.OutcomeSoft, Reason: protocol.ReasonIdleTimeout, TimedOut: true, LastLines: []string{"a", "b"}, Tail: []string{"", "a", "b"}}
	n := new(uint32(3))
	for _, tt := range []struct {
		name   string
		caps   []protocol.Capability
		labels map[string]string
		exit   protocol.ExitRecord
		want   protocol.Message
	}{
		{name: "with everything", exit: exit,
			labels: map[string]string{"pane_id": "p-1", "title": "T", "description": "D", "parent_agent": "A", "other": "O"},
			want: api.PTYExited{SessionID: "s", PaneID: "p-1", ExitCode: 2, LastLines: []string{"a", "b"}, SessionTitle: "T", SessionDescription: "D", ParentAgent: new("A"),
				TimedOut: true, Reason: "idle_timeout", Signal: "SIGHUP", Outcome: "soft", Instance: "life", Attachment: n}},
		{name: "with nothing", exit: protocol.ExitRecord{ExitCode: 0},
			want: api.PTYExited{SessionID: "s", PaneID: "s", LastLines: []string{}, Instance: "life", Attachment: n}},
		{name: "with an empty agent", labels: map[string]string{"parent_agent": ""},
			want: api.PTYExited{SessionID: "s", PaneID: "s", LastLines: []string{}, ParentAgent: new(""), Instance: "life", Attachment: n}},
		{name: "a pane that is no id", labels: map[string]string{"pane_id": "a b"},
			want: api.PTYExited{SessionID: "s", PaneID: "s", LastLines: []string{}, Instance: "life", Attachment: n}},
		{name: "the longest pane", labels: map[string]string{"pane_id": long},
			want: api.PTYExited{SessionID: "s", PaneID: long, LastLines: []string{}, Instance: "life", Attachment: n}},
		{name: "in other words", exit: exit, caps: []protocol.Capability{protocol.CapTerminalExit},
			want: api.TerminalExit{SessionID: "s", ExitCode: 2, Reason: "idle_timeout", Attachment: n}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			s := newStage(w, protocol.AttachInfo{})
			c := w.client(tt.caps...)
			a := s.attach(c, 3)
			a.print(0, "the last byte")
			a.say(wire.Exited{SessionID: "s", Instance: "life", Labels: tt.labels, Exit: tt.exit})
			if got := expect[data](c); got.bytes != "the last byte" {
				t.Errorf("arrived %+v", got)
			}
			got, ok := c.mustNext().(protocol.Message)
			if !ok {
				t.Fatal("data came after the end")
			}
			equal(t, "arrived", got, tt.want)
			if m, ok := <-a.heard; ok {
				t.Errorf("received %+v", m)
			}
			c.ping() // no message came before: neither another frame nor a second exit
			s.attach(c, 3)
		})
	}
}

// Whatever a client sends while its session ends, the exit comes first. Later messages for the number are answered by
// not_attached.
// demand: B5
func TestExitRace(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	for round := range 100 {
		a := s.attach(c, 1)
		go a.say(wire.Exited{SessionID: "s", Exit: protocol.ExitRecord{}})
		const pieces = 20
		for i := range uint64(pieces) {
			c.raw(frame.AppendData(nil, frame.Input, 1, i, []byte("x")))
		}
		c.send(api.Detach{Request: req("d"), Attachment: 1})
		ended := false
		for done := false; !done; {
			switch m := c.mustNext().(type) {
			case *api.PTYExited:
				if ended {
					t.Fatalf("round %d: the exit came twice", round)
				}
				ended = true
			case *api.Error:
				if !ended || m.Code != protocol.CodeNotAttached || *m.Attachment != 1 {
					t.Fatalf("round %d: received %v, the exit had come: %v", round, m.Error, ended)
				}
			case *api.Detached:
				done = true
			default:
				t.Fatalf("received %T %+v", m, m)
			}
		}
		c.ping() // no message comes after detached
		for range a.heard {
		}
	}
}

// After detached no message comes for the number, even if some were on their way.
// demand: R2
func TestDetachRace(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	for range 50 {
		a := s.attach(c, 1)
		var printing sync.WaitGroup
		printing.Go(func() {
			for i := uint64(0); a.st.SendRaw(frame.AppendData(nil, frame.Output, 1, i, []byte("x"))) == nil; i++ {
			}
		})
		c.send(api.Detach{Request: req("d"), Attachment: 1})
		for {
			if m, ok := c.mustNext().(*api.Detached); ok {
				if m.RequestID != "d" || m.Attachment != 1 {
					t.Errorf("arrived %+v", m)
				}
				break
			}
		}
		c.ping()
		printing.Wait()
	}
	c.send(api.Detach{Request: req("again"), Attachment: 1})
	if m := expect[*api.Detached](c); m.RequestID != "again" {
		t.Errorf("arrived %+v", m)
	}
}

// An attach that is not answered yet can be detached from as well.
func TestDetachWhileAttaching(t *testing.T) {
	w := newWorld(t, nil)
	asked := make(chan struct{})
	w.Answer(func(st *link.Stream, _ protocol.Message) {
		close(asked)
		_, _ = st.Next() // the attach is never answered
	})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	testkit.Within(t, patience, "the supervisor is asked", asked)
	c.send(api.Detach{Request: req("d"), Attachment: 1})
	for range 2 { // the two replies come in any order
		switch m := c.mustNext().(type) {
		case *api.Error:
			if m.RequestID != "a" || m.Code != protocol.CodeNotAttached {
				t.Errorf("arrived %+v", m)
			}
		case *api.Detached:
		default:
			t.Errorf("received %T %+v", m, m)
		}
	}
	newStage(w, protocol.AttachInfo{}).attach(c, 1)
}

// demand: R5
func TestStolen(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	a := s.attach(c, 1)
	a.say(wire.Stolen{StolenBy: "thief"})
	if m := expect[*api.Stolen](c); m.Attachment != 1 || m.StolenBy != "thief" {
		t.Errorf("arrived %+v", m)
	}
	c.ping()
	s.attach(c, 1)
}

// Any other error ends the attachment.
func TestFailed(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	a := s.attach(c, 1)
	_ = a.st.Fail(protocol.Errorf(protocol.CodeInternal, "broken"))
	if e := c.wantError(protocol.CodeInternal); e.Attachment == nil || *e.Attachment != 1 {
		t.Errorf("arrived %+v", e)
	}
	a.wantLeft()
	s.attach(c, 1)
}

// demand: R5
func TestAttachRefused(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	attach := func(number uint32, spec protocol.AttachSpec) {
		c.send(api.Attach{Request: req("a"), Attachment: number, AttachSpec: spec})
	}
	n := new(uint32(5))
	c.raw(frame.AppendData(nil, frame.Input, 5, 0, []byte("x")))
	if e := c.wantError(protocol.CodeNotAttached); *e.Attachment != 5 {
		t.Errorf("arrived %+v", e)
	}
	c.send(api.Resize{Request: req("r"), Attachment: n})
	if e := c.wantError(protocol.CodeNotAttached); e.RequestID != "r" || *e.Attachment != 5 {
		t.Errorf("arrived %+v", e)
	}
	c.send(api.Interrupt{Attachment: n})
	c.wantError(protocol.CodeNotAttached)
	attach(firstTerminal, protocol.AttachSpec{SessionID: "s"})
	c.wantError(protocol.CodeInvalidArgument)
	attach(1, protocol.AttachSpec{SessionID: "a b"})
	c.wantError(protocol.CodeInvalidArgument)
	attach(1, protocol.AttachSpec{SessionID: "s", Mode: "boss"})
	c.wantError(protocol.CodeInvalidArgument)
	attach(1, protocol.AttachSpec{SessionID: "s", Client: strings.Repeat("x", 257)})
	c.wantError(protocol.CodeLimitExceeded)
	if asked := w.Requests(); len(asked) > 0 {
		t.Errorf("the supervisor received %v", asked)
	}

	s.attach(c, 1)
	attach(1, protocol.AttachSpec{SessionID: "t"})
	if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "a" || e.Attachment != nil {
		t.Errorf("a number in use: received %+v", e)
	}
	other := w.client()
	s.attach(other, 1) // another connection may use the same number

	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeAlreadyAttached, "no")
	})
	attach(2, protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeExclusive})
	if e := c.wantError(protocol.CodeAlreadyAttached); e.RequestID != "a" || e.Attachment != nil {
		t.Errorf("arrived %+v", e)
	}
	s = newStage(w, protocol.AttachInfo{})
	s.attach(c, 2) // a refused attach leaves the number free
}

func TestAttachmentsLimit(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	for n := range uint32(maxAttachments) {
		s.attach(c, n)
	}
	c.send(api.Attach{Request: req("a"), Attachment: 1000, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	c.wantError(protocol.CodeLimitExceeded)
	c.send(api.TerminalOpen{Request: req("t"), TaskID: "task"})
	if m := expect[*api.TerminalError](c); m.RequestID != "t" || m.Code != protocol.CodeLimitExceeded {
		t.Errorf("arrived %+v", m)
	}
	if made := w.Requests("create"); len(made) > 0 {
		t.Error("a session was created for an attach that was refused")
	}
	c.send(api.Detach{Request: req("d"), Attachment: 7})
	expect[*api.Detached](c)
	s.attach(c, 1000)
}

// A lost link does not end an attachment: the client learns which input to send again, and continues.
// demand: S8
func TestLinkLost(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{Writer: "w", InputOffset: 4})
	c := w.client()
	a := s.attach(c, 1)
	a.print(0, "one")
	expect[data](c)
	w.Cut()
	a = s.next()
	if r := a.spec.Resume; r == nil || *r != (protocol.Resume{Instance: "life", Offset: 3}) || a.spec.Writer != "w" || a.spec.Client != "tester" {
		t.Errorf("the resume is %+v", a.spec)
	}
	if e := c.wantError(protocol.CodeInputGap); *e.Attachment != 1 || *e.Offset != 4 {
		t.Errorf("arrived %+v", e)
	}
	a.print(3, "two")
	if got := expect[data](c); got != (data{frame.Output, 1, 3, "two"}) {
		t.Errorf("arrived %+v", got)
	}
	c.raw(frame.AppendData(nil, frame.Input, 1, 4, []byte("x")))
	if got := testkit.Within(t, patience, "the session hears it", a.heard); got != (typed{1, 4, "x"}) {
		t.Errorf("received %+v", got)
	}

	// The link is lost within a snapshot, so the supervisor sends another one.
	a.say(wire.Resync{Offset: 100, BytesMissed: 9, SnapshotBytes: 10})
	expect[*api.Resync](c)
	newStageAt := protocol.AttachInfo{Replay: protocol.ReplaySnapshot, Offset: 120, SnapshotBytes: 2, Writer: "w", InputOffset: 5}
	s = newStage(w, newStageAt)
	w.Cut()
	a = s.next()
	if r := a.spec.Resume; r == nil || r.Offset != 6+9 || !a.spec.Snapshot { // the position is that before the snapshot, with the missed bytes that were announced
		t.Errorf("the second attach is %+v", a.spec)
	}
	if m := expect[*api.Resync](c); m.Attachment != 1 || m.Offset != 120 || m.SnapshotBytes != 2 {
		t.Errorf("arrived %+v", m)
	}
	c.wantError(protocol.CodeInputGap)

	// At last the session does not exist any more.
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "gone")
	})
	w.Cut()
	if e := c.wantError(protocol.CodeSessionNotFound); e.Attachment == nil || *e.Attachment != 1 || e.RequestID != "" {
		t.Errorf("arrived %+v", e)
	}
	c.raw(frame.AppendData(nil, frame.Input, 1, 5, []byte("x")))
	c.wantError(protocol.CodeNotAttached)
}

// Messages that a client sends for an attachment before its attach is answered reach the session in order. If the
// attach is refused, they fail with not_attached.
func TestSentBehindAttach(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	for number := range uint32(50) {
		n := new(number)
		c.send(api.Attach{Request: req("a"), Attachment: number, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
		c.raw(frame.AppendData(nil, frame.Input, number, 0, []byte("x")))
		c.send(api.Resize{Attachment: n, Cols: 5, Rows: 6})
		c.raw(frame.AppendData(nil, frame.Input, number, 1, []byte("y")))
		expect[*api.Attached](c)
		a := s.next()
		for _, want := range []protocol.Message{typed{number, 0, "x"}, &wire.Resize{Cols: 5, Rows: 6}, typed{number, 1, "y"}} {
			if got := testkit.Within(t, patience, "the message arrives", a.heard); !reflect.DeepEqual(got, want) {
				t.Fatalf("attachment %d receives %+v, want %+v", number, got, want)
			}
		}
	}
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "no session")
	})
	c.send(api.Attach{Request: req("a"), Attachment: 99, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	c.raw(frame.AppendData(nil, frame.Input, 99, 0, []byte("x")))
	c.wantError(protocol.CodeSessionNotFound)
	c.wantError(protocol.CodeNotAttached)
}

// An invalid appearance or size is refused, and does not end the attachment. One for an attachment that does not exist fails
// with not_attached.
func TestAppearanceRefused(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	a := s.attach(c, 1)
	c.send(api.Appearance{Request: req("x"), Attachment: 1, Appearance: protocol.Appearance{Cursor: "red"}})
	if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "x" || e.Attachment != nil {
		t.Errorf("arrived %+v", e)
	}
	c.send(api.Appearance{Request: req("y"), Attachment: 2})
	if e := c.wantError(protocol.CodeNotAttached); e.RequestID != "y" || e.Attachment == nil {
		t.Errorf("arrived %+v", e)
	}
	c.send(api.Resize{Request: req("z"), Attachment: new(uint32(1)), Cols: -5, Rows: 6})
	if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "z" || e.Attachment != nil {
		t.Errorf("arrived %+v", e)
	}
	c.send(api.Resize{Attachment: new(uint32(1)), Cols: 5, Rows: 6})
	if m := testkit.Within(t, patience, "the session hears it", a.heard); !reflect.DeepEqual(m, &wire.Resize{Cols: 5, Rows: 6}) {
		t.Errorf("received %+v", m)
	}
}

// A client whose connection ends without a detach may resume, so the supervisor receives no detach.
func TestGoneViewer(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	var all []*actor
	for n := range uint32(5) {
		all = append(all, s.attach(c, n))
	}
	c.nc.Close()
	for _, a := range all {
		if m, ok := <-a.heard; ok {
			t.Errorf("received %+v", m)
		}
	}
	testkit.Within(t, patience, "the server is done", c.served)
}

// A client that does not read delays only itself.
// demand: R10
func TestSlowClient(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	slow, other := w.client(), w.client()
	a, b := s.attach(slow, 1), s.attach(other, 1)
	stuck := make(chan uint64)
	go func() {
		piece := make([]byte, frame.MaxData)
		for at := uint64(0); ; at += frame.MaxData {
			sent := make(chan error, 1)
			go func() { sent <- a.st.SendRaw(frame.AppendData(nil, frame.Output, 1, at, piece)) }()
			select {
			case err := <-sent:
				if err != nil {
					return
				}
			case stuck <- at: // received if the last piece is not accepted
				<-sent
				return
			}
		}
	}()
	// Others are served, whether the slow client's queues are full yet or not.
	for i := range 50 {
		b.print(uint64(i), "x")
		if got := expect[data](other); got.offset != uint64(i) {
			t.Fatalf("arrived %+v", got)
		}
		other.send(api.Forget{Request: req("l"), SessionID: "s"})
		expect[*api.OK](other)
	}
	const enough = 4 << 20 // far more than sockets and windows hold
	if at := testkit.Within(t, patience, "the flood stops", stuck); at > enough {
		t.Errorf("%d bytes were accepted for a client that does not read", at)
	}
	slow.nc.Close()
	testkit.Within(t, patience, "the server is done with it", slow.served)
	other.ping()
}

// Frames of several attachments on one connection arrive whole.
func TestManyViews(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	const views, pieces = 20, 50
	var all []*actor
	for n := range uint32(views) {
		all = append(all, s.attach(c, n))
	}
	for n, a := range all {
		go func() {
			for i := range pieces {
				a.print(uint64(i), fmt.Sprint(n, " ", i))
			}
			a.say(wire.Exited{SessionID: "s"})
		}()
	}
	next := map[uint32]uint64{}
	for ended := 0; ended < views; {
		switch m := c.mustNext().(type) {
		case data:
			if m.offset != next[m.attachment] || m.bytes != fmt.Sprint(m.attachment, " ", m.offset) {
				t.Fatalf("arrived %+v", m)
			}
			next[m.attachment]++
		case *api.PTYExited:
			ended++
			if next[*m.Attachment] != pieces {
				t.Errorf("attachment %d ended after %d pieces", *m.Attachment, next[*m.Attachment])
			}
		}
	}
}

// flood prints to an attachment until it ends, one full frame at a time.
func (a *actor) flood() {
	piece := make([]byte, frame.MaxData)
	for at := uint64(0); a.st.SendRaw(frame.AppendData(nil, frame.Output, a.spec.Attachment, at, piece)) == nil; at += frame.MaxData {
	}
}

// Small messages do not wait for floods: a reply, and the output of a quiet session, come before each flooding
// attachment has sent about two more frames than the socket already held.
// demand: R10
func TestFairness(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	const floods = 20
	quiet := s.attach(c, 100)
	var all []*actor
	for n := range uint32(floods) {
		all = append(all, s.attach(c, n))
	}
	for _, a := range all {
		go a.flood()
	}
	const inSockets = 64 // frames: 2 MiB, although Linux holds about 200 KiB
	behind := map[string][]int{}
	for i := range 21 {
		arrived, at := map[string]int{}, 0
		c.raw(text(`{"type":"teleport","request_id":"x"}`))
		quiet.print(uint64(i), "x")
		for ; len(arrived) < 2; at++ {
			switch m := c.mustNext().(type) {
			case *api.Error:
				arrived["the answer"] = at
			case data:
				if m.attachment == 100 {
					arrived["the quiet session"] = at
				}
			}
		}
		for what, at := range arrived {
			behind[what] = append(behind[what], at)
		}
	}
	for what, at := range behind {
		slices.Sort(at) // the median, because in a single round the server may not be scheduled
		if at[len(at)/2] > 2*floods+inSockets {
			t.Errorf("%s came behind %v frames of %d floods", what, at, floods)
		}
	}
	c.nc.Close()
	testkit.Within(t, patience, "the server is done", c.served)
}
