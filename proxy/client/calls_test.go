package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// Each call sends its request, and returns the reply.
// demand: K6 R2 R3
func TestCalls(t *testing.T) {
	testkit.CheckLeaks(t)
	_, c, p := dialed(t)
	ctx := t.Context()
	content := protocol.ScreenContent{Lines: []string{"a", "b"}, Offset: 7, Truncated: true}
	status := protocol.ProcessStatus{PID: 7}
	tests := []struct {
		name   string
		call   func() (any, error)
		want   request
		answer interface {
			protocol.Message
			SetID(string)
		}
		got any // nil if the call returns only an error
	}{
		{name: "reopen", want: &api.Reopen{SessionID: "s", RespawnSpec: protocol.RespawnSpec{Cwd: "/tmp"}, EarlyExitMS: new(int64(0))},
			call:   func() (any, error) { return c.Reopen(ctx, "s", protocol.RespawnSpec{Cwd: "/tmp"}, new(time.Duration)) },
			answer: &api.Spawned{SessionID: "s", PID: 3, Session: session}, got: &Spawned{SessionID: "s", PID: 3, Session: session}},
		{name: "screen", want: &api.Screen{ScreenSpec: protocol.ScreenSpec{SessionID: "s", Format: "cells", Lines: 2, Scrollback: -1, Skip: 3, NonEmpty: true}},
			call: func() (any, error) {
				return c.Screen(ctx, "s", ScreenOptions{Format: "cells", Lines: 2, Scrollback: -1, Skip: 3, NonEmpty: true})
			},
			answer: &api.ScreenContent{ScreenContent: content}, got: &content},
		{name: "resize", want: &api.Resize{SessionID: "s", Cols: 5, Rows: 6},
			call: func() (any, error) { return nil, c.Resize(ctx, "s", 5, 6) }, answer: &api.OK{}},
		{name: "signal", want: &api.Signal{SessionID: "s", Signal: "USR1"},
			call: func() (any, error) { return nil, c.Signal(ctx, "s", "USR1") }, answer: &api.OK{}},
		{name: "interrupt", want: &api.Interrupt{SessionID: "s"},
			call: func() (any, error) { return nil, c.Interrupt(ctx, "s") }, answer: &api.OK{}},
		{name: "forget", want: &api.Forget{SessionID: "s"},
			call: func() (any, error) { return nil, c.Forget(ctx, "s") }, answer: &api.OK{}},
		{name: "status", want: &api.Status{},
			call:   func() (any, error) { return c.Status(ctx) },
			answer: &api.StatusReport{Proxy: status}, got: &Status{Proxy: status}},
		{name: "ticket", want: &api.Ticket{SessionID: "s"},
			call:   func() (any, error) { return c.Ticket(ctx, "s") },
			answer: &api.TicketIssued{Ticket: "t"}, got: "t"},
		{name: "share", want: &api.Share{SessionID: "s", TTLMS: 60000},
			call:   func() (any, error) { url, _, err := c.Share(ctx, "s", time.Minute); return url, err },
			answer: &api.Shared{URL: "u"}, got: "u"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wait := start(t, tt.call)
			asked := p.next().(request)
			if r, ok := asked.(*api.Reopen); ok && r.Token == "" {
				t.Error("the request has no token, so it cannot be repeated")
			} else if ok {
				r.Token = ""
			}
			tt.want.SetID(asked.(interface{ ID() string }).ID())
			equal(t, "asked", asked, tt.want)
			p.answer(asked.(interface{ ID() string }), tt.answer)
			got, err := wait()
			testkit.Must(t, err)
			if tt.got != nil {
				equal(t, "got", got, tt.got)
			}

			wait = start(t, tt.call)
			p.answer(p.next().(interface{ ID() string }), &api.Error{Error: *protocol.ErrSessionNotFound})
			_, err = wait()
			wantErr(t, "refused", err, protocol.ErrSessionNotFound)
		})
	}
}

// A request to proxies that close each connection is repeated ever more rarely. If none answers the hello any more, it fails
// after Redial.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connections atomic.Int64
		var refuses atomic.Bool
		o := piped(func(nc net.Conn) {
			defer nc.Close()
			connections.Add(1)
			p := &peer{Conn: nc, t: t, r: frame.NewReader(nc, frame.Max)}
			if _, ok := p.next().(*api.Hello); ok && !refuses.Load() && p.write(p.control(welcome(nil))) == nil {
				p.next()
			}
		})
		o.Redial = 10 * time.Second
		c, err := Dial(t.Context(), o)
		testkit.Must(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.List(ctx, ""); err == nil || time.Minute/time.Duration(connections.Load()) < backoffMax/2 {
			t.Errorf("%v after %d connections in a minute", err, connections.Load())
		}

		refuses.Store(true)
		begun := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = c.List(ctx, "")
		wantErr(t, "no proxy answers", err, ErrConnect)
		if took := time.Since(begun); took > o.Redial+backoffMax {
			t.Errorf("it was tried for %v", took)
		}
	})
}

// Type fails if a proxy answers that it has accepted none of the input, or more than that, because Type would not end, or input
// would be lost.
func TestTypeWithoutProgress(t *testing.T) {
	_, c, p := dialed(t)
	for _, offset := range []uint64{0, 4, 1 << 63} {
		line := protocol.Error{Code: protocol.CodeLineTooLong, Offset: &offset}
		for _, answer := range []interface {
			protocol.Message
			SetID(string)
		}{&api.Accepted{Offset: offset}, &api.Error{Error: line}} {
			wait := startErr(t, func() error { return c.Type(t.Context(), "s", []byte("abc")) })
			p.answer(want[*api.Input](p), answer)
			wantErr(t, fmt.Sprintf("%s with offset %d", answer.MessageType(), offset), wait(), ErrDecode)
		}
	}
}

// A call returns soon after its context is done, also if the proxy does not read the request. Then a later request uses another
// connection.
func TestCancelledSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connections atomic.Int64
		c, err := Dial(t.Context(), piped(func(nc net.Conn) {
			p := &peer{Conn: nc, t: t, r: frame.NewReader(nc, frame.Max)}
			if _, ok := p.next().(*api.Hello); !ok || p.write(p.control(welcome(nil))) != nil || connections.Add(1) == 1 {
				return // it does not read the first connection any more
			}
			if m, ok := p.next().(*api.List); ok {
				p.answer(m, &api.Sessions{})
			}
			p.next()
			_ = p.Close()
		}))
		testkit.Must(t, err)
		defer c.Close()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = c.List(ctx, "")
		wantErr(t, "list", err, context.DeadlineExceeded)
		if took := time.Since(begun); took > 5*time.Second+stuckTime {
			t.Errorf("the call took %v", took)
		}
		if _, err := c.List(t.Context(), ""); err != nil {
			t.Errorf("a later request: %v", err)
		}
	})
}

// Replies may come in any order, and each reaches its call. A reply that no call waits for is dropped.
func TestAnswersInAnyOrder(t *testing.T) {
	testkit.CheckLeaks(t)
	_, c, p := dialed(t)
	const n = 30
	var wg sync.WaitGroup
	for i := range n {
		id := protocol.SessionID(fmt.Sprint("s", i))
		wg.Go(func() {
			info, err := c.SessionInfo(t.Context(), id)
			if err != nil || info.ID != id {
				t.Errorf("%s: got %+v, %v", id, info, err)
			}
		})
	}
	var asked []*api.Info
	for range n {
		asked = append(asked, want[*api.Info](p))
	}
	p.answer(protocol.Request{RequestID: "nobody"}, &api.OK{})
	p.send(api.OK{}, api.Goaway{Reason: "soon"}, api.Event{Seq: 1})
	_ = p.write(frame.AppendData(nil, frame.Output, 1, 0, []byte("x")))
	_ = p.write(frame.Append(nil, frame.Control, []byte(`{"type":"tomorrow","request_id":"1"}`)))
	for i := range asked {
		m := asked[len(asked)-1-i]
		p.answer(m, &api.Session{Session: protocol.SessionInfo{ID: m.SessionID}})
	}
	wg.Wait()
}

// A call whose context ends does not disturb other calls, even if its reply comes later.
func TestCancelledCall(t *testing.T) {
	testkit.CheckLeaks(t)
	_, c, p := dialed(t)
	ctx, cancel := context.WithCancel(t.Context())
	wait := startErr(t, func() error { _, err := c.SessionInfo(ctx, "s"); return err })
	m := want[*api.Info](p)
	cancel()
	wantErr(t, "given up", wait(), context.Canceled)
	p.answer(m, &api.Session{Session: session})
	wait = startErr(t, func() error { return c.Forget(t.Context(), "s") })
	p.answer(want[*api.Forget](p), &api.OK{})
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// An attach or a subscription that is given up before it is answered must return the error of its context, by which
// the commands recognise a signal.
func TestGiveUpConnections(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Client) error{
		"attach": func(ctx context.Context, c *Client) error {
			_, err := c.Attach(ctx, "s", AttachOptions{})
			return err
		},
		"subscribe": func(ctx context.Context, c *Client) error {
			_, err := c.Events(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, c, _ := dialed(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := startErr(t, func() error { return call(ctx, c) })
			f.accept().next()
			cancel()
			wantErr(t, "given up", wait(), context.Canceled)
		})
	}
}

// Close ends every call that waits.
func TestCloseEndsCalls(t *testing.T) {
	testkit.CheckLeaks(t)
	_, c, p := dialed(t)
	info := startErr(t, func() error { _, err := c.SessionInfo(t.Context(), "s"); return err })
	want[*api.Info](p)
	wait := startErr(t, func() error { _, err := c.Wait(t.Context(), "s", -1); return err })
	want[*api.Wait](p)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Logf("Close: %v", err)
	}
	wantErr(t, "info", info(), ErrIO)
	wantErr(t, "wait", wait(), ErrIO)
}

// A closed client makes no connection for a new attachment or subscription.
func TestClosedClientConnectsNowhere(t *testing.T) {
	testkit.CheckLeaks(t)
	f := newFake(t, welcome)
	o := f.options()
	var dials atomic.Int32
	open := o.Dial
	o.Dial = func(ctx context.Context) (net.Conn, error) {
		if dials.Add(1) > 1 {
			return nil, protocol.Errorf(protocol.CodeUnauthorized, "a second connection") // it is not tried again
		}
		return open(ctx)
	}
	c, err := Dial(t.Context(), o)
	testkit.Must(t, err)
	f.accept()
	_ = c.Close()
	for name, call := range map[string]func() error{
		"attach":       func() error { _, err := c.Attach(t.Context(), "s", AttachOptions{}); return err },
		"events":       func() error { _, err := c.Events(t.Context()); return err },
		"events after": func() error { _, err := c.EventsAfter(t.Context(), 1); return err },
	} {
		wantErr(t, name, call(), ErrIO)
		wantErr(t, name, call(), net.ErrClosed)
	}
	equal(t, "connections", dials.Load(), int32(1))
}

// A reply that cannot be decoded is an ErrDecode, and not an error of the proxy.
// demand: R8
func TestGarbageIsNoAnswer(t *testing.T) {
	for name, raw := range map[string][]byte{
		"no JSON": frame.Append(nil, frame.Control, []byte("?")), "a length of 0": make([]byte, 4),
		"4 GiB": {255, 255, 255, 255, 0}, "a short frame": frame.Append(nil, frame.Output, []byte("short")),
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLeaks(t)
			_, a, p := view(t)
			_ = p.write(raw)
			m := receive(t, a)
			var answer *protocol.Error
			if m.Kind != Failed || !errors.Is(m.Err, ErrDecode) || errors.As(m.Err, &answer) {
				t.Errorf("got %+v, %v", m, answer)
			}
		})
	}
}

// If a session is reopened between two parts of its output, Output begins again with the new instance.
// demand: K6
func TestOutputOfAnotherLife(t *testing.T) {
	_, c, p := dialed(t)
	var offset uint64
	wait := start(t, func() (data []byte, err error) {
		data, offset, err = c.Output(t.Context(), "s")
		return data, err
	})
	answer := func(asked uint64, part api.ScrollbackData) {
		t.Helper()
		m := want[*api.Scrollback](p)
		equal(t, "asked", m.Offset, asked)
		p.answer(m, &part)
	}
	answer(0, api.ScrollbackData{Instance: "one", End: 9, Data: []byte("abc")})
	answer(3, api.ScrollbackData{Instance: "two", Offset: 3, End: 5, Data: []byte("de")})
	answer(0, api.ScrollbackData{Instance: "two", End: 5, Data: []byte("new")})
	answer(3, api.ScrollbackData{Instance: "two", Offset: 3, End: 5, Data: []byte("de")})
	if data, err := wait(); err != nil || string(data) != "newde" || offset != 0 {
		t.Errorf("got %q at %d, %v", data, offset, err)
	}
}

// Long input is sent in several parts, each of them once.
func TestTypeMuch(t *testing.T) {
	_, c, p := dialed(t)
	text := make([]byte, 700<<10)
	wait := startErr(t, func() error { return c.Type(t.Context(), "s", text) })
	var at uint64
	writer := ""
	for pieces := 0; at < uint64(len(text)); pieces++ {
		m := want[*api.Input](p)
		if m.Offset != at || len(m.Data) == 0 || pieces > 0 && m.Writer != writer {
			t.Fatalf("got %d bytes at %d of %q, want them at %d of %q", len(m.Data), m.Offset, m.Writer, at, writer)
		}
		writer = m.Writer
		at += uint64(len(m.Data))
		p.answer(m, &api.Accepted{Offset: at})
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
	wait = startErr(t, func() error { return c.Type(t.Context(), "s", []byte("x")) })
	m := want[*api.Input](p)
	if m.Writer == writer {
		t.Error("two calls use the same writer")
	}
	p.answer(m, &api.Error{Error: *protocol.ErrSessionExited})
	wantErr(t, "typed after the end", wait(), protocol.ErrSessionExited)
}

// A request that is too large is refused by the client, and the connection stays usable.
func TestTooLarge(t *testing.T) {
	_, c, p := dialed(t)
	_, err := c.Spawn(t.Context(), SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{string(make([]byte, frame.Max))}}})
	if protocol.CodeOf(err) != protocol.CodeFrameTooLarge {
		t.Errorf("got %v, want frame_too_large", err)
	}
	wait := startErr(t, func() error { return c.Forget(t.Context(), "s") })
	p.answer(want[*api.Forget](p), &api.OK{})
	if err := wait(); err != nil {
		t.Error(err)
	}
}
