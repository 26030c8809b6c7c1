package apiserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// Events are passed on unchanged, except for the exit of a session, which has the form of an attachment's exit.
// demand: S7 B6
func TestEvents(t *testing.T) {
	at := time.Unix(1000, 0).UTC()
	ended := someInfo
	ended.State, ended.Exit, ended.ExitCode = protocol.StateExited, &someExit, new(3)
	ended.Labels = map[string]string{"title": "T"}
	for _, tt := range []struct {
		name string
		caps []protocol.Capability
		want protocol.Message
	}{
		{name: "pty_exited", want: api.PTYExited{SessionID: "s", PaneID: "s", ExitCode: 3, LastLines: []string{"last"}, SessionTitle: "T",
			Reason: "exited", Signal: "SIGTERM", Outcome: "natural", Instance: "life", Seq: 3, ExitedAt: someExit.ExitedAt}},
		{name: "terminal.exit", caps: []protocol.Capability{protocol.CapTerminalExit},
			want: api.TerminalExit{SessionID: "s", ExitCode: 3, Reason: "exited", Seq: 3, ExitedAt: someExit.ExitedAt}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.Answer(func(st *link.Stream, _ protocol.Message) {
				_ = st.Send(wire.Subscribed{Instance: "supervisor", Seq: 1})
				_ = st.Send(wire.Event{Seq: 2, Event: protocol.EventCreated, At: at, Session: &someInfo})
				_ = st.Send(wire.Event{Seq: 3, Event: protocol.EventExited, At: at, Session: &ended})
				_ = st.Send(wire.Event{Seq: 9, Event: protocol.EventMissed, At: at, Missed: 6})
				_ = st.Send(wire.Event{Seq: 10, Event: "from.the.future", At: at})
				_, _ = st.Next()
			})
			c := w.client(tt.caps...)
			c.send(api.Events{Request: req("e"), Instance: "supervisor", After: 1})
			for _, want := range []protocol.Message{
				api.Subscribed{Request: req("e"), Instance: "supervisor", Seq: 1},
				api.Event{Seq: 2, Event: protocol.EventCreated, At: at, Session: &someInfo},
				tt.want,
				api.Event{Seq: 9, Event: protocol.EventMissed, At: at, Missed: 6},
				api.Event{Seq: 10, Event: "from.the.future", At: at},
			} {
				equal(t, "event", c.mustNext().(protocol.Message), want)
			}
			equal(t, "asked", w.Requests("events")[0], wire.Events{Instance: "supervisor", After: 1})
			c.send(api.Events{Request: req("twice")})
			if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "twice" {
				t.Errorf("received %+v", e)
			}
		})
	}
}

// A subscription continues over the next link, and one that failed may be repeated.
func TestEventsOverLostLink(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, protocol.Errorf(protocol.CodeInternal, "no")
	})
	c := w.client()
	c.send(api.Events{Request: req("e")})
	c.wantError(protocol.CodeInternal)
	w.Answer(func(st *link.Stream, m protocol.Message) {
		after := m.(*wire.Events).After
		_ = st.Send(wire.Subscribed{Instance: "supervisor", Seq: after})
		_ = st.Send(wire.Event{Seq: after + 1, Event: protocol.EventResized})
		_, _ = st.Next()
	})
	c.send(api.Events{Request: req("f")})
	expect[*api.Subscribed](c)
	for seq := uint64(1); seq < 5; seq++ {
		if e := expect[*api.Event](c); e.Seq != seq {
			t.Errorf("received %+v", e)
		}
		w.Cut()
	}
	c.nc.Close()
	testkit.Within(t, patience, "the server is done", c.served)
}

// Goaway sends the message to every client, waits for none of them, and refuses new ones.
// demand: S9
func TestGoaway(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	c, silent, deaf := w.client(), w.connect(trusted), w.client()
	s.attach(c, 1)
	a := s.attach(deaf, 1)
	flooding := make(chan struct{})
	go func() {
		defer close(flooding)
		piece := strings.Repeat("x", 32<<10)
		for i := range 100 {
			a.print(uint64(i), piece)
		}
	}()
	testkit.Eventually(t, patience, func() bool { return w.server.Clients() == 3 }, "all clients are accepted")
	begun := time.Now()
	w.server.Goaway("handoff", 1500*time.Millisecond)
	if took := time.Since(begun); took > soonish {
		t.Errorf("Goaway took %v", took)
	}
	for _, c := range []*client{c, silent} {
		if m := expect[*api.Goaway](c); m.Reason != "handoff" || m.RetryAfterMS != 1500 {
			t.Errorf("received %+v", m)
		}
		c.wantEnd()
	}
	testkit.Within(t, patience, "the deaf one is closed", deaf.served)
	<-flooding
	late := w.connect(trusted)
	if e := late.wantError(protocol.CodeClosed); !e.Retryable {
		t.Errorf("received %+v", e)
	}
	late.wantEnd()
	w.server.Goaway("again", 0)
}

// A stuckTransport is a client that sends nothing.
type stuckTransport struct {
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex
	told   []byte
}

func (s *stuckTransport) Next() ([]byte, error) { <-s.closed; return nil, net.ErrClosed }
func (s *stuckTransport) Write(raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, raw...)
	return nil
}
func (s *stuckTransport) SetLimit(int)                     {}
func (s *stuckTransport) SetReadDeadline(time.Time) error  { return nil }
func (s *stuckTransport) SetWriteDeadline(time.Time) error { return nil }
func (s *stuckTransport) Close() error                     { s.once.Do(func() { close(s.closed) }); return nil }

// The number of connections is limited, including those before their hello.
func TestConnectionsLimit(t *testing.T) {
	w := newWorld(t, nil)
	var all []*stuckTransport
	for i := range MaxConns {
		s := &stuckTransport{closed: make(chan struct{})}
		all = append(all, s)
		from := trusted
		from.PID = 1 + i/MaxConnsOfOne
		w.wg.Go(func() { w.server.Accept(context.Background(), s, from)() })
	}
	count := func() int {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.conns)
	}
	testkit.Eventually(t, patience, func() bool { return count() == MaxConns }, "all places are taken")
	c := w.connect(trusted)
	if e := c.wantError(protocol.CodeLimitExceeded); !e.Retryable {
		t.Errorf("received %+v", e)
	}
	c.wantEnd()
	all[0].Close()
	testkit.Eventually(t, patience, func() bool { return count() < MaxConns }, "there is room again")
	w.client()
}

// One process cannot use all connections, nor can all processes together whose pid is unknown. Another process can
// still connect.
func TestConnectionsOfOne(t *testing.T) {
	for _, pid := range []int{0, 7} {
		t.Run(fmt.Sprint("pid ", pid), func(t *testing.T) {
			w := newWorld(t, nil)
			one, other := trusted, trusted
			one.PID, other.PID = pid, 8
			var all []*stuckTransport
			for range MaxConnsOfOne {
				s := &stuckTransport{closed: make(chan struct{})}
				all = append(all, s)
				w.wg.Go(func() { w.server.Accept(context.Background(), s, one)() })
			}
			count := func() int {
				w.server.mu.Lock()
				defer w.server.mu.Unlock()
				return w.server.quota.byPID[pid]
			}
			testkit.Eventually(t, patience, func() bool { return count() == MaxConnsOfOne }, "the process has all its connections")
			c := w.connect(one)
			if e := c.wantError(protocol.CodeLimitExceeded); !e.Retryable || !strings.Contains(e.Message, "1536") {
				t.Errorf("received %+v", e)
			}
			c.wantEnd()
			w.connect(other).hello()
			all[0].Close()
			testkit.Eventually(t, patience, func() bool { return count() < MaxConnsOfOne }, "there is room again")
			w.connect(one).hello()
			for _, s := range all {
				s.Close()
			}
			testkit.Eventually(t, patience, func() bool { return count() <= 1 }, "the connections are not counted any more")
		})
	}
}

// The end of the context of Accept ends the connection.
func TestContextEnds(t *testing.T) {
	w := newWorld(t, nil)
	s := newStage(w, protocol.AttachInfo{})
	ctx, cancel := context.WithCancel(context.Background())
	a, b := w.pair()
	done := make(chan struct{})
	go func() { defer close(done); w.server.Accept(ctx, NewStream(b, nil), trusted)() }()
	c := &client{t: t, nc: a, frames: NewStream(a, nil).(*streamTransport).frames, served: done}
	c.send(api.Hello{Protocol: protocol.Supported(), Client: "x", PID: os.Getpid()})
	expect[*api.Welcome](c)
	s.attach(c, 1)
	cancel()
	c.wantEnd()
}
