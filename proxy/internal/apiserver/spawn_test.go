package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

var someExit = protocol.ExitRecord{
	ExitCode: 3, Signal: "SIGTERM", Outcome: protocol.OutcomeNatural, Reason: protocol.ReasonExited,
	LastLines: []string{"last"}, Tail: []string{"1", "2", "last"}, StartedAt: time.Unix(1, 0).UTC(), ExitedAt: time.Unix(2, 0).UTC(),
}

// starts has the two requests that start a session.
func starts(early *int64) map[string]protocol.Message {
	return map[string]protocol.Message{
		"new":    api.Spawn{Request: req("r"), SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}, EarlyExitMS: early},
		"reopen": api.Reopen{Request: req("r"), SessionID: "s", EarlyExitMS: early},
	}
}

// child returns the replies of a supervisor whose children end with exit, or run on if it is nil.
func child(exit *protocol.ExitRecord) func(protocol.Message) (protocol.Message, error) {
	return func(m protocol.Message) (protocol.Message, error) {
		switch m.(type) {
		case *wire.Create, *wire.Reopen:
			info := someInfo
			info.CreatedAt = time.Now()
			return wire.Session{Session: info}, nil
		case *wire.Wait:
			if exit == nil {
				return nil, protocol.Errorf(protocol.CodeTimeout, "it runs")
			}
			return wire.Exited{SessionID: "s", Instance: "life", Exit: *exit}, nil
		}
		return wire.OK{}, nil
	}
}

// A session whose spawn requests shell integration starts with it. If the integration is not available or fails, the
// session starts without.
func TestShellIntegration(t *testing.T) {
	for _, tt := range []struct {
		name      string
		ask, none bool // the proxy has no integration
		err       error
		want      []string
	}{
		{name: "asked for", ask: true, want: []string{"sh", "--told", "A=1", "B=2"}},
		{name: "not asked for", want: []string{"sh", "A=1"}},
		{name: "no integration", ask: true, none: true, want: []string{"sh", "A=1"}},
		{name: "the integration fails", ask: true, err: errors.New("no room"), want: []string{"sh", "A=1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				if !tt.none {
					c.Integrate = func(argv, env []string) ([]string, []string, error) {
						return append(argv, "--told"), append(env, "B=2"), tt.err
					}
				}
			})
			w.Reply(child(nil))
			c := w.client()
			c.send(api.Spawn{
				Request: req("r"), SessionID: "s", ShellIntegration: tt.ask,
				SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}, Env: []string{"A=1"}},
			})
			expect[*api.Spawned](c)
			made := w.Requests("create")[0].(*wire.Create)
			if got := append(made.Argv, made.Env...); !slices.Equal(got, tt.want) {
				t.Errorf("started %q, want %q", got, tt.want)
			}
		})
	}
}

// A spawn without argv starts the login shell. The argv in infos is the requested one, without the arguments of the
// integration.
func TestSpawnLoginShell(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Integrate = func(argv, env []string) ([]string, []string, error) { return append(argv, "--told"), env, nil }
		c.Asked = func(argv []string) []string {
			return slices.DeleteFunc(slices.Clone(argv), func(a string) bool { return a == "--told" })
		}
	})
	started := someInfo
	var mu sync.Mutex
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		switch m := m.(type) {
		case *wire.Create:
			started.Argv = m.Argv
			return wire.Session{Session: started}, nil
		case *wire.Info:
			return wire.Session{Session: started}, nil
		case *wire.List:
			return wire.Sessions{Sessions: []protocol.SessionInfo{started}}, nil
		}
		return child(nil)(m)
	})
	c := w.client()
	c.send(api.Spawn{Request: req("none"), SessionID: "s", SpawnSpec: protocol.SpawnSpec{Argv: []string{}}, ShellIntegration: true})
	if e := expect[*api.Error](c); e.Code != protocol.CodeInvalidArgument || len(w.Requests("create")) != 0 {
		t.Errorf("an empty argv: %+v; the supervisor received %v", e, w.Requests("create"))
	}
	c.raw(text(`{"type":"spawn","request_id":"r","session_id":"s","shell_integration":true}`))
	told := expect[*api.Spawned](c).Session
	made := w.Requests("create")[0].(*wire.Create)
	if want := append(loginShell(), "--told"); !slices.Equal(made.Argv, want) {
		t.Errorf("started %q, want %q", made.Argv, want)
	}
	c.send(api.Info{Request: req("i"), SessionID: "s"})
	info := expect[*api.Session](c).Session
	c.send(api.List{Request: req("l")})
	list := expect[*api.Sessions](c).Sessions
	for _, i := range append(list, told, info) {
		if !slices.Equal(i.Argv, loginShell()) {
			t.Errorf("the argv is %q, want %q", i.Argv, loginShell())
		}
	}
}

// New and reopened sessions are watched for a while after their start.
// demand: K1
func TestEarlyExitWindow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   time.Duration
		early *int64
		want  int64 // 0 if the session is not watched
	}{
		{name: "default", want: 200},
		{name: "configured", cfg: 3 * time.Second, want: 3000},
		{name: "configured to none", cfg: -1},
		{name: "asked for", early: new(int64(700)), want: 700},
		{name: "asked for, over the configured", cfg: -1, early: new(int64(700)), want: 700},
		{name: "asked for none", early: new(int64(0))},
		{name: "less than none", early: new(int64(-5))},
		{name: "the longest", early: new(int64(60_000)), want: 60_000},
	} {
		for how, request := range starts(tt.early) {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				w := newWorld(t, func(c *Config) { c.EarlyExit = tt.cfg })
				w.Reply(child(nil))
				c := w.client()
				c.send(request)
				if m := expect[*api.Spawned](c); m.RequestID != "r" || m.SessionID != "s" || m.PID != 42 {
					t.Errorf("received %+v", m)
				}
				waits := w.Requests("wait")
				switch {
				case tt.want == 0 && len(waits) > 0:
					t.Errorf("the session was watched: %+v", waits)
				case tt.want > 0:
					if len(waits) != 1 || *waits[0].(*wire.Wait).TimeoutMS != tt.want || waits[0].(*wire.Wait).Instance != "life" {
						t.Errorf("the waits are %+v", waits)
					}
				}
				if len(w.Requests("forget")) > 0 {
					t.Error("a session that lives was removed")
				}
			})
		}
	}
}

// If the child ends within the window, the request fails with the exit record, and the dead session is removed.
// demand: K2 K3 K8 K9 K10
func TestEarlyExit(t *testing.T) {
	twenty := make([]string, protocol.TailLines)
	for i := range twenty {
		twenty[i] = fmt.Sprint("line ", i)
	}
	long, silent, garbled := someExit, someExit, someExit
	long.Tail = twenty
	silent.Tail, silent.LastLines, silent.Signal, silent.ExitCode = []string{}, []string{}, "", 127
	garbled.Tail = []string{"a\xff\xfeb", "\x80"}
	for name, exit := range map[string]protocol.ExitRecord{"with output": someExit, "with a long tail": long, "silent": silent, "garbled": garbled} {
		for how, request := range starts(nil) {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld(t, nil)
				w.Reply(child(&exit))
				c := w.client()
				c.send(request)
				e := c.wantError(protocol.CodeExitedEarly)
				if e.RequestID != "r" || e.Exit == nil || e.Exit.ExitCode != exit.ExitCode || e.Exit.Signal != exit.Signal || len(e.Exit.Tail) != len(exit.Tail) {
					t.Errorf("received %+v, %+v", e, e.Exit)
				}
				if e.Exit.Tail == nil {
					t.Error("the exit record has no tail")
				}
				forgets := w.Requests("forget")
				if len(forgets) != 1 || *forgets[0].(*wire.Forget) != (wire.Forget{SessionID: "s", Instance: "life", Restore: true}) {
					t.Errorf("the forgets are %+v", forgets)
				}
			})
		}
	}
}

// If the removal fails, too, the client still receives the first error.
// demand: K10
func TestRemovalFails(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		if _, ok := m.(*wire.Forget); ok {
			return nil, protocol.Errorf(protocol.CodeInternal, "cannot be removed")
		}
		return child(&someExit)(m)
	})
	c := w.client()
	c.send(starts(nil)["new"])
	if e := c.wantError(protocol.CodeExitedEarly); e.Exit == nil || e.Exit.ExitCode != 3 {
		t.Errorf("received %+v", e)
	}
	if log := w.log.String(); !strings.Contains(log, "cannot be removed") {
		t.Errorf("the failed removal is not logged: %s", log)
	}
}

// A spawn that is repeated after a lost connection finds the session that was started before. Its child is watched
// for the rest of the window, and an existing exit record stays.
func TestSpawnRepeated(t *testing.T) {
	for _, tt := range []struct {
		name      string
		age, life time.Duration // a life of 0 means that the child still runs
		watched   bool
		code      protocol.Code
	}{
		{"it runs", time.Hour, 0, false, ""},
		{"the session is young", time.Second, 0, true, ""},
		{"the child lived long enough", time.Hour, 2 * maxEarlyExit, true, ""},
		{"the child ended early", time.Hour, maxEarlyExit / 2, true, protocol.CodeExitedEarly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			made := someInfo
			made.CreatedAt = time.Now().Add(-tt.age)
			exit := someExit
			if exit.StartedAt, exit.ExitedAt = made.CreatedAt, made.CreatedAt.Add(tt.life); tt.life > 0 {
				made.State, made.Exit = protocol.StateExited, &exit
			}
			w.Reply(func(m protocol.Message) (protocol.Message, error) {
				switch m.(type) {
				case *wire.Create:
					return wire.Session{Session: made}, nil
				case *wire.Wait:
					if made.Exit == nil {
						return nil, protocol.Errorf(protocol.CodeTimeout, "it runs")
					}
					return wire.Exited{SessionID: "s", Instance: "life", Exit: exit}, nil
				}
				return wire.OK{}, nil
			})
			c := w.client()
			c.send(starts(new(maxEarlyExit.Milliseconds()))["new"]) // the session is still young on a busy machine
			if tt.code != "" {
				c.wantError(tt.code)
			} else if m := expect[*api.Spawned](c); m.SessionID != "s" {
				t.Errorf("received %+v", m)
			}
			waits := w.Requests("wait")
			if (len(waits) == 1) != tt.watched || tt.watched && *waits[0].(*wire.Wait).TimeoutMS > (maxEarlyExit-min(maxEarlyExit, tt.age)).Milliseconds() {
				t.Errorf("the waits are %+v", waits)
			}
			if len(w.Requests("forget")) > 0 {
				t.Error("the record was removed")
			}
		})
	}
}

// If the check of an early exit fails, the spawn succeeds.
// demand: K7
func TestCheckFails(t *testing.T) {
	for name, answer := range map[string]func(w *world, st *link.Stream){
		"the link is lost":   func(w *world, _ *link.Stream) { w.SetDown(true) },
		"the link is cut":    func(w *world, _ *link.Stream) { w.Cut() },
		"the stream is lost": func(_ *world, st *link.Stream) { st.Abort() },
		"an error":           func(_ *world, st *link.Stream) { _ = st.Fail(protocol.Errorf(protocol.CodeInternal, "no")) },
		"no such session":    func(_ *world, st *link.Stream) { _ = st.Fail(protocol.Errorf(protocol.CodeSessionNotFound, "no")) },
		"a wrong answer":     func(_ *world, st *link.Stream) { _ = st.Send(wire.OK{}) },
		"no answer":          func(_ *world, st *link.Stream) { _, _ = st.Next() }, // until the proxy cancels the wait
	} {
		for how, request := range starts(nil) {
			if name == "no answer" && how == "reopen" {
				continue // it takes the whole time-out
			}
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld(t, nil)
				w.Answer(func(st *link.Stream, m protocol.Message) {
					if _, ok := m.(*wire.Wait); ok {
						answer(w, st)
						return
					}
					reply, _ := child(nil)(m)
					_ = st.Send(reply)
				})
				c := w.client()
				c.send(request)
				if m := expect[*api.Spawned](c); m.SessionID != "s" {
					t.Errorf("received %+v", m)
				}
				if len(w.Requests("forget")) > 0 {
					t.Error("the session was removed")
				}
			})
		}
	}
}

// The check ends with the child, and not at the end of the window.
// demand: K1
func TestCheckIsEventDriven(t *testing.T) {
	w := newWorld(t, nil)
	w.Reply(child(&someExit))
	c := w.client()
	begun := time.Now()
	c.send(starts(new(int64(60_000)))["new"])
	c.wantError(protocol.CodeExitedEarly)
	if took := time.Since(begun); took > soonish {
		t.Errorf("the spawn took %v", took)
	}
}

// A spawn with invalid arguments is refused without a request to the supervisor.
// demand: R1
func TestSpawnRefused(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	for name, request := range map[string]protocol.Message{
		"a window too long":    starts(new(int64(60_001)))["new"],
		"the same, reopened":   starts(new(int64(60_001)))["reopen"],
		"a window out of this": starts(new(int64(1 << 62)))["new"],
	} {
		c.send(request)
		if e := c.wantError(protocol.CodeInvalidArgument); e.RequestID != "r" {
			t.Errorf("%s: received %+v", name, e)
		}
	}
	if asked := w.Requests(); len(asked) > 0 {
		t.Errorf("the supervisor received %v", asked)
	}

	// An error of the supervisor is passed on with its cause.
	w.Reply(func(protocol.Message) (protocol.Message, error) {
		return nil, &protocol.Error{Code: protocol.CodeSpawnFailed, Cause: protocol.CodePTYExhausted, Retryable: true}
	})
	c.send(starts(nil)["new"])
	if e := c.wantError(protocol.CodeSpawnFailed); e.Cause != protocol.CodePTYExhausted || !e.Retryable {
		t.Errorf("received %+v", e)
	}
	if len(w.Requests("wait")) > 0 {
		t.Error("a session that does not exist was watched")
	}
	w.Reply(func(protocol.Message) (protocol.Message, error) { return wire.OK{}, nil })
	c.send(starts(nil)["new"])
	c.wantError(protocol.CodeInternal)
}

// A session whose child ended early is being removed while its client is moved to the next proxy. That proxy must not
// repeat the spawn, because it would not find the session, and would run the command again.
func TestMoveWhileRemoved(t *testing.T) {
	for how, request := range map[string]protocol.Message{
		"new":    api.Spawn{Request: req("r"), SessionID: "s", Token: "t", SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}},
		"reopen": api.Reopen{Request: req("r"), SessionID: "s", Token: "t"},
	} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, nil)
			frozen := make(chan []*Frozen, 1)
			w.Reply(func(m protocol.Message) (protocol.Message, error) {
				if _, ok := m.(*wire.Forget); ok {
					conns := w.server.allConns()
					w.wg.Go(func() {
						_, _ = w.server.Freeze(context.Background(), 12, func(all []*Frozen) error { frozen <- all; return nil })
					})
					<-conns[0].life.reached(phasePausing) // the requests to be repeated are recorded
				}
				return child(&someExit)(m)
			})
			c := w.client()
			c.send(request)
			all := testkit.Within(t, patience, "the connection is frozen", frozen)
			if repeated := all[0].Record.Requests; len(repeated) > 0 {
				t.Errorf("the next proxy repeats %s", repeated)
			} else {
				c.wantError(protocol.CodeExitedEarly)
			}
			w.server.Forget()
		})
	}
}
