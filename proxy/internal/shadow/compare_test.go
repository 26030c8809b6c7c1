package shadow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// Two proxies view a session of one supervisor. The views of the second may be changed by theirs; round counts from
// 0.
func TestCompare(t *testing.T) {
	prints := func(n int) func(s *session) {
		return func(s *session) { s.printed = fmt.Appendf(s.printed, "%0*d", n, len(s.printed)) }
	}
	exits := func(s *session) { s.state = protocol.StateExited }
	always := func(how func(v *View)) func(int, *View) { return func(_ int, v *View) { how(v) } }
	// twice makes a difference in each round but the last.
	twice := func(how func(v *View)) func(int, *View) {
		return func(round int, v *View) {
			if round < tries-1 {
				how(v)
			}
		}
	}
	once := func(how func(v *View)) func(int, *View) {
		return func(round int, v *View) {
			if round < 1 {
				how(v)
			}
		}
	}
	ofScreens := func(how func(v *View)) func(int, *View) { // only views of the screen have a size
		return func(_ int, v *View) {
			if v.Size != (protocol.Size{}) {
				how(v)
			}
		}
	}
	ofOutput := func(how func(v *View)) func(int, *View) {
		return func(_ int, v *View) {
			if v.Size == (protocol.Size{}) {
				how(v)
			}
		}
	}
	otherSum := func(v *View) { v.Sum = sum(nil) }
	for _, tt := range []struct {
		name   string
		make   func(s *session)
		theirs func(round int, v *View)
		want   Report
		rounds int
		differ string
	}{
		{name: "the same", want: Report{Sessions: 1}, rounds: 1},
		{name: "draining", make: func(s *session) { s.state = protocol.StateDraining }, want: Report{Sessions: 1}, rounds: 1},
		{name: "exited before", make: exits, rounds: 0},

		{name: "another screen", theirs: always(otherSum), rounds: tries, differ: "its screen"},
		{name: "another size", theirs: always(func(v *View) { v.Size.Cols++ }), rounds: tries, differ: "its size"},
		{name: "another instance", theirs: always(func(v *View) { v.Instance += "x" }), rounds: tries, differ: "its instance"},
		{name: "there for one", theirs: always(func(v *View) { *v = View{Session: v.Session, Gone: true} }), rounds: tries, differ: "whether it is there"},
		{name: "another screen for a while", theirs: twice(otherSum), want: Report{Sessions: 1}, rounds: tries},
		{name: "another size for a while", theirs: twice(func(v *View) { v.Size.Rows++ }), want: Report{Sessions: 1}, rounds: tries},
		{name: "there for one, for a while", theirs: twice(func(v *View) { v.Gone = true }), want: Report{Sessions: 1}, rounds: tries},
		{name: "printed between two looks", theirs: once(func(v *View) { v.Offset++ }), want: Report{Sessions: 1}, rounds: movedTries},

		{name: "exits meanwhile", make: func(s *session) { s.attached = exits }, want: Report{Gone: 1}, rounds: 1},
		{name: "exits between two looks", make: func(s *session) {
			n := 0
			s.attached = func(s *session) {
				if n++; n > 1 {
					exits(s)
				}
			}
		}, want: Report{Gone: 1}, rounds: 2},

		{name: "prints on", make: func(s *session) { s.attached = prints(10) }, want: Report{ByOutput: 1}, rounds: movedTries + 1},
		{name: "prints much", make: func(s *session) { s.attached = prints(maxOutput + 1000) }, want: Report{ByOutput: 1}, rounds: movedTries + 1},
		{name: "prints on, with other screens", make: func(s *session) { s.attached = prints(10) }, theirs: ofScreens(otherSum), want: Report{ByOutput: 1}, rounds: movedTries + 1},
		{name: "prints other output", make: func(s *session) { s.attached = prints(10) }, theirs: ofOutput(otherSum), rounds: movedTries + 1, differ: "the output since offset"},
		{name: "prints up to another offset", make: func(s *session) { s.attached = prints(10) }, theirs: ofOutput(func(v *View) { v.Offset++ }), rounds: movedTries + 1, differ: "the output since offset"},
		{name: "prints on and exits", make: func(s *session) {
			n := 0
			s.attached = func(s *session) {
				prints(10)(s)
				if n++; n > 2*movedTries {
					exits(s)
				}
			}
		}, want: Report{Gone: 1}, rounds: movedTries + 1},
		{name: "prints more than a ring", make: func(s *session) {
			s.attached = func(s *session) { prints(10)(s); s.start = uint64(len(s.printed)) }
		}, want: Report{Unseen: 1}, rounds: tries + movedTries + 2},

		{name: "full", make: func(s *session) { s.full = true }, want: Report{Unseen: 1}, rounds: tries},
		{name: "full for one", theirs: always(func(v *View) { *v = View{Session: v.Session, Unseen: true} }), want: Report{Unseen: 1}, rounds: tries},
		{name: "full for a while", theirs: twice(func(v *View) { *v = View{Session: v.Session, Unseen: true} }), want: Report{Sessions: 1}, rounds: tries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one := some("one", "secret")
			if tt.make != nil {
				tt.make(one)
			}
			s := newSupervisor(t, one)
			other, rounds := s.client(), 0
			got, err := Compare(testkit.Soon(t), s.client(), func(ctx context.Context, asks []Ask) ([]View, error) {
				if len(asks) != 1 || asks[0].To-asks[0].From > maxOutput {
					t.Errorf("the requested views are %+v", asks)
				}
				views, err := Look(ctx, other, asks)
				if err == nil && tt.theirs != nil {
					tt.theirs(rounds, &views[0])
				}
				rounds++
				return views, err
			}, Extent{})
			if got != tt.want || rounds != tt.rounds {
				t.Errorf("got %+v in %d rounds, want %+v in %d", got, rounds, tt.want, tt.rounds)
			}
			if tt.differ == "" {
				wantCode(t, "Compare", err, "")
				return
			}
			var d *Difference
			if !errors.As(err, &d) || d.Session != "one" || d.Offset < 6 || !strings.HasPrefix(d.What, tt.differ) {
				t.Fatalf("got %v, want a difference in %s", err, tt.differ)
			}
			wantCode(t, "Compare", err, protocol.CodeInternal)
			if m := err.Error(); !strings.Contains(m, "session one at offset "+fmt.Sprint(d.Offset)) || strings.Contains(m, "secret") {
				t.Errorf("the message is %q", m)
			}
		})
	}
}

// More sessions than fit into a message, of all kinds, are compared in several messages.
func TestCompareMany(t *testing.T) {
	var all []*session
	for i := range 2*MaxAsks + 10 {
		s := some(fmt.Sprint("s", i), strings.Repeat("x", i))
		switch i % 64 {
		case 1:
			s.attached = func(s *session) { s.printed = append(s.printed, 'y') }
		case 2:
			s.full = true
		case 3:
			s.attached = func(s *session) { s.state = protocol.StateExited }
		case 4:
			s.state = protocol.StateExited
		}
		all = append(all, s)
	}
	s := newSupervisor(t, all...)
	other, asked := s.client(), map[Ask]bool{}
	got, err := Compare(testkit.Soon(t), s.client(), func(ctx context.Context, asks []Ask) ([]View, error) {
		if len(asks) > MaxAsks {
			t.Errorf("%d requested views in one message", len(asks))
		}
		for _, ask := range asks {
			asked[ask] = true
		}
		return Look(ctx, other, asks)
	}, Extent{})
	for i, one := range all {
		if asked[one.ask()] != (i%64 != 4) {
			t.Errorf("session %d was requested: %v", i, asked[one.ask()])
		}
	}
	if want := (Report{Sessions: len(all) - 4*5, ByOutput: 5, Unseen: 5, Gone: 5}); got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// A comparison requests views of as many sessions as its extent permits, which are others each
// time, and counts the remainder.
func TestExtentSessions(t *testing.T) {
	var all []*session
	for i := range 100 {
		all = append(all, some(fmt.Sprint("s", i), "x"))
	}
	s := newSupervisor(t, all...)
	other, asked := s.client(), map[protocol.SessionID]int{}
	for range 2 {
		got, err := Compare(testkit.Soon(t), s.client(), func(ctx context.Context, asks []Ask) ([]View, error) {
			for _, ask := range asks {
				asked[ask.Session]++
			}
			return Look(ctx, other, asks)
		}, Extent{Sessions: 40})
		if want := (Report{Sessions: 40, Skipped: 60}); got != want || err != nil {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	if len(asked) < 45 { // the same 40 would be a chance of 1 in 10^28; 45 differ with all but one in 10^8
		t.Errorf("two samples had %d sessions in all", len(asked))
	}
}

// When the extent's time is over, no session is viewed that was not viewed yet, but a difference
// is settled.
func TestExtentTime(t *testing.T) {
	var all []*session
	for i := range chunkLen + 10 {
		all = append(all, some(fmt.Sprint("s", i), "x"))
	}
	extent := Extent{Time: 100 * time.Millisecond}
	for _, differs := range []bool{false, true} {
		s := newSupervisor(t, all...)
		other := s.client()
		got, err := Compare(testkit.Soon(t), s.client(), func(ctx context.Context, asks []Ask) ([]View, error) {
			views, err := Look(ctx, other, asks)
			if differs && err == nil {
				views[0].Sum = sum(nil)
			}
			time.Sleep(extent.Time) // so that it is over
			return views, err
		}, extent)
		var d *Difference
		if errors.As(err, &d) != differs || !differs && err != nil {
			t.Errorf("got %v, want a difference: %v", err, differs)
		}
		if want := (Report{Sessions: chunkLen, Skipped: 10}); !differs && got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// The views of the other proxy may differ, fail, or never come.
func TestOther(t *testing.T) {
	broken := errors.New("the other proxy has ended")
	for _, tt := range []struct {
		name   string
		theirs func(ctx context.Context, asks []Ask) ([]View, error)
		code   protocol.Code
		err    error
	}{
		{name: "too few", code: protocol.CodeInternal, theirs: func(_ context.Context, asks []Ask) ([]View, error) { return make([]View, len(asks)-1), nil }},
		{name: "none", code: protocol.CodeInternal, theirs: func(context.Context, []Ask) ([]View, error) { return nil, nil }},
		{name: "too many", code: protocol.CodeInternal, theirs: func(_ context.Context, asks []Ask) ([]View, error) { return make([]View, len(asks)+1), nil }},
		{name: "others", code: protocol.CodeInternal, theirs: func(_ context.Context, asks []Ask) ([]View, error) {
			views := make([]View, len(asks))
			for i := range views {
				views[i] = View{Session: asks[len(asks)-1-i].Session, Gone: true}
			}
			return views, nil
		}},
		{name: "an offset that was never printed", code: protocol.CodeInvalidArgument, theirs: func(_ context.Context, asks []Ask) ([]View, error) {
			views := make([]View, len(asks))
			for i, ask := range asks {
				views[i] = View{Session: ask.Session, Instance: ask.Instance, Offset: 1 << 60}
			}
			return views, nil
		}},
		{name: "an error", code: protocol.CodeInternal, err: broken, theirs: func(context.Context, []Ask) ([]View, error) { return nil, broken }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compare(testkit.Soon(t), newSupervisor(t, some("a", "x"), some("b", "x")).client(), tt.theirs, Sample)
			wantCode(t, "Compare", err, tt.code)
			var d *Difference
			if errors.As(err, &d) || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// If one of the two fails, the comparison does not wait for the other, and it never waits longer than the context.
func TestCompareEnds(t *testing.T) {
	silence := func(ctx context.Context, _ []Ask) ([]View, error) { <-ctx.Done(); return nil, ctx.Err() }
	mute, bad := some("mute", "x"), some("bad", "x")
	mute.silent, bad.cut = true, true

	_, err := Compare(testkit.Soon(t), newSupervisor(t, bad).client(), silence, Sample)
	wantCode(t, "our look fails", err, protocol.CodeSupervisorUnreachable)

	s := newSupervisor(t, mute)
	_, err = Compare(testkit.Soon(t), s.client(), func(context.Context, []Ask) ([]View, error) {
		return nil, protocol.Errorf(protocol.CodeClosed, "the attachment ends")
	}, Sample)
	wantCode(t, "the other proxy fails", err, protocol.CodeClosed)

	ctx, cancel := context.WithCancel(testkit.Soon(t))
	_, err = Compare(ctx, s.client(), func(ctx context.Context, asks []Ask) ([]View, error) {
		testkit.Eventually(t, patience, func() (asked bool) { s.change(func() { asked = len(s.asked) > 0 }); return asked }, "the comparison has attached")
		cancel()
		return silence(ctx, asks)
	}, Sample)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a session is never shown: got %v, want the context's end", err)
	}

	s = newSupervisor(t)
	s.change(func() { s.stalled = true })
	c := s.client()
	if _, err := c.Conn(testkit.Soon(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(testkit.Soon(t), patience/1000)
	defer cancel()
	if _, err = Compare(ctx, c, silence, Sample); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the list has no end: got %v, want the context's end", err)
	}
}
