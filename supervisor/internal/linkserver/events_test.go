//go:build linux || darwin

package linkserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// event returns the next event. The test fails if none comes.
func event(t testing.TB, st *link.Stream) *wire.Event {
	t.Helper()
	_ = st.SetDeadline(time.Now().Add(patience))
	m, err := st.Receive()
	if err != nil {
		t.Fatalf("no event: %v", err)
	}
	e, ok := m.(*wire.Event)
	if !ok {
		t.Fatalf("%s instead of an event", m.MessageType())
	}
	return e
}

func subscribe(t testing.TB, c *link.Conn, m wire.Events) (*link.Stream, *wire.Subscribed) {
	t.Helper()
	st, reply, err := c.Open(testkit.Soon(t), m)
	testkit.Must(t, err)
	t.Cleanup(st.Abort)
	return st, reply.(*wire.Subscribed)
}

// All events arrive in order, with numbers without a gap. A client that subscribes again receives all of them, or
// those after a number.
// demand: S7
func TestEvents(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	c := r.link(t)
	st, first := subscribe(t, c, wire.Events{})
	if first.Instance == "" || first.Seq != 0 {
		t.Errorf("subscribed with %+v", first)
	}
	s := r.session(t, `echo READY; read; exit 9`)
	v := attach(t, c, 1, protocol.AttachSpec{SessionID: s.ID(), Cols: 99, Rows: 9})
	v.typeAt(t, 0, "\n")
	v.end(t)
	v.st.Close()
	want := []protocol.EventKind{protocol.EventCreated, protocol.EventResized, protocol.EventAttached, protocol.EventExited, protocol.EventDetached, protocol.EventForgotten}
	check := func(st *link.Stream, after int) {
		t.Helper()
		for i, kind := range want[after:] {
			e := event(t, st)
			if e.Event != kind || e.Seq != uint64(after+i+1) || e.Session == nil || e.Session.ID != s.ID() || e.At.IsZero() {
				t.Fatalf("event %d: %+v, want %s", after+i+1, e, kind)
			}
			if e.Event == protocol.EventExited && (e.Session.Exit == nil || e.Session.Exit.ExitCode != 9 || *e.Session.ExitCode != 9) {
				t.Errorf("the session exited with %+v", e.Session)
			}
		}
	}
	testkit.Eventually(t, patience, func() bool { info, err := s.Info(); return err == nil && info.Attachments == 0 }, "the attachment is detached")
	call[*wire.OK](t, c, wire.Forget{SessionID: s.ID()})
	check(st, 0)
	for after := range len(want) {
		again, from := subscribe(t, c, wire.Events{Instance: first.Instance, After: uint64(after)})
		if from.Seq != uint64(after) || from.Instance != first.Instance {
			t.Errorf("after %d: subscribed with %+v", after, from)
		}
		check(again, after)
	}

	// Event numbers of another supervisor, and numbers that were not used yet, are ignored.
	for name, m := range map[string]wire.Events{
		"of another life": {Instance: "another", After: 1},
		"of no life":      {After: 1},
		"of the future":   {Instance: first.Instance, After: 1 << 40},
	} {
		st, from := subscribe(t, c, m)
		if from.Seq < uint64(len(want)) || from.Instance != first.Instance {
			t.Errorf("%s: subscribed with %+v", name, from)
		}
		s := r.session(t, sleeper)
		if e := event(t, st); e.Event != protocol.EventCreated || e.Session.ID != s.ID() || e.Seq != from.Seq+1 {
			t.Errorf("%s: received %+v first", name, e)
		}
	}
}

// The number of events that are not kept any more is reported.
func TestMissedEvents(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	c := r.link(t)
	_, first := subscribe(t, c, wire.Events{})
	s := r.session(t, sleeper)
	const n = 4500
	for i := range n {
		testkit.Must(t, s.Resize(protocol.Size{Cols: 10 + i%2, Rows: 10}))
	}
	st, _ := subscribe(t, c, wire.Events{Instance: first.Instance, After: 1})
	e := event(t, st)
	if e.Event != protocol.EventMissed || e.Missed == 0 || e.Seq != 1+e.Missed || e.Session != nil || e.At.IsZero() {
		t.Fatalf("received %+v", e)
	}
	for seq := e.Seq + 1; seq <= n+1; seq++ {
		if e := event(t, st); e.Seq != seq || e.Event != protocol.EventResized && e.Event != protocol.EventOutputIdle { // output_idle may come, too, if the resizes take longer than OutputIdleMS
			t.Fatalf("received %+v, want number %d", e, seq)
		}
	}
}

// A link above the limit is closed without a reply. If a link ends, another one is accepted.
func TestLinksLimit(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	var links []*link.Conn
	for range maxLinks {
		links = append(links, r.link(t))
	}
	_, _, _, err := link.Dial(r.connect(t), someHello, zerolog.Nop())
	if err == nil {
		t.Fatal("one link more than allowed was accepted")
	}
	status := call[*wire.StatusReport](t, links[0], wire.Status{})
	if status.Supervisor.Clients != maxLinks {
		t.Errorf("%d proxies", status.Supervisor.Clients)
	}
	links[1].Close()
	testkit.Eventually(t, patience, func() bool {
		c, _, _, err := link.Dial(r.connect(t), someHello, zerolog.Nop())
		if err == nil {
			c.Close()
		}
		return err == nil
	}, "there is room again")
}

// The number of streams without a request is limited. A stream above the limit gets an error.
func TestStreamsLimit(t *testing.T) {
	r := newRig(t, session.Config{}, "")
	s := r.session(t, sleeper)
	g := newRogue(t, r)
	// A stream that has ended does not count any more.
	st := g.stream(t, text(`{"type":"status"}`))
	heard(t, st)
	st.Close()
	var silent []*yamuxStream
	for range maxStreams {
		silent = append(silent, g.stream(t, nil))
	}
	info := text(fmt.Sprintf(`{"type":"info","session_id":%q}`, s.ID()))
	testkit.Eventually(t, patience, func() bool {
		st := g.stream(t, info)
		defer st.Close()
		e, ok := heard(t, st).(*wire.Error)
		return ok && e.Code == protocol.CodeLimitExceeded
	}, "all places are taken")
	silent[0].Close()
	silent[1].Close()
	testkit.Eventually(t, patience, func() bool {
		st := g.stream(t, info)
		defer st.Close()
		return heard(t, st).MessageType() == "session"
	}, "there is room again")
}
