package linkclient

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// forEachRequest runs a test for each request of the link. again tells whether the request is made
// again if the link was lost before the reply.
func forEachRequest(t *testing.T, run func(t *testing.T, request protocol.Message, again bool)) {
	for _, k := range wire.Messages.Requests() {
		t.Run(k.Type(), func(t *testing.T) { run(t, k.Message, k.Repeat != protocol.RepeatNever) })
	}
}

// If the link is lost before the reply, requests that may be repeated are sent again with the same content, and other
// requests are not.
func TestLost(t *testing.T) {
	forEachRequest(t, func(t *testing.T, request protocol.Message, again bool) {
		s, c := running(t)
		var cut atomic.Bool
		s.Answer(func(st *link.Stream, m protocol.Message) {
			switch {
			case !cut.Swap(true):
				s.Cut()
			case m.MessageType() == "info" && request.MessageType() != "info":
				_ = st.Send(wire.Session{Session: protocol.SessionInfo{Instance: "first"}}) // the instance of the session, which the repeated request names
			default:
				_ = st.Send(wire.OK{})
			}
		})
		_, err := c.Call(testkit.Soon(t), request)
		heard := asked(s, request)
		if !again {
			wantCode(t, "Call", err, protocol.CodeSupervisorUnreachable)
			if len(heard) != 1 || s.LinkCount() != 1 {
				t.Errorf("%d requests over %d links", len(heard), s.LinkCount())
			}
			return
		}
		if err != nil || len(heard) != 2 || s.LinkCount() != 2 {
			t.Fatalf("%v, %d requests over %d links", err, len(heard), s.LinkCount())
		}
		if !reflect.DeepEqual(pinned(heard[0]), pinned(heard[1])) {
			t.Errorf("the request is %+v, and then %+v", heard[0], heard[1])
		}
	})
}

// A supervisor that dies during a request is followed by another process. A request that may be the cause is not
// repeated there, and other requests are repeated a few times only. After an upgrade the process is the same, so that
// no limit applies.
func TestDiesOfIt(t *testing.T) {
	ms := int64(60_000)
	for _, tt := range []struct {
		request protocol.Message
		times   int // how often the supervisor dies before the client gives up; 0 means that it never gives up
	}{
		{wire.Screen{}, 1}, {wire.History{}, 1}, {wire.Search{}, 1}, {wire.Past{}, 1}, {wire.SearchPast{}, 1}, {wire.Read{Past: true}, 1}, {wire.Read{}, 3}, {wire.Mark{}, 1}, {wire.Resize{}, 1}, {wire.SizePolicy{}, 1},
		{wire.List{}, 3}, {wire.Info{}, 3}, {wire.Attach{}, 3}, {wire.Create{}, 3}, {wire.Write{}, 3}, {wire.Await{TimeoutMS: &ms}, 3},
		{wire.Wait{}, 0}, {wire.Events{}, 0}, {wire.Attach{AttachSpec: protocol.AttachSpec{Resume: &protocol.Resume{}}}, 0},
	} {
		for _, dies := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.request.MessageType(), " ", dies), func(t *testing.T) {
				const most = 6
				s := newSupervisor(t)
				var pid atomic.Int64
				s.Hello(func(*wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
					return wire.Welcome{PID: int(pid.Load()), Instance: "life"}, nil, nil
				})
				s.Listen()
				c, _ := s.client(nil)
				var n atomic.Int64
				s.Answer(func(st *link.Stream, m protocol.Message) {
					if n.Add(1) > most {
						_ = st.Send(wire.OK{})
						return
					}
					if dies {
						pid.Add(1)
					}
					s.Cut()
				})
				_, err := c.Call(testkit.Soon(t), tt.request)
				want, code := tt.times, protocol.CodeSupervisorUnreachable
				if !dies || tt.times == 0 {
					want, code = most+1, ""
				}
				wantCode(t, "Call", err, code)
				if got := len(asked(s, tt.request)); got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
				if err != nil && protocol.AsError(err).Retryable {
					t.Error("the error is retryable")
				}
			})
		}
	}
}

// asked returns the requests of the same type that the supervisor has received.
func asked(s *supervisor, like protocol.Message) (all []protocol.Message) {
	for _, m := range s.Requests() {
		if m.MessageType() == like.MessageType() {
			all = append(all, m)
		}
	}
	return all
}

// pinned returns a copy of a request that names the first instance. A copy, because the fake may still use the
// request.
func pinned(m protocol.Message) protocol.Message {
	switch m := m.(type) {
	case *wire.Terminate:
		to := *m // the fake may still use the original
		to.Instance = "first"
		return &to
	case *wire.Forget:
		to := *m
		to.Instance = "first"
		return &to
	}
	return m
}

// Every request that is refused because of an upgrade is sent once more, over the next link. That is safe for all
// requests, because none was executed.
func TestUpgrading(t *testing.T) {
	forEachRequest(t, func(t *testing.T, request protocol.Message, _ bool) {
		s, c := running(t)
		var refused atomic.Bool
		s.Answer(func(st *link.Stream, _ protocol.Message) {
			if refused.Swap(true) {
				_ = st.Send(wire.OK{})
				return
			}
			_ = st.Fail(&protocol.Error{Code: protocol.CodeUpgrading, Retryable: true})
			_ = st.Close()
			_, _ = st.Next() // until the client has read the reply
			s.Cut()
		})
		if _, err := c.Call(testkit.Soon(t), request); err != nil {
			t.Error(err)
		}
		if heard := s.Requests(); len(heard) != 2 || s.LinkCount() != 2 || !reflect.DeepEqual(heard[0], heard[1]) {
			t.Errorf("the requests are %+v over %d links", heard, s.LinkCount())
		}
	})
}

// If the upgrade fails, the request is sent again over the same link.
func TestUpgradeGivenUp(t *testing.T) {
	s, c := running(t)
	var refused atomic.Bool
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		if refused.Swap(true) {
			_ = st.Send(wire.OK{})
			return
		}
		_ = st.Fail(&protocol.Error{Code: protocol.CodeUpgrading, Retryable: true})
	})
	if _, err := c.Call(testkit.Soon(t), wire.Signal{}); err != nil || s.LinkCount() != 1 || len(s.Requests()) != 2 {
		t.Errorf("%v; %d requests over %d links", err, len(s.Requests()), s.LinkCount())
	}
}

// Many requests during upgrades are all answered, and no session is created twice.
func TestManyWhileUpgrading(t *testing.T) {
	s, c := running(t)
	var mu sync.Mutex
	made := map[string]int{}
	s.Answer(func(st *link.Stream, m protocol.Message) {
		create, ok := m.(*wire.Create)
		if !ok {
			return
		}
		mu.Lock()
		made[create.Token+string(create.SessionID)]++
		n := len(made)
		mu.Unlock()
		if n == 10 || n == 20 {
			s.Cut() // requests in progress are executed, and not answered
		}
		_ = st.Send(wire.Session{Session: protocol.SessionInfo{ID: create.SessionID}})
	})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			if _, err := c.Call(testkit.Soon(t), wire.Create{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	mu.Lock() // replies may still be written that no caller waits for
	defer mu.Unlock()
	if len(made) != 30 {
		t.Errorf("%d sessions were created for 30 requests", len(made))
	}
}

// repeatable keeps the fields that the caller has set.
func TestRepeatable(t *testing.T) {
	for _, m := range []protocol.Message{
		wire.Create{SessionID: "mine", Token: "t"}, wire.Reopen{SessionID: "mine", Token: "t"},
		wire.Write{Writer: "w", Offset: 7}, wire.Attach{AttachSpec: protocol.AttachSpec{Writer: "w"}}, wire.Attach{Shadow: true},
	} {
		if got, ok := repeatable(m); !ok || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v became %+v, repeatable %v", m, got, ok)
		}
	}
	create, _ := repeatable(wire.Create{})
	if m := create.(wire.Create); m.Token == "" || m.SessionID.Validate() != nil {
		t.Errorf("a create became %+v", m)
	}
	if reopen, _ := repeatable(wire.Reopen{}); reopen.(wire.Reopen).Token == "" {
		t.Error("a reopen has no token")
	}
	write, _ := repeatable(wire.Write{Offset: 9})
	if m := write.(wire.Write); m.Offset != 0 || protocol.ValidateWriter(m.Writer) != nil {
		t.Errorf("a write became %+v", m)
	}
	attach, _ := repeatable(wire.Attach{})
	if protocol.ValidateWriter(attach.(wire.Attach).Writer) != nil {
		t.Errorf("an attach became %+v", attach)
	}
}

// If a repeated request finds that the first one was executed, the call succeeds. If its id belongs to another
// instance now, the request is not executed on that.
func TestDoneBefore(t *testing.T) {
	exit := func(r protocol.Reason) *protocol.Error {
		return &protocol.Error{Code: protocol.CodeSessionExited, Exit: &protocol.ExitRecord{Reason: r}}
	}
	later := time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name    string
		request protocol.Message
		info    any // the reply to info
		answer  error
		want    protocol.Code
		times   int // number of requests without info
	}{
		{name: "forgotten", request: wire.Forget{SessionID: "s", Instance: "i"}, answer: protocol.ErrSessionNotFound, times: 2},
		{name: "forgotten, and made again", request: wire.Forget{SessionID: "s", Instance: "i"}, answer: protocol.Errorf(protocol.CodeInstanceMismatch, ""), times: 2},
		{name: "forgotten, any life", request: wire.Forget{SessionID: "s"}, info: protocol.ErrSessionNotFound, times: 1},
		{name: "not to be forgotten", request: wire.Forget{SessionID: "s", Instance: "i"}, answer: protocol.Errorf(protocol.CodeSessionRunning, ""), want: protocol.CodeSessionRunning, times: 2},
		{name: "made again", request: wire.Forget{SessionID: "s"}, info: later, times: 1},
		{name: "ended", request: wire.Terminate{SessionID: "s", Instance: "i"}, answer: exit(protocol.ReasonUserRequested), times: 2},
		{name: "ended for a reason", request: wire.Terminate{SessionID: "s", Instance: "i", Reason: "r"}, answer: exit("r"), times: 2},
		{name: "ended by itself", request: wire.Terminate{SessionID: "s", Instance: "i"}, answer: exit(protocol.ReasonExited), want: protocol.CodeSessionExited, times: 2},
		{name: "ended, and started again", request: wire.Terminate{SessionID: "s"}, info: later, times: 1},
		{name: "still there", request: wire.Terminate{SessionID: "s"}, info: time.Now().Add(-time.Hour), times: 2},
		{name: "an unknown session", request: wire.Terminate{SessionID: "s"}, info: protocol.ErrSessionNotFound, want: protocol.CodeSessionNotFound, times: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := running(t)
			var cut atomic.Bool
			s.Answer(func(st *link.Stream, m protocol.Message) {
				if !cut.Swap(true) {
					s.Cut()
					return
				}
				if m.MessageType() == "info" {
					if err, ok := tt.info.(error); ok {
						_ = st.Fail(err)
						return
					}
					_ = st.Send(wire.Session{Session: protocol.SessionInfo{Instance: "i", CreatedAt: tt.info.(time.Time)}})
					return
				}
				if tt.answer != nil {
					_ = st.Fail(tt.answer)
					return
				}
				_ = st.Send(wire.OK{})
			})
			reply, err := c.Call(testkit.Soon(t), tt.request)
			wantCode(t, "Call", err, tt.want)
			if _, ok := reply.(*wire.OK); err == nil && !ok {
				t.Errorf("the reply is %+v", reply)
			}
			if n := len(asked(s, tt.request)); n != tt.times {
				t.Errorf("%d requests, want %d", n, tt.times)
			}
		})
	}
}

// A request is not repeated at another supervisor, because that has other sessions. No supervisor is started for it
// either.
func TestStranger(t *testing.T) {
	s, c := running(t)
	var links atomic.Int64
	s.Hello(func(*wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
		return wire.Welcome{Instance: protocol.Instance(fmt.Sprint("life-", links.Add(1)))}, nil, nil
	})
	s.Answer(func(*link.Stream, protocol.Message) { s.Cut() })
	_, err := c.Call(testkit.Soon(t), wire.Info{SessionID: "s"})
	wantCode(t, "Call", err, protocol.CodeSupervisorUnreachable)
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	s.Answer(func(*link.Stream, protocol.Message) { s.Stop() })
	_, err = c.Call(testkit.Soon(t), wire.Info{SessionID: "s"})
	wantCode(t, "Call whose supervisor dies", err, protocol.CodeSupervisorUnreachable)
}

// A wait that is repeated ends at its original time-out.
func TestWaitGoesOn(t *testing.T) {
	ms := int64(60_000)
	for _, request := range []protocol.Message{wire.Wait{TimeoutMS: &ms}, wire.Await{TimeoutMS: &ms}} {
		t.Run(request.MessageType(), func(t *testing.T) { waitGoesOn(t, request, ms) })
	}
}

func waitGoesOn(t *testing.T, request protocol.Message, ms int64) {
	s, c := running(t)
	var cut atomic.Bool
	hold := make(chan struct{})
	s.Answer(func(st *link.Stream, m protocol.Message) {
		if cut.Swap(true) {
			_ = st.Send(wire.OK{})
			return
		}
		<-hold
		s.Cut()
	})
	done := make(chan error, 1)
	go func() { _, err := c.Call(testkit.Soon(t), request); done <- err }()
	testkit.Eventually(t, patience, func() bool { return len(s.Requests()) == 1 }, "the supervisor receives the request")
	const passes = 20 * time.Millisecond
	<-time.After(passes)
	close(hold)
	testkit.Must(t, testkit.Within(t, soonish, "the call is answered", done))
	again := reflect.ValueOf(s.Requests()[1]).Elem().FieldByName("TimeoutMS").Interface().(*int64)
	if left := *again; left > ms-passes.Milliseconds() || left < ms-patience.Milliseconds() {
		t.Errorf("the repeated wait has a time-out of %d of %d ms", left, ms)
	}
}

// A list begins again if the link is lost within it.
func TestListAgain(t *testing.T) {
	s, c := running(t)
	all := []protocol.SessionInfo{{ID: "one"}, {ID: "two"}}
	var cut atomic.Bool
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		if cut.Swap(true) {
			_ = st.SendSessions(all)
			return
		}
		_ = st.Send(wire.Sessions{Sessions: all[:1], More: true})
		s.Cut()
	})
	if got, err := c.List(testkit.Soon(t), ""); err != nil || len(got) != 2 {
		t.Errorf("%d sessions, %v", len(got), err)
	}
}

// Links that last may end any number of times. Of links that end at once only a limited number is tried.
func TestPatience(t *testing.T) {
	const links = 10_000
	for _, tt := range []struct {
		lasted, waited time.Duration
		most           time.Duration // the longest total wait; 0 if the client never gives up
	}{
		{lasted: 0, waited: backoffMax, most: connectTimeout},
		{lasted: time.Millisecond, waited: 100 * time.Millisecond, most: connectTimeout * 101 / 99},
		{lasted: 100 * time.Millisecond, waited: 100 * time.Millisecond},
		{lasted: connectTimeout / 3, waited: connectTimeout / 4},
		{lasted: time.Hour, waited: connectTimeout - time.Millisecond},
	} {
		now, late, waited := time.Now(), time.Time{}, time.Duration(0)
		n := 0
		for ; n < links; n++ {
			now = now.Add(tt.lasted)
			late = giveUpTime(late, now, tt.lasted, connectTimeout)
			if now = now.Add(tt.waited); now.After(late) {
				break
			}
			waited += tt.waited
		}
		if (n == links) != (tt.most == 0) || tt.most != 0 && (waited > tt.most || waited < tt.most-2*tt.waited) {
			t.Errorf("links that last %v, after waits of %v: given up after %d links and %v", tt.lasted, tt.waited, n, waited)
		}
	}
}

// A call whose context is canceled returns soon.
func TestGiveUp(t *testing.T) {
	s, c := running(t)
	s.Answer(func(st *link.Stream, _ protocol.Message) {
		_ = st.Fail(&protocol.Error{Code: protocol.CodeUpgrading, Retryable: true})
	})
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	done := make(chan error, 1)
	go func() { _, err := c.Call(ctx, wire.Status{}); done <- err }()
	testkit.Eventually(t, patience, func() bool { return len(s.Requests()) > 0 }, "the supervisor receives the request")
	cancel()
	if err := testkit.Within(t, linkEnd, "the call returns", done); err == nil {
		t.Error("answered")
	}
}

// Watch and Answers continue over the next link, which another caller makes, and Watch receives its events at once.
func TestLookOn(t *testing.T) {
	s, c := running(t)
	if _, err := c.Conn(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var links atomic.Uint64
	s.Answer(func(st *link.Stream, m protocol.Message) {
		if m, ok := m.(*wire.Events); ok {
			n := links.Add(1)
			_ = st.Send(wire.Subscribed{Instance: "life", Seq: m.After})
			_ = st.Send(wire.Event{Seq: m.After + 1})
			if n < 4 {
				_ = st.Close()
				_, _ = st.Next() // until the client has read the event
				s.Cut()
				return
			}
			_, _ = st.Next()
			return
		}
		if links.Load() < 4 {
			_ = st.Fail(&protocol.Error{Code: protocol.CodeUpgrading, Retryable: true})
			return
		}
		_ = st.Send(wire.StatusReport{})
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			_, made := c.liveOrNext()
			_, _ = c.Conn(ctx)
			select {
			case <-made:
			case <-time.After(time.Millisecond):
			}
		}
	})
	events := make(chan uint64, 10)
	began := time.Now()
	wg.Go(func() { c.Watch(ctx, wire.Events{}, func(e *wire.Event) { events <- e.Seq }) })
	wg.Go(func() {
		if err := c.Answers(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(err)
		}
	})
	for n := range uint64(4) {
		if seq := testkit.Within(t, patience, "the event", events); seq != n+1 {
			t.Errorf("received event %d, want %d", seq, n+1)
		}
	}
	if took := time.Since(began); took > watchPoll {
		t.Errorf("the events of 4 links took %v", took)
	}
}
