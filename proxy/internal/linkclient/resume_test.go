package linkclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// A session is the fake's session, with all its output in one slice. It sends a snapshot of the first bytes, or
// output from an offset on, and then the exit.
type session struct {
	s        *supervisor
	output   []byte
	snapshot int // bytes of a new viewer's snapshot
	piece    int // bytes in a frame
	input    uint64
	first    chan struct{} // closed when it may send output

	mu   sync.Mutex
	cuts []int // the numbers of frames after which the link is cut, for each attach
}

const life = "session-life"

func (f *session) attach(st *link.Stream, m *wire.Attach) {
	f.mu.Lock()
	left := -1
	if len(f.cuts) > 0 {
		left, f.cuts = f.cuts[0], f.cuts[1:]
	}
	f.mu.Unlock()
	info := protocol.AttachInfo{
		Session: protocol.SessionInfo{ID: m.SessionID, Instance: life}, Replay: protocol.ReplaySnapshot,
		Offset: uint64(f.snapshot), SnapshotBytes: f.snapshot, Writer: m.Writer, InputOffset: f.input,
	}
	if info.Writer == "" {
		info.Writer = "made"
	}
	if m.Resume != nil && !m.Snapshot {
		info.Replay, info.Offset, info.SnapshotBytes = protocol.ReplayExact, m.Resume.Offset, 0
	}
	_ = st.Send(wire.Attached{AttachInfo: info})
	<-f.first
	send := func(kind frame.Kind, offset uint64, p []byte) bool {
		for len(p) > 0 {
			if left == 0 {
				f.s.Cut()
				return false
			}
			left--
			n := min(len(p), f.piece)
			if st.SendRaw(frame.AppendData(nil, kind, m.Attachment, offset, p[:n])) != nil {
				return false
			}
			if p = p[n:]; kind == frame.Output {
				offset += uint64(n)
			}
		}
		return true
	}
	if send(frame.Snapshot, info.Offset, f.output[:info.SnapshotBytes]) && send(frame.Output, info.Offset, f.output[info.Offset:]) {
		_ = st.Send(wire.Exited{SessionID: m.SessionID, Instance: life, Exit: protocol.ExitRecord{ExitCode: 5}})
		_ = st.Close()
		_, _ = st.Next()
	}
}

func newSession(s *supervisor, bytes int) *session {
	f := &session{s: s, output: make([]byte, bytes), piece: frame.MaxData, first: make(chan struct{})}
	for i := range f.output {
		f.output[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return f
}

// attached returns an attachment. The session sends output after first was closed, so that the link is not cut before
// the reply has arrived.
func (f *session) attached(c *Client, number uint32, spec protocol.AttachSpec) (*Attachment, *view) {
	f.s.t.Helper()
	f.s.Answer(func(st *link.Stream, request protocol.Message) { f.attach(st, request.(*wire.Attach)) })
	a, info, err := c.Attach(testkit.Soon(f.s.t), number, spec)
	testkit.Must(f.s.t, err)
	return a, &view{pos: info.Offset, left: info.SnapshotBytes}
}

// A view has the output that a client has received from an attachment.
type view struct {
	screen []byte
	pos    uint64
	left   int // bytes of a snapshot that have not come yet
	gaps   int // number of input_gap errors
	exit   *wire.Exited
}

// see adds one item, and fails if its offset does not continue the output.
func (v *view) see(item Item, number uint32) error {
	if v.exit != nil {
		return errors.New("something after the exit")
	}
	switch m := item.Message.(type) {
	case *wire.Resync:
		v.screen, v.pos, v.left = nil, m.Offset, m.SnapshotBytes
		return nil
	case *wire.Exited:
		v.exit = m
		return nil
	case *wire.Error:
		if m.Code != protocol.CodeInputGap || m.Offset == nil {
			return &m.Error
		}
		v.gaps++
		return nil
	case nil:
	default:
		return fmt.Errorf("unexpected %s", m.MessageType())
	}
	n, offset, data, err := frame.ParseData(item.Raw[frame.HeaderLen:])
	kind := frame.Kind(item.Raw[4])
	switch {
	case err != nil || n != number || offset != v.pos:
		return fmt.Errorf("frame of %d at %d, want %d at %d: %v", n, offset, number, v.pos, err)
	case kind == frame.Snapshot && v.left >= len(data):
		v.left -= len(data)
	case kind == frame.Output && v.left == 0:
		v.pos += uint64(len(data))
	default:
		return fmt.Errorf("kind %d while %d bytes of a snapshot are missing", kind, v.left)
	}
	v.screen = append(v.screen, data...)
	return nil
}

// A viewer whose link is cut again and again, anywhere, receives the same output as over one link.
// demand: S8
func TestResume(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, seed))
			s, c := running(t)
			f := newSession(s, 20_000+random.IntN(300_000))
			f.snapshot, f.piece, f.input = random.IntN(len(f.output)), 1+random.IntN(frame.MaxData), random.Uint64N(100)
			for range random.IntN(15) {
				f.cuts = append(f.cuts, random.IntN(20))
			}
			cuts := len(f.cuts)
			spec := protocol.AttachSpec{SessionID: "s", Cols: 90, Rows: 30, Mode: protocol.ModeExclusive, Steal: true}
			a, v := f.attached(c, 9, spec)
			close(f.first)
			spec.Writer = s.Requests()[0].(*wire.Attach).Writer // a generated name, with which a repeated attach is recognized
			want := []protocol.AttachSpec{spec}
			spec.Steal = false
			for {
				item, err := a.Next(testkit.Soon(t))
				if errors.Is(err, io.EOF) {
					break
				}
				testkit.Must(t, err)
				// The attachment has resumed since, from the position of v.
				for len(want) < len(s.Requests()) && item.Raw == nil && v.exit == nil {
					next := spec
					next.Resume, next.Snapshot = &protocol.Resume{Instance: life, Offset: v.pos}, v.left > 0
					want = append(want, next)
				}
				testkit.Must(t, v.see(item, 9))
			}
			if !bytes.Equal(v.screen, f.output) || v.exit == nil || v.exit.Exit.ExitCode != 5 {
				t.Errorf("received %d of %d bytes, exit %+v", len(v.screen), len(f.output), v.exit)
			}
			heard := s.Requests()
			if v.gaps > len(heard)-1 || len(heard) > 1 && v.gaps == 0 || len(heard) > cuts+1 {
				t.Errorf("%d attaches after %d cuts, and %d input_gap errors", len(heard), cuts, v.gaps)
			}
			for i, m := range heard {
				if got := m.(*wire.Attach).AttachSpec; !reflect.DeepEqual(got, want[i]) {
					t.Errorf("attach %d of %d: %+v %+v, want %+v %+v", i, len(heard), got, got.Resume, want[i], want[i].Resume)
				}
			}
		})
	}
}

// An incomplete snapshot cannot be continued. The resume requests a new one, for the same instance, and keeps the
// session's size.
func TestResumeInSnapshot(t *testing.T) {
	s, c := running(t)
	f := newSession(s, 5000)
	f.snapshot, f.piece, f.cuts = 4000, 1000, []int{2}
	a, v := f.attached(c, 1, protocol.AttachSpec{SessionID: "s", Cols: 90, Rows: 30, Writer: "w"})
	close(f.first)
	for v.exit == nil {
		item, err := a.Next(testkit.Soon(t))
		if err == nil {
			err = v.see(item, 1)
		}
		testkit.Must(t, err)
	}
	if again := s.Requests()[1].(*wire.Attach); again.Resume == nil || again.Resume.Instance != life || !again.Snapshot || again.Writer != "w" {
		t.Errorf("the second attach is %+v", again)
	}
	if !bytes.Equal(v.screen, f.output) {
		t.Errorf("received %d bytes", len(v.screen))
	}
	if _, err := a.Next(testkit.Soon(t)); !errors.Is(err, io.EOF) {
		t.Errorf("after the exit: %v", err)
	}
}

// The error of a refused resume ends the attachment, and is returned.
func TestResumeRefused(t *testing.T) {
	for _, code := range []protocol.Code{protocol.CodeSessionNotFound, protocol.CodeInstanceMismatch, protocol.CodeSessionExited, protocol.CodeAlreadyAttached} {
		t.Run(string(code), func(t *testing.T) {
			s, c := running(t)
			f := newSession(s, 100)
			f.piece, f.cuts = 10, []int{3}
			a, _ := f.attached(c, 1, protocol.AttachSpec{SessionID: "s"})
			s.Answer(func(st *link.Stream, _ protocol.Message) { _ = st.Fail(protocol.Errorf(code, "gone")) })
			close(f.first)
			var err error
			for err == nil {
				_, err = a.Next(testkit.Soon(t))
			}
			wantCode(t, "Next", err, code)
			a.Close()
		})
	}
}

// silent is the handler of a session that prints no output.
func silent(st *link.Stream, _ protocol.Message) {
	_ = st.Send(wire.Attached{AttachInfo: protocol.AttachInfo{Session: protocol.SessionInfo{Instance: life}}})
	_, _ = st.Next()
}

// Close and the end of the context end a Next that waits for a link.
func TestCloseDuringResume(t *testing.T) {
	for _, name := range []string{"Close", "context"} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t)
			s.Listen()
			c, d := s.client(func(int) error { return nil })
			s.Answer(silent)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			a, _, err := c.Attach(testkit.Soon(t), 1, protocol.AttachSpec{SessionID: "s"})
			testkit.Must(t, err)
			before, _ := d.get()
			s.Stop() // the supervisor does not come back
			done := make(chan error, 1)
			go func() { _, err := a.Next(ctx); done <- err }()
			for tries := before; tries < before+3; tries, _ = d.get() { // waits until the client tries to reconnect
				select {
				case err := <-done:
					t.Fatalf("Next has returned: %v", err)
				default:
				}
			}
			if name == "Close" {
				a.Close()
			} else {
				cancel()
			}
			if err := testkit.Within(t, soonish, "Next returns", done); !errors.Is(err, io.EOF) {
				t.Errorf("Next: %v", err)
			}
			a.SendRaw(frame.AppendData(nil, frame.Input, 1, 0, []byte("x"))) // lost, because there is no link
			a.Send(wire.Interrupt{})
			a.Close()
		})
	}
}

// An attachment passes on input, detaches, and returns errors.
func TestAttachment(t *testing.T) {
	s, c := running(t)
	heard := make(chan string, 10)
	gone := make(chan error, 1)
	s.Answer(func(st *link.Stream, request protocol.Message) {
		m := request.(*wire.Attach)
		_ = st.Send(wire.Attached{AttachInfo: protocol.AttachInfo{Writer: "w"}})
		for _, m := range []protocol.Message{
			wire.Accepted{Offset: 1}, wire.Resized{Cols: 1, Rows: 2}, wire.Error{Error: *protocol.Errorf(protocol.CodePermissionDenied, "no")},
		} {
			_ = st.Send(m)
		}
		_ = st.SendRaw(frame.Append(nil, 77, []byte("from the future")))
		_ = st.SendRaw(frame.Append(nil, frame.Control, []byte(`{"type":"teleport"}`)))
		_ = st.SendRaw(frame.AppendData(nil, frame.Output, m.Attachment, 0, []byte("hi")))
		for {
			raw, err := st.Next()
			if err != nil {
				gone <- err
				return
			}
			heard <- string(raw)
		}
	})
	a, info, err := c.Attach(testkit.Soon(t), 3, protocol.AttachSpec{SessionID: "s"})
	if err != nil || info.Writer != "w" {
		t.Fatalf("%+v, %v", info, err)
	}
	for _, want := range []string{"accepted", "resized", "error"} {
		item, err := a.Next(testkit.Soon(t))
		if err != nil || item.Raw != nil || item.Message.MessageType() != want {
			t.Errorf("received %+v, %v, want %s", item, err, want)
		}
	}
	hi := frame.AppendData(nil, frame.Output, 3, 0, []byte("hi"))
	if item, err := a.Next(testkit.Soon(t)); err != nil || !bytes.Equal(item.Raw, hi) {
		t.Errorf("received %+v, %v", item, err)
	}
	typed := frame.AppendData(nil, frame.Input, 3, 7, []byte("ls\n"))
	a.SendRaw(typed)
	if got := testkit.Within(t, patience, "input comes", heard); got != string(typed) {
		t.Errorf("received %q", got)
	}
	a.Send(wire.Resize{Cols: 3, Rows: 4})
	if got := testkit.Within(t, patience, "a size comes", heard); got[frame.HeaderLen:] != `{"type":"resize","cols":3,"rows":4}` {
		t.Errorf("received %q", got)
	}
	done := make(chan error, 1)
	go func() { _, err := a.Next(testkit.Soon(t)); done <- err }()
	a.Close()
	a.Close()
	if err := testkit.Within(t, soonish, "Next returns", done); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v", err)
	}
	if err := testkit.Within(t, soonish, "the supervisor sees the end", gone); !errors.Is(err, io.EOF) {
		t.Errorf("the supervisor's stream ended with %v", err)
	}
	if s.LinkCount() != 1 {
		t.Errorf("%d links, want 1, because a detach does not end the link", s.LinkCount())
	}
}

// An attachment that was stolen does not resume.
// demand: R5
func TestStolen(t *testing.T) {
	s, c := running(t)
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		_ = st.Send(wire.Attached{})
		_ = st.Send(wire.Stolen{StolenBy: "thief"})
	})
	a, _, err := c.Attach(testkit.Soon(t), 1, protocol.AttachSpec{SessionID: "s", Steal: true})
	testkit.Must(t, err)
	item, err := a.Next(testkit.Soon(t))
	if m, ok := item.Message.(*wire.Stolen); err != nil || !ok || m.StolenBy != "thief" {
		t.Errorf("received %+v, %v", item, err)
	}
	if _, err := a.Next(testkit.Soon(t)); !errors.Is(err, io.EOF) {
		t.Errorf("after that Next returned %v", err)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d attaches", n)
	}
}

// A subscriber whose link is cut again and again receives every event once.
// demand: S7
func TestSubscription(t *testing.T) {
	const seed, last = 3, 300
	random := rand.New(rand.NewPCG(seed, seed))
	s, c := running(t)
	subscribed := make(chan struct{})
	s.Answer(func(st *link.Stream, request protocol.Message) {
		m := request.(*wire.Events)
		_ = st.Send(wire.Subscribed{Instance: "life", Seq: m.After})
		<-subscribed
		until := m.After + 1 + random.Uint64N(40)
		for seq := m.After + 1; seq <= min(last, until); seq++ {
			e := wire.Event{Seq: seq, Event: protocol.EventResized, Session: &protocol.SessionInfo{ID: "s"}}
			if seq%50 == 0 {
				e = wire.Event{Seq: seq + 9, Event: protocol.EventMissed, Missed: 10}
				seq += 9
			}
			_ = st.Send(e)
			_ = st.SendRaw(frame.Append(nil, frame.Control, []byte(`{"type":"teleport"}`)))
		}
		if until < last {
			s.Cut()
		} else {
			_, _ = st.Next()
		}
	})
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	defer cancel()
	sub, first, err := c.Subscribe(ctx, "life", 5)
	if err != nil || first.Seq != 5 {
		t.Fatalf("%+v, %v", first, err)
	}
	close(subscribed)
	for want := uint64(6); want <= last; want++ {
		e, err := sub.Next(ctx)
		testkit.Must(t, err)
		if e.Event == protocol.EventMissed {
			want += e.Missed - 1
		}
		if e.Seq != want {
			t.Fatalf("event %d, want %d", e.Seq, want)
		}
	}
	for _, m := range s.Requests() {
		if m := m.(*wire.Events); m.Instance != "life" || m.After < 5 {
			t.Errorf("asked %+v", m)
		}
	}
	done := make(chan error, 1)
	go func() { _, err := sub.Next(ctx); done <- err }()
	cancel()
	if err := testkit.Within(t, soonish, "Next returns", done); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v", err)
	}
}

// A subscriber learns that another instance of the supervisor numbers the events, and receives the events of that instance.
func TestSubscriptionToOtherInstance(t *testing.T) {
	s, c := running(t)
	ctx := testkit.Soon(t)
	var asked []wire.Events
	read := make(chan struct{})
	s.Answer(func(st *link.Stream, request protocol.Message) {
		m := request.(*wire.Events)
		asked = append(asked, *m)
		if len(asked) == 1 {
			_ = st.Send(wire.Subscribed{Instance: "first", Seq: m.After})
			_ = st.Send(wire.Event{Seq: 40, Event: protocol.EventCreated})
			// A link that is cut earlier takes the answer with it, and then Subscribe itself asks again.
			<-read
			s.Cut()
			return
		}
		_ = st.Send(wire.Subscribed{Instance: "second", Seq: 2})
		_ = st.Send(wire.Event{Seq: 3, Event: protocol.EventCreated})
		_, _ = st.Next()
	})
	sub, _, err := c.Subscribe(ctx, "first", 39)
	testkit.Must(t, err)
	for i, want := range []wire.Event{{Seq: 40, Event: protocol.EventCreated}, {Seq: 2, Event: protocol.EventMissed}, {Seq: 3, Event: protocol.EventCreated}} {
		e, err := sub.Next(ctx)
		if err != nil || e.Seq != want.Seq || e.Event != want.Event || e.Missed != 0 {
			t.Fatalf("event %d is %+v, %v; want %+v", i, e, err, want)
		}
		if i == 0 {
			close(read)
		}
	}
	if instance, seq := sub.Position(); instance != "second" || seq != 3 {
		t.Errorf("the position is %d of %s", seq, instance)
	}
}

// The end of the context ends a subscription that waits for a link.
func TestSubscriptionEndsWithoutLink(t *testing.T) {
	s := newSupervisor(t)
	s.Listen()
	c, d := s.client(func(int) error { return nil })
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		_ = st.Send(wire.Subscribed{})
		_, _ = st.Next()
	})
	ctx, cancel := context.WithCancel(context.Background())
	sub, _, err := c.Subscribe(ctx, "", 0)
	testkit.Must(t, err)
	before, _ := d.get()
	s.Stop()
	done := make(chan error, 1)
	go func() { _, err := sub.Next(ctx); done <- err }()
	for tries := before; tries < before+3; tries, _ = d.get() {
		select {
		case err := <-done:
			t.Fatalf("Next has returned: %v", err)
		default:
		}
	}
	cancel()
	if err := testkit.Within(t, soonish, "Next returns", done); !errors.Is(err, io.EOF) {
		t.Errorf("Next: %v", err)
	}
}
