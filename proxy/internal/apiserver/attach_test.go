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

// A stage is the supervisor's end of attachments: the test plays the session.
type stage struct {
	w       *world
	info    protocol.AttachInfo // of the answer to each attach
	entered chan *actor         // one for each attach
}

type actor struct {
	t     testing.TB
	st    *link.Stream
	spec  wire.Attach
	heard chan protocol.Message // control messages and typed, from the proxy; closed at the end
}

// wantLeft checks that the next thing heard is that the viewer leaves, and
// nothing after it.
func (a *actor) wantLeft() {
	a.t.Helper()
	if m := testkit.Within(a.t, patience, "the viewer leaves", a.heard); !reflect.DeepEqual(m, &wire.Detach{}) {
		a.t.Errorf("heard %+v, want detach", m)
	}
	if m, ok := <-a.heard; ok {
		a.t.Errorf("heard %+v", m)
	}
}

// typed is input that the session got.
type typed struct {
	attachment uint32
	offset     uint64
	bytes      string
}

func (typed) MessageType() string { return "typed" }

// newStage answers attaches with info, and all else with OK.
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

// attach attaches a client and returns the session's end of that.
func (s *stage) attach(c *client, number uint32) *actor {
	c.t.Helper()
	c.send(api.Attach{Request: req("a"), Attachment: number, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	if m := expect[*api.Attached](c); m.Attachment != number {
		c.t.Fatalf("told %+v", m)
	}
	return s.next()
}

// An attachment from its beginning to its end: what each side says is what
// the other hears, in its order.
//
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
		t.Errorf("told %+v", m)
	}
	a := s.next()
	spec.Client = "tester" // who said no other name
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
	for _, code := range []protocol.Code{protocol.CodeSessionNotFound, protocol.CodeSessionExited} { // it is ending: say nothing
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
			equal(t, "told", got.(protocol.Message), m)
		} else if got != want {
			t.Errorf("told %+v, want %+v", got, want)
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
				t.Errorf("heard %+v, want %+v", got, want)
			}
			continue
		}
		equal(t, "heard", got, want)
	}
	for _, want := range []string{"r", "i", "l"} {
		if m := expect[*api.OK](c); m.RequestID != want {
			t.Errorf("answered %+v, want %s", m, want)
		}
	}

	c.send(api.Detach{Request: req("d"), Attachment: 7})
	if m := expect[*api.Detached](c); m.RequestID != "d" || m.Attachment != 7 {
		t.Errorf("told %+v", m)
	}
	a.wantLeft()
	if asked := w.Requests(); len(asked) != 1 {
		t.Errorf("to detach %v was asked", asked[1:])
	}
}

// The session's end is the attachment's last frame, in the words that the
// client knows, and then the number is free.
//
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
				t.Errorf("told %+v", got)
			}
			got, ok := c.mustNext().(protocol.Message)
			if !ok {
				t.Fatal("data came after the end")
			}
			equal(t, "told", got, tt.want)
			if m, ok := <-a.heard; ok {
				t.Errorf("heard %+v", m)
			}
			c.ping() // and nothing came before this: neither another frame nor one twice
			s.attach(c, 3)
		})
	}
}

// Whatever a client says while its session ends, the end comes first, and what
// it hears of that number then is that there is none.
//
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
					t.Fatalf("round %d: the end came twice", round)
				}
				ended = true
			case *api.Error:
				if !ended || m.Code != protocol.CodeNotAttached || *m.Attachment != 1 {
					t.Fatalf("round %d: told %v, the end had come: %v", round, m.Error, ended)
				}
			case *api.Detached:
				done = true
			default:
				t.Fatalf("told %T %+v", m, m)
			}
		}
		c.ping() // nothing comes after detached
		for range a.heard {
		}
	}
}

// Nothing comes for a number after detached, whatever was on its way.
//
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
					t.Errorf("told %+v", m)
				}
				break
			}
		}
		c.ping()
		printing.Wait()
	}
	c.send(api.Detach{Request: req("again"), Attachment: 1})
	if m := expect[*api.Detached](c); m.RequestID != "again" {
		t.Errorf("told %+v", m)
	}
}

// An attach that is still being made is detached from as well.
func TestDetachWhileAttaching(t *testing.T) {
	w := newWorld(t, nil)
	asked := make(chan struct{})
	w.Answer(func(st *link.Stream, _ protocol.Message) {
		close(asked)
		_, _ = st.Next() // it never answers
	})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "s"}})
	testkit.Within(t, patience, "the supervisor is asked", asked)
	c.send(api.Detach{Request: req("d"), Attachment: 1})
	for range 2 { // in any order
		switch m := c.mustNext().(type) {
		case *api.Error:
			if m.RequestID != "a" {
				t.Errorf("told %+v", m)
			}
		case *api.Detached:
		default:
			t.Errorf("told %T %+v", m, m)
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
		t.Errorf("told %+v", m)
	}
	c.ping()
	s.attach(c, 1)
}

// An error of any other kind ends the attachment.
func TestFailed(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	a := s.attach(c, 1)
	_ = a.st.Fail(protocol.Errorf(protocol.CodeInternal, "broken"))
	if e := c.wantError(protocol.CodeInternal); e.Attachment == nil || *e.Attachment != 1 {
		t.Errorf("told %+v", e)
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
		t.Errorf("told %+v", e)
	}
	c.send(api.Resize{Request: req("r"), Attachment: n})
	if e := c.wantError(protocol.CodeNotAttached); e.RequestID != "r" || *e.Attachment != 5 {
		t.Errorf("told %+v", e)
	}
	c.send(api.Interrupt{Attachment: n})
	c.wantError(protocol.CodeNotAttached)
	attach(1, protocol.AttachSpec{SessionID: "a b"})
	c.wantError(protocol.CodeInvalidArgument)
	attach(1, protocol.AttachSpec{SessionID: "s", Mode: "boss"})
	c.wantError(protocol.CodeInvalidArgument)
	attach(1, protocol.AttachSpec{SessionID: "s", Client: strings.Repeat("x", 257)})
	c.wantError(protocol.CodeLimitExceeded)
	if asked := w.Requests(); len(asked) > 0 {
		t.Errorf("the supervisor was asked %v", asked)
	}

	s.attach(c, 1)
	attach(1, protocol.AttachSpec{SessionID: "t"})
	if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "a" || e.Attachment != nil {
		t.Errorf("a number in use: told %+v", e)
	}
	other := w.client()
	s.attach(other, 1) // numbers are a connection's own

	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeAlreadyAttached, "no")
	})
	attach(2, protocol.AttachSpec{SessionID: "s", Mode: protocol.ModeExclusive})
	if e := c.wantError(protocol.CodeAlreadyAttached); e.RequestID != "a" || e.Attachment != nil {
		t.Errorf("told %+v", e)
	}
	s = newStage(w, protocol.AttachInfo{})
	s.attach(c, 2) // the number was left free
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
		t.Errorf("told %+v", m)
	}
	if made := w.Requests("create"); len(made) > 0 {
		t.Error("a session was made that cannot be shown")
	}
	c.send(api.Detach{Request: req("d"), Attachment: 7})
	expect[*api.Detached](c)
	s.attach(c, 1000)
}

// A lost link is no end: the client is told what it has to do, and goes on.
//
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
		t.Errorf("resumed with %+v", a.spec)
	}
	if e := c.wantError(protocol.CodeInputGap); *e.Attachment != 1 || *e.Offset != 4 {
		t.Errorf("told %+v", e)
	}
	a.print(3, "two")
	if got := expect[data](c); got != (data{frame.Output, 1, 3, "two"}) {
		t.Errorf("told %+v", got)
	}
	c.raw(frame.AppendData(nil, frame.Input, 1, 4, []byte("x")))
	if got := testkit.Within(t, patience, "the session hears it", a.heard); got != (typed{1, 4, "x"}) {
		t.Errorf("heard %+v", got)
	}

	// Half a snapshot, and then another one.
	a.say(wire.Resync{Offset: 100, BytesMissed: 9, SnapshotBytes: 10})
	expect[*api.Resync](c)
	newStageAt := protocol.AttachInfo{Replay: protocol.ReplaySnapshot, Offset: 120, SnapshotBytes: 2, Writer: "w", InputOffset: 5}
	s = newStage(w, newStageAt)
	w.Cut()
	a = s.next()
	if r := a.spec.Resume; r == nil || r.Offset != 6+9 || !a.spec.Snapshot { // half of it is nothing: what was missed before it is what was told
		t.Errorf("attached again with %+v", a.spec)
	}
	if m := expect[*api.Resync](c); m.Attachment != 1 || m.Offset != 120 || m.SnapshotBytes != 2 {
		t.Errorf("told %+v", m)
	}
	c.wantError(protocol.CodeInputGap)

	// And at last the session is not there any more.
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeSessionNotFound, "gone")
	})
	w.Cut()
	if e := c.wantError(protocol.CodeSessionNotFound); e.Attachment == nil || *e.Attachment != 1 || e.RequestID != "" {
		t.Errorf("told %+v", e)
	}
	c.raw(frame.AppendData(nil, frame.Input, 1, 5, []byte("x")))
	c.wantError(protocol.CodeNotAttached)
}

// What a client sends behind attach, before that is answered, is for it, in its
// order; where it is refused there is nobody.
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
			if got := testkit.Within(t, patience, "what was sent arrives", a.heard); !reflect.DeepEqual(got, want) {
				t.Fatalf("attachment %d hears %+v, want %+v", number, got, want)
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

// An appearance that cannot be is refused, and ends nothing; one for nobody is
// told so.
func TestAppearanceRefused(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c := w.client()
	a := s.attach(c, 1)
	c.send(api.Appearance{Request: req("x"), Attachment: 1, Appearance: protocol.Appearance{Cursor: "red"}})
	if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "x" || e.Attachment != nil {
		t.Errorf("told %+v", e)
	}
	c.send(api.Appearance{Request: req("y"), Attachment: 2})
	if e := c.wantError(protocol.CodeNotAttached); e.RequestID != "y" || e.Attachment == nil {
		t.Errorf("told %+v", e)
	}
	c.send(api.Resize{Attachment: new(uint32(1)), Cols: 5, Rows: 6})
	if m := testkit.Within(t, patience, "the session hears it", a.heard); !reflect.DeepEqual(m, &wire.Resize{Cols: 5, Rows: 6}) {
		t.Errorf("heard %+v", m)
	}
}

// A client that goes without a word is lost, and may come back: nobody is told
// that it left.
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
			t.Errorf("heard %+v", m)
		}
	}
	testkit.Within(t, patience, "the server is done", c.served)
}

// A client that does not read holds up itself alone.
//
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
			case stuck <- at: // somebody asks for a piece that is not taken
				<-sent
				return
			}
		}
	}()
	// Others are served, whether the slow one is full yet or not.
	for i := range 50 {
		b.print(uint64(i), "x")
		if got := expect[data](other); got.offset != uint64(i) {
			t.Fatalf("told %+v", got)
		}
		other.send(api.Forget{Request: req("l"), SessionID: "s"})
		expect[*api.OK](other)
	}
	const enough = 4 << 20 // far beyond what sockets and windows hold
	if at := testkit.Within(t, patience, "the flood stops", stuck); at > enough {
		t.Errorf("%d bytes were taken for a client that does not read", at)
	}
	slow.nc.Close()
	testkit.Within(t, patience, "the server is done with it", slow.served)
	other.ping()
}

// Frames of several attachments share a connection whole.
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
				t.Fatalf("told %+v", m)
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

// flood prints for ever to an attachment, a whole frame at a time.
func (a *actor) flood() {
	piece := make([]byte, frame.MaxData)
	for at := uint64(0); a.st.SendRaw(frame.AppendData(nil, frame.Output, a.spec.Attachment, at, piece)) == nil; at += frame.MaxData {
	}
}

// What is small does not wait for what is large: an answer, and the output of a
// quiet session, come before each flooding attachment has brought some two
// frames more, beyond those that the socket held already.
//
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
	const inSockets = 64 // frames: 2 MiB, and Linux takes some 200 KiB by itself
	behind := map[string][]int{}
	for i := range 21 {
		told, at := map[string]int{}, 0
		c.raw(text(`{"type":"teleport","request_id":"x"}`))
		quiet.print(uint64(i), "x")
		for ; len(told) < 2; at++ {
			switch m := c.mustNext().(type) {
			case *api.Error:
				told["the answer"] = at
			case data:
				if m.attachment == 100 {
					told["the quiet session"] = at
				}
			}
		}
		for what, at := range told {
			behind[what] = append(behind[what], at)
		}
	}
	for what, at := range behind {
		slices.Sort(at) // one round may meet a moment in which nobody has a processor for us
		if at[len(at)/2] > 2*floods+inSockets {
			t.Errorf("%s came behind %v frames of %d floods", what, at, floods)
		}
	}
	c.nc.Close()
	testkit.Within(t, patience, "the server is done", c.served)
}
