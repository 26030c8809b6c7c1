package shadow

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

func sum(p []byte) string { return fmt.Sprintf("%x", sha256.Sum256(p)) }

// The view of a session, and the cases in which it has none.
func TestLook(t *testing.T) {
	text := strings.Repeat("0123456789", 500)
	for _, tt := range []struct {
		name string
		make func(s *session, ask *Ask)
		want func(s *session) View
		err  protocol.Code
	}{
		{name: "a screen", want: func(s *session) View {
			return View{Instance: s.instance, Offset: 5000, Size: s.size, Sum: sum(s.screen())}
		}},
		{name: "an empty one", make: func(s *session, _ *Ask) { s.printed = nil }, want: func(s *session) View {
			return View{Instance: s.instance, Size: s.size, Sum: sum(s.screen())}
		}},
		{name: "output", make: func(_ *session, ask *Ask) { ask.From, ask.To = 10, 3210 }, want: func(s *session) View {
			return View{Instance: s.instance, Offset: 3210, Sum: sum(s.printed[10:3210])}
		}},
		{name: "all output", make: func(_ *session, ask *Ask) { ask.To = 5000 }, want: func(s *session) View {
			return View{Instance: s.instance, Offset: 5000, Sum: sum(s.printed)}
		}},
		{name: "output from where the ring begins", make: func(s *session, ask *Ask) { s.start, ask.From, ask.To = 10, 10, 11 }, want: func(s *session) View {
			return View{Instance: s.instance, Offset: 11, Sum: sum(s.printed[10:11])}
		}},
		{name: "output that the ring has forgotten", make: func(s *session, ask *Ask) { s.start, ask.From, ask.To = 11, 10, 12 }, want: func(s *session) View {
			return View{Instance: s.instance, Offset: 12, Unseen: true}
		}},
		{name: "output that it forgets meanwhile", make: func(s *session, ask *Ask) { s.overtake, ask.To = true, 5000 }, want: func(s *session) View {
			return View{Instance: s.instance, Offset: 5000, Unseen: true}
		}},
		{name: "a full session", make: func(s *session, _ *Ask) { s.full = true }, want: func(*session) View { return View{Unseen: true} }},
		{name: "no session", make: func(_ *session, ask *Ask) { ask.Session = "nobody" }, want: func(*session) View { return View{Session: "nobody", Gone: true} }},
		{name: "another instance", make: func(_ *session, ask *Ask) { ask.Instance = "old" }, want: func(*session) View { return View{Gone: true} }},
		{name: "output of another instance", make: func(_ *session, ask *Ask) { ask.Instance, ask.To = "old", 1 }, want: func(*session) View { return View{Gone: true} }},
		{name: "an exited session", make: func(s *session, _ *Ask) { s.state = protocol.StateExited }, want: func(*session) View { return View{Gone: true} }},
		{name: "output of an exited session", make: func(s *session, ask *Ask) { s.state, ask.To = protocol.StateExited, 1 }, want: func(*session) View { return View{Gone: true} }},
		{name: "output that comes from tomorrow", make: func(_ *session, ask *Ask) { ask.From, ask.To = 5001, 5002 }, err: protocol.CodeInvalidArgument},
		{name: "output that lasts till tomorrow", make: func(_ *session, ask *Ask) { ask.To = 5001 }, err: protocol.CodeInvalidArgument},
		{name: "output with a gap", make: func(s *session, ask *Ask) { s.skips, ask.To = true, 5000 }, err: protocol.CodeBadFrame},
		{name: "a link that is lost", make: func(s *session, _ *Ask) { s.cut = true }, err: protocol.CodeSupervisorUnreachable},
		{name: "an empty range", make: func(_ *session, ask *Ask) { ask.From, ask.To = 3, 3 }, err: protocol.CodeInvalidArgument},
		{name: "output to nowhere", make: func(_ *session, ask *Ask) { ask.From = 3 }, err: protocol.CodeInvalidArgument},
		{name: "no id", make: func(_ *session, ask *Ask) { ask.Session = "../x" }, err: protocol.CodeInvalidArgument},
		{name: "no instance", make: func(_ *session, ask *Ask) { ask.Instance = "" }, err: protocol.CodeInvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := some("one", text)
			ask := s.ask()
			if tt.make != nil {
				tt.make(s, &ask)
			}
			got, err := Look(testkit.Soon(t), newSupervisor(t, s).client(), []Ask{ask})
			wantCode(t, "Look", err, tt.err)
			if err != nil {
				return
			}
			want := tt.want(s)
			want.Session = ask.Session
			if !reflect.DeepEqual(got, []View{want}) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// Several sessions are viewed at a time, and the views are in the order of the request.
func TestLookAtMany(t *testing.T) {
	var all []*session
	var asks []Ask
	for i := range 5 * atOnce {
		s := some(fmt.Sprint("s", i), strings.Repeat("x", i))
		all, asks = append(all, s), append(asks, s.ask())
	}
	s := newSupervisor(t, all...)
	s.change(func() { s.hold = make(chan struct{}) })
	type looked struct {
		views []View
		err   error
	}
	done, ctx, c := make(chan looked, 1), testkit.Soon(t), s.client()
	go func() { views, err := Look(ctx, c, asks); done <- looked{views, err} }()
	testkit.Eventually(t, patience, func() (all bool) { s.change(func() { all = s.waiting == atOnce }); return all }, "as many as there may be are looked at")
	s.change(func() { close(s.hold) })
	got := <-done
	if got.err != nil || len(got.views) != len(asks) {
		t.Fatalf("%d views, %v", len(got.views), got.err)
	}
	for i, v := range got.views {
		if v.Session != asks[i].Session || v.Sum != sum(all[i].screen()) {
			t.Errorf("view %d is %+v, requested was %+v", i, v, asks[i])
		}
	}
	s.change(func() {
		if s.most != atOnce || len(s.asked) != len(asks) {
			t.Errorf("%d attaches, %d at a time; want %d, %d at a time", len(s.asked), s.most, len(asks), atOnce)
		}
	})
}

// A session without output delays the look only until the context ends. A session that fails ends the look.
func TestLookEnds(t *testing.T) {
	mute, bad := some("mute", "x"), some("bad", "x")
	mute.silent, bad.cut = true, true
	s := newSupervisor(t, mute, bad)
	c := s.client()
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	done := make(chan error, 1)
	go func() { _, err := Look(ctx, c, []Ask{mute.ask()}); done <- err }()
	testkit.Eventually(t, patience, func() (asked bool) { s.change(func() { asked = len(s.asked) > 0 }); return asked }, "the look has attached")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's end", err)
	}
	_, err := Look(testkit.Soon(t), c, []Ask{mute.ask(), bad.ask()})
	wantCode(t, "beside a session that fails", err, protocol.CodeSupervisorUnreachable)
}

// A message has room for the largest number of requests and views, with a quarter to spare for the rest of the
// message.
func TestMaxAsks(t *testing.T) {
	id := strings.Repeat("x", protocol.MaxIDLen)
	ask := Ask{Session: protocol.SessionID(id), Instance: protocol.Instance(id), From: math.MaxUint64, To: math.MaxUint64}
	view := View{
		Session: ask.Session, Instance: ask.Instance, Offset: math.MaxUint64,
		Size: protocol.Size{Cols: math.MinInt, Rows: math.MinInt}, Sum: sum(nil), Gone: true, Unseen: true,
	}
	for what, list := range map[string]any{"asks": repeat(ask), "views": repeat(view)} {
		p, err := json.Marshal(list)
		if err != nil || len(p) > socket.MaxPayload*3/4 {
			t.Errorf("%d %s take %d bytes, %v; a message has %d", MaxAsks, what, len(p), err, socket.MaxPayload)
		}
	}
}

func repeat[T any](v T) []T {
	all := make([]T, MaxAsks)
	for i := range all {
		all[i] = v
	}
	return all
}

// A session whose link is lost during its view is viewed again.
func TestLookAgain(t *testing.T) {
	s := some("one", "text")
	var looks atomic.Int64
	s.attached = func(s *session) { s.cut = looks.Add(1) < viewTries }
	got, err := Look(testkit.Soon(t), newSupervisor(t, s).client(), []Ask{s.ask()})
	if err != nil || len(got) != 1 || got[0].Sum != sum(s.screen()) || looks.Load() != viewTries {
		t.Errorf("got %+v, %v after %d looks", got, err, looks.Load())
	}
}
