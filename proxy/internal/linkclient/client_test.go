package linkclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// If no supervisor runs, one is started, once for all concurrent callers.
// demand: S3
func TestStart(t *testing.T) {
	for _, tt := range []struct {
		name string
		dead func(t *testing.T, s *supervisor) // what an earlier supervisor has left
	}{
		{name: "no socket", dead: func(*testing.T, *supervisor) {}},
		{name: "a socket of a dead supervisor", dead: func(t *testing.T, s *supervisor) {
			s.Listen()
			s.Stop()
			if _, err := os.Stat(s.Path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t)
			tt.dead(t, s)
			var tries atomic.Int64
			cfg := Config{Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported()} }, Log: zerolog.Nop()}
			var starts atomic.Int64
			cfg.Start = func(context.Context) error { starts.Add(1); return nil } // the supervisor listens some time after its start
			cfg.Dial = func(ctx context.Context) (net.Conn, error) {
				if tries.Add(1) == 5 {
					_ = os.Remove(s.Path)
					s.Listen()
				}
				return s.Dial(ctx)
			}
			c := New(cfg)
			defer c.Close()
			conns := make(chan *link.Conn, 20)
			for range cap(conns) {
				go func() {
					conn, err := c.Conn(testkit.Soon(t))
					if err != nil {
						t.Error(err)
					}
					conns <- conn
				}()
			}
			first := <-conns
			for range cap(conns) - 1 {
				if conn := <-conns; conn != first {
					t.Error("another link")
				}
			}
			if starts.Load() != 1 || s.LinkCount() != 1 || tries.Load() != 5 {
				t.Errorf("%d starts, %d links and %d tries, want 1, 1 and 5", starts.Load(), s.LinkCount(), tries.Load())
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	s := newSupervisor(t)
	c, d := s.client(func(int) error { return errors.New("no such program") })
	_, err := c.Conn(testkit.Soon(t))
	wantCode(t, "Conn", err, protocol.CodeSupervisorUnreachable)
	if err != nil && !strings.Contains(err.Error(), "no such program") {
		t.Errorf("the error does not have the reason: %v", err)
	}
	if tries, starts := d.get(); tries != 1 || starts != 1 {
		t.Errorf("%d tries and %d starts", tries, starts)
	}

	c, d = s.client(nil)
	_, err = c.Conn(testkit.Soon(t))
	wantCode(t, "Conn, that may start none", err, protocol.CodeSupervisorUnreachable)
	if e := protocol.AsError(err); !e.Retryable {
		t.Errorf("%+v is not retryable", e)
	}
	if tries, _ := d.get(); tries != 1 {
		t.Errorf("%d tries", tries)
	}
}

// Without support for terminals no supervisor is started, and the error is not retryable.
// demand: M14
func TestUnsupportedOS(t *testing.T) {
	tries := 0
	c := New(Config{
		Dial: func(context.Context) (net.Conn, error) {
			tries++
			return nil, fmt.Errorf("dial: %w", protocol.Errorf(protocol.CodeUnsupportedOS, "no terminals here"))
		},
		Start: func(context.Context) error { t.Error("started one"); return nil },
		Log:   zerolog.Nop(),
	})
	defer c.Close()
	for range 2 {
		_, err := c.Call(testkit.Soon(t), wire.Status{})
		wantCode(t, "Call", err, protocol.CodeUnsupportedOS)
		if e := protocol.AsError(err); e.Retryable {
			t.Errorf("%+v is retryable", e)
		}
	}
	if tries != 2 || c.Linked() {
		t.Errorf("%d tries for two calls, linked %v", tries, c.Linked())
	}
}

// If a supervisor runs, none is started, and one link serves all callers.
// demand: S3
func TestConnect(t *testing.T) {
	s, c := running(t)
	if c.Welcome() != nil {
		t.Error("Welcome is set before the first link")
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if reply, err := c.Call(testkit.Soon(t), wire.Status{}); err != nil || reply.MessageType() != "ok" {
				t.Errorf("%v, %v", reply, err)
			}
		})
	}
	wg.Wait()
	if s.LinkCount() != 1 {
		t.Errorf("%d links", s.LinkCount())
	}
	if w := c.Welcome(); w == nil || w.PID != 7 || w.Instance != "life" {
		t.Errorf("the welcome is %+v", w)
	}
}

// If a supervisor cannot be reached now, the client tries again and starts none: a busy socket shows that the
// supervisor lives.
func TestBackoff(t *testing.T) {
	s := newSupervisor(t)
	s.Listen()
	tries := 0
	c := New(Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			if tries++; tries <= 5 {
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EAGAIN)}
			}
			return s.Dial(ctx)
		},
		Start: func(context.Context) error { t.Error("started"); return nil },
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported()} },
		Log:   zerolog.Nop(),
	})
	defer c.Close()
	if _, err := c.Conn(testkit.Soon(t)); err != nil || tries != 6 {
		t.Errorf("%v after %d tries", err, tries)
	}

	tries = -1 << 30
	c = New(Config{Dial: c.cfg.Dial, Start: c.cfg.Start, Hello: c.cfg.Hello, Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Conn(ctx)
	wantCode(t, "Conn, given up", err, protocol.CodeSupervisorUnreachable)
}

// Errors that waiting does not solve are returned at once. The supervisor is neither restarted nor ended, because it
// has sessions.
// demand: S13
func TestRefused(t *testing.T) {
	for _, want := range []protocol.Code{protocol.CodeProtocolMismatch, protocol.CodeUnauthorized} {
		t.Run(string(want), func(t *testing.T) {
			s := newSupervisor(t)
			s.Hello(func(h *wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
				return wire.Welcome{}, nil, &protocol.Error{Code: want, Local: &protocol.VersionRange{Min: 5, Max: 7}, Remote: &h.Protocol}
			})
			s.Listen()
			c, d := s.client(func(int) error { return nil })
			for i := range 3 {
				_, err := c.Call(testkit.Soon(t), wire.Status{})
				wantCode(t, "Call", err, want)
				if e := protocol.AsError(err); e.Local == nil || e.Local.Max != 7 {
					t.Errorf("the error lacks the ranges: %+v", e)
				}
				if tries, starts := d.get(); tries != i+1 || starts != 0 {
					t.Errorf("%d tries and %d starts", tries, starts)
				}
			}
		})
	}
}

// A link that is cut is made again by the next call. A call in progress that must not be repeated fails with
// supervisor_unreachable, which is retryable.
func TestRedial(t *testing.T) {
	s, c := running(t)
	asked := make(chan struct{})
	hold := make(chan struct{})
	s.Answer(func(st *link.Stream, request protocol.Message) {
		if _, ok := request.(*wire.Signal); ok {
			close(asked)
			<-hold
			return
		}
		_ = st.Send(wire.OK{})
	})
	done := make(chan error, 1)
	go func() { _, err := c.Call(testkit.Soon(t), wire.Signal{}); done <- err }()
	<-asked
	s.Cut()
	err := testkit.Within(t, soonish, "the call returns", done)
	wantCode(t, "Call over a link that is cut", err, protocol.CodeSupervisorUnreachable)
	if e := protocol.AsError(err); !e.Retryable || e.RetryAfterMS == 0 {
		t.Errorf("%+v", e)
	}
	close(hold)
	if _, err := c.Call(testkit.Soon(t), wire.Status{}); err != nil {
		t.Error(err)
	}
	if s.LinkCount() != 2 {
		t.Errorf("%d links, want 2", s.LinkCount())
	}
}

// If several calls wait for a link, the one that makes it may be canceled. Another one then makes it.
func TestMakerGivesUp(t *testing.T) {
	s := newSupervisor(t)
	busy, dialing := make(chan struct{}), make(chan struct{}, 1)
	c := New(Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			select {
			case dialing <- struct{}{}:
			default:
			}
			select {
			case <-busy:
				return s.Dial(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported()} },
		Log:   zerolog.Nop(),
	})
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := c.Conn(ctx); first <- err }()
	<-dialing
	waiting, stop := context.WithCancel(context.Background())
	third := make(chan error, 1)
	go func() { _, err := c.Conn(testkit.Soon(t)); second <- err }()
	go func() { _, err := c.Conn(waiting); third <- err }()
	stop()
	wantCode(t, "Conn that waits, canceled", testkit.Within(t, soonish, "the call returns", third), protocol.CodeSupervisorUnreachable)
	cancel()
	wantCode(t, "Conn that dials, canceled", testkit.Within(t, soonish, "the call returns", first), protocol.CodeSupervisorUnreachable)
	s.Listen()
	close(busy)
	if err := testkit.Within(t, patience, "the other gets a link", second); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	s, c := running(t)
	conn, err := c.Conn(testkit.Soon(t))
	testkit.Must(t, err)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	testkit.Within(t, soonish, "the link ends", conn.Done())
	_, err = c.Call(testkit.Soon(t), wire.Status{})
	wantCode(t, "Call", err, protocol.CodeSupervisorUnreachable)
	if s.LinkCount() != 1 {
		t.Errorf("%d links", s.LinkCount())
	}

	// A link that is made while the client closes is closed.
	dialing, goOn := make(chan struct{}), make(chan struct{})
	cfg := c.cfg
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context) (net.Conn, error) { close(dialing); <-goOn; return dial(ctx) }
	c = New(cfg)
	done := make(chan error, 1)
	go func() { _, err := c.Conn(testkit.Soon(t)); done <- err }()
	<-dialing
	c.Close()
	close(goOn)
	wantCode(t, "Conn", testkit.Within(t, soonish, "the call returns", done), protocol.CodeSupervisorUnreachable)
}

// Errors of the supervisor are returned unchanged, and so are those of the context.
func TestErrors(t *testing.T) {
	s, c := running(t)
	s.Answer(func(st *link.Stream, request protocol.Message) {
		if _, ok := request.(*wire.Forget); ok {
			_ = st.Fail(&protocol.Error{Code: protocol.CodeSessionExited, Exit: &protocol.ExitRecord{ExitCode: 3}})
			return
		}
		_, _ = st.Next() // until the caller cancels
	})
	_, err := c.Call(testkit.Soon(t), wire.Forget{})
	if e := protocol.AsError(err); e.Code != protocol.CodeSessionExited || e.Exit == nil || e.Exit.ExitCode != 3 {
		t.Errorf("the supervisor's error was returned as %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { _, err := c.Call(ctx, wire.Wait{}); done <- err }()
	cancel()
	if err := testkit.Within(t, soonish, "Call returns", done); !errors.Is(err, context.Canceled) && protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable {
		t.Errorf("Call: %v", err)
	}
}

func TestList(t *testing.T) {
	s, c := running(t)
	all := make([]protocol.SessionInfo, 500)
	for i := range all {
		all[i] = protocol.SessionInfo{ID: protocol.SessionID(fmt.Sprint("s", i)), Argv: []string{strings.Repeat("x", 2000)}}
	}
	var cut atomic.Bool
	s.Answer(func(st *link.Stream, request protocol.Message) {
		if m, ok := request.(*wire.List); !ok || m.Originator != "me" {
			t.Errorf("asked %+v", request)
		}
		if cut.Load() {
			_ = st.Send(wire.Sessions{Sessions: all[:1], More: true})
			return
		}
		_ = st.SendSessions(all)
	})
	got, err := c.List(testkit.Soon(t), "me")
	if err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("%d sessions, %v", len(got), err)
	}
	cut.Store(true)
	got, err = c.List(testkit.Soon(t), "me")
	wantCode(t, "a list without its end", err, protocol.CodeSupervisorUnreachable)
	if got != nil {
		t.Errorf("%d sessions were returned although the list failed", len(got))
	}
}

func TestStatus(t *testing.T) {
	s, c := running(t)
	want := protocol.ProcessStatus{PID: 7, Sessions: 3}
	s.Answer(func(st *link.Stream, _ protocol.Message) { _ = st.Send(wire.StatusReport{Supervisor: want}) })
	if got, err := c.Status(testkit.Soon(t)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	// A wrong reply is an internal error.
	s.Answer(func(st *link.Stream, _ protocol.Message) { _ = st.Send(wire.OK{}) })
	_, err := c.Status(testkit.Soon(t))
	wantCode(t, "status", err, protocol.CodeInternal)
	_, err = c.List(testkit.Soon(t), "")
	wantCode(t, "list", err, protocol.CodeInternal)
	_, _, err = c.Attach(testkit.Soon(t), 1, protocol.AttachSpec{SessionID: "s"})
	wantCode(t, "attach", err, protocol.CodeInternal)
	_, _, err = c.Subscribe(testkit.Soon(t), "", 0)
	wantCode(t, "events", err, protocol.CodeInternal)
}
