package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"
	"weak"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// demand: R1
func TestSpawn(t *testing.T) {
	_, c, p := dialed(t)
	if _, err := c.Spawn(t.Context(), SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{}}}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("empty argv: got %v, want invalid_argument", err)
	}
	for _, spec := range []protocol.SpawnSpec{
		{Argv: []string{"rm", "a\xffb"}}, {Argv: []string{"rm"}, Cwd: "/a\xff"}, {Argv: []string{"rm"}, Env: []string{"A=\xff"}},
	} { // JSON would name another file
		if _, err := c.Spawn(t.Context(), SpawnRequest{SpawnSpec: spec}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			t.Errorf("%+v: got %v, want invalid_argument", spec, err)
		}
		change := protocol.RespawnSpec{Argv: spec.Argv, Cwd: spec.Cwd, Env: spec.Env}
		if _, err := c.Reopen(t.Context(), "s", change, nil); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			t.Errorf("reopen with %+v: got %v, want invalid_argument", change, err)
		}
	}
	if _, err := c.Attach(t.Context(), "s", AttachOptions{Env: []string{"DISPLAY=\xff"}}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("attach: got %v, want invalid_argument", err)
	}
	spec := protocol.SpawnSpec{
		Argv: []string{"sh", "-c", "true"}, Cwd: "/", Env: []string{"A=b"}, ClearInheritedEnv: true,
		Rows: 24, Cols: 80, Originator: "o",
	}
	early := 3 * time.Millisecond
	wait := start(t, func() (*Spawned, error) {
		return c.Spawn(t.Context(), SpawnRequest{ID: "s", SpawnSpec: spec, EarlyExit: &early})
	})
	m := want[*api.Spawn](p) // the refused requests were not sent
	equal(t, "spec", m.SpawnSpec, spec)
	equal(t, "early exit", *m.EarlyExitMS, int64(3))
	created := time.Unix(1_700_000_000, 0).UTC()
	p.answer(m, &api.Spawned{SessionID: "s", PID: 41, CreatedAt: created, Session: session})
	got, err := wait()
	testkit.Must(t, err)
	equal(t, "spawned", *got, Spawned{SessionID: "s", PID: 41, CreatedAt: created, Session: session})
}

// A spawn whose reply was lost is repeated with the same id and token, so that it starts one session only.
// demand: R1
func TestSpawnIsRepeated(t *testing.T) {
	f, c, p := dialed(t)
	wait := start(t, func() (*Spawned, error) {
		return c.Spawn(t.Context(), SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{"sh"}}})
	})
	first := want[*api.Spawn](p)
	_ = p.Close()
	p = f.accept()
	second := want[*api.Spawn](p)
	if first.Token == "" || first.SessionID == "" {
		t.Errorf("got %+v, want a token and an id", first)
	}
	equal(t, "token", second.Token, first.Token)
	equal(t, "id", second.SessionID, first.SessionID)
	p.answer(second, &api.Spawned{SessionID: second.SessionID})
	if got, err := wait(); err != nil || got.SessionID != first.SessionID {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestRepeats checks that a request whose reply was lost is repeated only if the table of requests
// permits it.
func TestRepeats(t *testing.T) {
	for _, tt := range []struct {
		name     string
		call     func(*Client) error
		repeated bool
	}{
		{"rename", func(c *Client) error { _, err := c.Rename(t.Context(), "s", "x"); return err }, true},
		{"freeze", func(c *Client) error { return c.Freeze(t.Context(), "s") }, true},
		{"terminate", func(c *Client) error { return c.Terminate(t.Context(), "s", End{}) }, false},
		{"forget", func(c *Client) error { return c.Forget(t.Context(), "s") }, false},
		{"forget", func(c *Client) error { return c.ForgetFailed(t.Context(), "s", "i") }, false},
		{"signal", func(c *Client) error { return c.Signal(t.Context(), "s", "USR1") }, false},
	} {
		f, c, p := dialed(t)
		wait := startErr(t, func() error { return tt.call(c) })
		equal(t, "first", p.next().MessageType(), tt.name)
		_ = p.Close()
		if !tt.repeated {
			wantErr(t, tt.name, wait(), ErrIO)
			continue
		}
		equal(t, "second", f.accept().next().MessageType(), tt.name)
	}
}

// A deaf connection accepts no bytes, and ends when the client writes.
type deaf struct{ net.Conn }

func (d deaf) Write([]byte) (int, error) { return 0, errors.Join(io.ErrClosedPipe, d.Conn.Close()) }

// TestUnsentIsSent checks that a request that could not be sent is sent on the next connection, even if its row
// forbids repeats.
func TestUnsentIsSent(t *testing.T) {
	f, c, _ := dialed(t)
	c.mu.Lock()
	c.conn.Conn = deaf{c.conn.Conn}
	c.mu.Unlock()
	wait := startErr(t, func() error { return c.Signal(t.Context(), "s", "USR1") })
	p := f.accept()
	p.answer(want[*api.Signal](p), &api.OK{})
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// A request is not repeated if its answer is invalid, because the next answer would be, too.
func TestInvalidAnswerIsFinal(t *testing.T) {
	f, c, p := dialed(t)
	wait := start(t, func() ([]protocol.SessionInfo, error) { return c.List(t.Context(), "") })
	want[*api.List](p)
	_ = p.write([]byte{0xff, 0xff, 0xff, 0xff, 0}) // a frame above the limit
	_, err := wait()
	wantErr(t, "list", err, ErrDecode)

	wait = start(t, func() ([]protocol.SessionInfo, error) { return c.List(t.Context(), "") })
	p = f.accept()
	p.answer(want[*api.List](p), &api.Sessions{})
	if _, err := wait(); err != nil {
		t.Errorf("a later request: %v", err)
	}
}

// A list comes in parts, and begins again if the connection is lost between two parts.
// demand: R2
func TestList(t *testing.T) {
	f, c, p := dialed(t)
	wait := start(t, func() ([]protocol.SessionInfo, error) { return c.List(t.Context(), "me") })
	m := want[*api.List](p)
	equal(t, "originator", m.Originator, "me")
	info := func(id protocol.SessionID) protocol.SessionInfo {
		return protocol.SessionInfo{ID: id, Argv: []string{}}
	}
	a, b, d := info("a"), info("b"), info("d")
	p.answer(m, &api.Sessions{Sessions: []protocol.SessionInfo{a}, More: true})
	_ = p.Close()
	p = f.accept()
	m = want[*api.List](p)
	p.answer(m, &api.Sessions{Sessions: []protocol.SessionInfo{a}, More: true})
	p.answer(m, &api.Sessions{Sessions: []protocol.SessionInfo{b}, More: true})
	p.answer(m, &api.Sessions{Sessions: []protocol.SessionInfo{d}})
	got, err := wait()
	testkit.Must(t, err)
	equal(t, "list", got, []protocol.SessionInfo{a, b, d})

	labels := map[string]string{"team": "core"}
	a.Labels = map[string]string{"team": "core", "title": "A"}
	wait = start(t, func() ([]protocol.SessionInfo, error) {
		return c.ListBy(t.Context(), ListFilter{Originator: "me", Labels: labels})
	})
	m = want[*api.List](p)
	equal(t, "list", *m, api.List{Request: m.Request, Originator: "me", Labels: labels})
	p.answer(m, &api.Sessions{Sessions: []protocol.SessionInfo{a}})
	if got, err = wait(); err != nil {
		t.Fatal(err)
	}
	equal(t, "list by labels", got, []protocol.SessionInfo{a})

	wait = start(t, func() ([]protocol.SessionInfo, error) { return c.List(t.Context(), "") })
	p.answer(want[*api.List](p), &api.OK{})
	_, err = wait()
	wantErr(t, "answered by ok", err, ErrDecode)
}

// demand: R3
func TestTerminate(t *testing.T) {
	_, c, p := dialed(t)
	grace := 70 * time.Millisecond
	wait := startErr(t, func() error {
		return c.Terminate(t.Context(), "s", End{Grace: &grace, SoftSignal: "TERM", Reason: "done"})
	})
	m := want[*api.Terminate](p)
	ms := int64(70)
	equal(t, "terminate", *m, api.Terminate{Request: m.Request, SessionID: "s", GraceMS: &ms, SoftSignal: "TERM", Reason: "done"})
	p.answer(m, &api.OK{}) // the end is scheduled, and the session still runs
	if err := wait(); err != nil {
		t.Error(err)
	}
	wait = startErr(t, func() error { return c.Terminate(t.Context(), "s", End{}) })
	m = want[*api.Terminate](p)
	equal(t, "zero", *m, api.Terminate{Request: m.Request, SessionID: "s"})
	p.answer(m, &api.Error{Error: *protocol.ErrSessionExited})
	wantErr(t, "an ended session", wait(), protocol.ErrSessionExited)
}

// demand: K6
func TestSessionInfo(t *testing.T) {
	_, c, p := dialed(t)
	wait := start(t, func() (*protocol.SessionInfo, error) { return c.SessionInfo(t.Context(), "s") })
	m := want[*api.Info](p)
	equal(t, "id", m.SessionID, protocol.SessionID("s"))
	p.answer(m, &api.Session{Session: session})
	got, err := wait()
	testkit.Must(t, err)
	equal(t, "info", *got, session)
}

// The lines of a screen come in as many parts as necessary, newest first.
// demand: K6
func TestScrollback(t *testing.T) {
	_, c, p := dialed(t)
	wait := start(t, func() ([]string, error) { return c.Scrollback(t.Context(), "s") })
	for _, part := range []struct {
		skip  int
		lines []string
		more  bool
	}{{0, []string{"d", "e"}, true}, {2, []string{"c"}, true}, {3, []string{"a", "b"}, false}} {
		m := want[*api.Screen](p)
		equal(t, "asked", m.ScreenSpec, protocol.ScreenSpec{SessionID: "s", Scrollback: protocol.AllScrollback, Skip: part.skip})
		p.answer(m, &api.ScreenContent{ScreenContent: protocol.ScreenContent{Lines: part.lines, Truncated: part.more}})
	}
	got, err := wait()
	testkit.Must(t, err)
	equal(t, "lines", got, []string{"a", "b", "c", "d", "e"})
}

func TestOutput(t *testing.T) {
	type part struct {
		asked, offset, end uint64
		data               string
	}
	tests := []struct {
		name   string
		parts  []part
		want   string
		offset uint64
	}{
		{name: "nothing", parts: []part{{}}},
		{name: "in parts", parts: []part{{0, 0, 6, "abc"}, {3, 3, 6, "de"}, {5, 5, 6, "f"}}, want: "abcdef"},
		{name: "the ring forgot", parts: []part{{0, 100, 103, "abc"}}, want: "abc", offset: 100},
		{name: "output continues", parts: []part{{0, 0, 3, "ab"}, {2, 2, 4, "cd"}}, want: "abcd"},
		{name: "overtaken", parts: []part{{0, 0, 9, "abc"}, {3, 5, 9, "fg"}, {7, 7, 9, "hi"}}, want: "fghi", offset: 5},
		{name: "overtaken at last", parts: []part{{0, 0, 9, "abc"}, {3, 9, 9, ""}}, offset: 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c, p := dialed(t)
			var offset uint64
			wait := start(t, func() (data []byte, err error) {
				data, offset, err = c.Output(t.Context(), "s")
				return data, err
			})
			for _, part := range tt.parts {
				m := want[*api.Scrollback](p)
				equal(t, "asked", m.Offset, part.asked)
				p.answer(m, &api.ScrollbackData{Offset: part.offset, End: part.end, Data: []byte(part.data)})
			}
			data, err := wait()
			if err != nil || string(data) != tt.want || offset != tt.offset {
				t.Errorf("got %q at %d, %v, want %q at %d", data, offset, err, tt.want, tt.offset)
			}
		})
	}
}

// The four kinds of failure can be distinguished, whatever caused them.
// demand: R8
func TestFailures(t *testing.T) {
	kinds := []error{ErrConnect, ErrIO, ErrDecode, protocol.ErrSessionNotFound}
	raw := func(kind frame.Kind, s string) func(*peer, *api.Info) {
		return func(p *peer, _ *api.Info) { _ = p.write(frame.Append(nil, kind, []byte(s))) }
	}
	tests := []struct {
		name  string
		reply func(*peer, *api.Info)
		want  error
	}{
		{name: "server", want: protocol.ErrSessionNotFound, reply: func(p *peer, m *api.Info) {
			p.answer(m, &api.Error{Error: *protocol.ErrSessionNotFound})
		}},
		{name: "closed", want: ErrIO, reply: func(p *peer, _ *api.Info) { _ = p.Close() }},
		{name: "closed within a frame", want: ErrIO, reply: func(p *peer, _ *api.Info) {
			_ = p.write([]byte{0, 0, 0, 9, 0, '{'})
			_ = p.Close()
		}},
		{name: "no JSON", want: ErrDecode, reply: raw(frame.Control, "?")},
		{name: "a length of 0", want: ErrDecode, reply: func(p *peer, _ *api.Info) { _ = p.write(make([]byte, 4)) }},
		{name: "a length over the maximum", want: ErrDecode, reply: func(p *peer, _ *api.Info) { _ = p.write([]byte{0, 16, 0, 1, 0}) }},
		{name: "another answer", want: ErrDecode, reply: func(p *peer, m *api.Info) { p.answer(m, &api.OK{}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, welcome)
			o := f.options()
			conn, err := dial(t.Context(), &o)
			testkit.Must(t, err)
			p := f.accept()
			wait := start(t, func() (protocol.Message, error) {
				if err := conn.send(api.Info{SessionID: "s"}); err != nil {
					return nil, err
				}
				m, err := conn.receive()
				if e, ok := m.(*api.Error); ok {
					return nil, &e.Error
				}
				if m != nil {
					return nil, failed(ErrDecode, errors.New(m.MessageType()))
				}
				return m, err
			})
			tt.reply(p, want[*api.Info](p))
			_, err = wait()
			for _, kind := range kinds {
				if got := errors.Is(err, kind); got != (kind == tt.want) {
					t.Errorf("%v is %v: got %t", err, kind, got)
				}
			}
		})
	}
}

// The errors of public methods for each kind of failure.
// demand: R8
func TestFailuresOfCalls(t *testing.T) {
	nobody := errors.New("no proxy runs")
	_, err := Dial(t.Context(), Options{Dial: func(context.Context) (net.Conn, error) { return nil, nobody }})
	wantErr(t, "connect", err, ErrConnect)
	wantErr(t, "connect", err, nobody)

	_, c, p := dialed(t)
	wait := startErr(t, func() error { return c.Interrupt(t.Context(), "s") }) // an interrupt is never repeated
	want[*api.Interrupt](p)
	_ = p.Close()
	wantErr(t, "i/o", wait(), ErrIO)

	_, c, p = dialed(t)
	wait = startErr(t, func() error { return c.Forget(t.Context(), "s") })
	p.answer(want[*api.Forget](p), &api.Status{})
	wantErr(t, "decode", wait(), ErrDecode)

	wait = startErr(t, func() error { return c.Forget(t.Context(), "s") })
	p.answer(want[*api.Forget](p), &api.Error{Error: protocol.Error{Code: protocol.CodeSessionRunning, Message: "it runs"}})
	err = wait()
	var answer *protocol.Error
	if !errors.As(err, &answer) || answer.Code != protocol.CodeSessionRunning || answer.Message != "it runs" {
		t.Errorf("server: got %v", err)
	}

	_ = c.Close()
	_, err = c.Status(t.Context())
	wantErr(t, "after Close", err, net.ErrClosed)
	wantErr(t, "type after Close", startErr(t, func() error { return c.Type(t.Context(), "s", []byte("x")) })(), net.ErrClosed)
}

// demand: R8
func TestHello(t *testing.T) {
	f := newFake(t, welcome)
	o := f.options()
	o.Token, o.Secret = "t", "x"
	c, err := Dial(t.Context(), o)
	testkit.Must(t, err)
	got := f.accept().hello
	equal(t, "hello", *got, api.Hello{Protocol: protocol.Supported(), Client: "tester", PID: got.PID, Token: "t", Secret: "x"})
	equal(t, "pid", c.ProxyPID(), 7)

	refusals := []struct {
		name   string
		answer protocol.Message
		want   error
	}{
		{name: "unauthorized", answer: api.Error{Error: *protocol.ErrUnauthorized}, want: protocol.ErrUnauthorized},
		{name: "no common version", want: &protocol.Error{Code: protocol.CodeProtocolMismatch},
			answer: api.Welcome{Protocol: protocol.VersionRange{Min: 98, Max: 99}}},
	}
	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, func(*api.Hello) protocol.Message { return tt.answer })
			_, err := start(t, func() (*Client, error) { return Dial(t.Context(), f.options()) })()
			wantErr(t, "dial", err, tt.want)
		})
	}
}

// A dial whose context ends during the hello returns the context's error, and not that of a broken connection.
func TestDialGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	defer close(over)
	f := newFake(t, func(*api.Hello) protocol.Message { cancel(); <-over; return nil })
	_, err := start(t, func() (*Client, error) { return Dial(ctx, f.options()) })()
	wantErr(t, "dial", err, context.Canceled)
	if errors.Is(err, ErrIO) {
		t.Errorf("dial: %v", err)
	}
}

// Await is repeated with the same mark if the connection or the link is lost. An await for a text without a mark has that of its
// beginning.
func TestAwaitAsksAgain(t *testing.T) {
	f, c, p := dialed(t)
	spec := protocol.AwaitSpec{SessionID: "s", Text: "x", Since: []byte("mark")}
	await := start(t, func() (*protocol.AwaitedInfo, error) { return c.Await(t.Context(), spec, time.Hour) })
	want[*api.Await](p)
	_ = p.Close()
	p = f.accept()
	p.answer(want[*api.Await](p), &api.Error{Error: unreachable})
	m := want[*api.Await](p)
	if m.TimeoutMS == nil || *m.TimeoutMS > time.Hour.Milliseconds() || !reflect.DeepEqual(m.AwaitSpec, spec) {
		t.Errorf("asked %+v", m)
	}
	p.answer(m, &api.Awaited{AwaitedInfo: protocol.AwaitedInfo{Line: "xy"}})
	if got, err := await(); err != nil || got.Line != "xy" {
		t.Errorf("got %+v, %v", got, err)
	}
	spec.Since = nil
	await = start(t, func() (*protocol.AwaitedInfo, error) { return c.Await(t.Context(), spec, -1) })
	p.answer(want[*api.Mark](p), &api.Marked{MarkInfo: protocol.MarkInfo{Mark: []byte("mark"), Inclusive: []byte("all")}})
	want[*api.Await](p)
	_ = p.Close()
	p = f.accept()
	m = want[*api.Await](p)
	if string(m.Since) != "all" {
		t.Errorf("asked %+v, want the inclusive mark of the beginning", m)
	}
	p.answer(m, &api.Awaited{AwaitedInfo: protocol.AwaitedInfo{Line: "x"}})
	if got, err := await(); err != nil || got.Line != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err := c.Await(t.Context(), protocol.AwaitSpec{SessionID: "s", Text: "("}, -1)
	wantErr(t, "no pattern", err, &protocol.Error{Code: protocol.CodeInvalidArgument})
	mark := start(t, func() (*protocol.MarkInfo, error) { return c.Mark(t.Context(), "s") })
	p.answer(want[*api.Mark](p), &api.Marked{MarkInfo: protocol.MarkInfo{Mark: []byte("mark")}})
	if got, err := mark(); err != nil || string(got.Mark) != "mark" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Wait is repeated if the connection or the link is lost.
func TestWaitAsksAgain(t *testing.T) {
	f, c, p := dialed(t)
	wait := start(t, func() (*protocol.ExitRecord, error) { return c.Wait(t.Context(), "s", -1) })
	if m := want[*api.Wait](p); m.TimeoutMS != nil {
		t.Errorf("got timeout %d, want none", *m.TimeoutMS)
	}
	_ = p.Close()
	p = f.accept()
	p.answer(want[*api.Wait](p), &api.Error{Error: unreachable})
	p.answer(want[*api.Wait](p), &api.Waited{SessionID: "s", Exit: protocol.ExitRecord{ExitCode: 3}})
	if got, err := wait(); err != nil || got.ExitCode != 3 {
		t.Errorf("got %+v, %v, want code 3", got, err)
	}
	wait = start(t, func() (*protocol.ExitRecord, error) { return c.Wait(t.Context(), "s", time.Hour) })
	m := want[*api.Wait](p)
	if m.TimeoutMS == nil || *m.TimeoutMS <= 0 || *m.TimeoutMS > time.Hour.Milliseconds() {
		t.Errorf("got timeout %v, want an hour at most", m.TimeoutMS)
	}
	p.answer(m, &api.Error{Error: *protocol.ErrTimeout})
	_, err := wait()
	wantErr(t, "timeout", err, protocol.ErrTimeout)
}

// The timeout of a wait also ends it if the proxy or the supervisor does not answer, or if there is no proxy any more.
func TestWaitWithoutAnswer(t *testing.T) {
	_, c, p := dialed(t)
	c.answerTime = time.Millisecond
	_, err := c.Wait(t.Context(), "s", time.Millisecond)
	wantErr(t, "wait without an answer", err, protocol.ErrTimeout)
	_, err = c.Await(t.Context(), protocol.AwaitSpec{SessionID: "s", Text: "x"}, 0)
	wantErr(t, "await without an answer", err, protocol.ErrTimeout)
	_ = p.Close()
	_, err = c.Wait(t.Context(), "s", 0)
	wantErr(t, "wait without a connection", err, protocol.ErrTimeout)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Wait(ctx, "s", time.Hour)
	wantErr(t, "wait that the caller gave up", err, context.Canceled)
}

// Type continues if the session's input queue was full. After a lost connection it sends the same input with the same
// writer and offset.
func TestTypeGoesOn(t *testing.T) {
	f, c, p := dialed(t)
	wait := startErr(t, func() error { return c.Type(t.Context(), "s", []byte("abcdef")) })
	first := want[*api.Input](p)
	check := func(m *api.Input, offset uint64, data string) {
		t.Helper()
		if m.Writer == "" || m.Writer != first.Writer || m.Offset != offset || string(m.Data) != data {
			t.Errorf("got %q at %d of %q, want %q at %d of %q", m.Data, m.Offset, m.Writer, data, offset, first.Writer)
		}
	}
	check(first, 0, "abcdef")
	two := uint64(2)
	p.answer(first, &api.Error{Error: protocol.Error{Code: protocol.CodeInputFull, Offset: &two}})
	check(want[*api.Input](p), 2, "cdef")
	_ = p.Close()
	p = f.accept()
	m := want[*api.Input](p)
	check(m, 2, "cdef")
	p.answer(m, &api.Error{Error: unreachable})
	m = want[*api.Input](p)
	check(m, 2, "cdef")
	p.answer(m, &api.Accepted{Offset: 6})
	if err := wait(); err != nil {
		t.Error(err)
	}
}

// A subscription resumes after the last event that was read.
func TestEventsResume(t *testing.T) {
	f, c, _ := dialed(t)
	wait := start(t, func() (*Events, error) { return c.Events(t.Context()) })
	p := f.accept()
	m := want[*api.Events](p)
	equal(t, "first", *m, api.Events{Request: m.Request})
	p.answer(m, &api.Subscribed{Instance: "v", Seq: 10})
	e, err := wait()
	testkit.Must(t, err)
	next := func() *Event {
		t.Helper()
		got, err := start(t, e.Next)()
		testkit.Must(t, err)
		return got
	}
	p.send(api.Event{Seq: 11, Event: protocol.EventCreated, Session: &session}, api.PTYExited{Seq: 12, SessionID: "s", ExitCode: 4, ExitedAt: time.Unix(1000, 0)})
	_ = p.write([]byte{0, 0, 0, 50, 0, '{'}) // and half of another event
	if got := next(); got.Seq != 11 || got.Event != protocol.EventCreated || got.Session.ID != "s" {
		t.Errorf("got %+v", got)
	}
	if got := next(); got.Seq != 12 || got.Event != protocol.EventExited || got.Exit.ExitCode != 4 || !got.At.Equal(time.Unix(1000, 0)) {
		t.Errorf("got %+v", got)
	}
	_ = p.Close()
	third := start(t, e.Next)
	for _, refusal := range []protocol.Error{unreachable, {Code: protocol.CodePolicyUnavailable, Retryable: true}} {
		p = f.accept()
		m = want[*api.Events](p)
		equal(t, "again", *m, api.Events{Request: m.Request, Instance: "v", After: 12})
		p.answer(m, &api.Error{Error: refusal})
	}
	p = f.accept()
	m = want[*api.Events](p)
	equal(t, "once more", *m, api.Events{Request: m.Request, Instance: "v", After: 12})
	p.answer(m, &api.Subscribed{Instance: "v", Seq: 12})
	p.send(api.Event{Seq: 13, Event: protocol.EventMissed, Missed: 2})
	if got, err := third(); err != nil || got.Seq != 13 || got.Missed != 2 {
		t.Errorf("got %+v, %v", got, err)
	}

	other := start(t, e.Next) // a supervisor of another instance, whose events have other numbers
	_ = p.Close()
	p = f.accept()
	p.answer(want[*api.Events](p), &api.Subscribed{Instance: "w", Seq: 3})
	if got, err := other(); err != nil || got.Seq != 3 || got.Event != protocol.EventMissed || got.Missed != 0 {
		t.Errorf("got %+v, %v", got, err)
	}

	last := start(t, e.Next)
	_ = p.Close()
	p = f.accept()
	m = want[*api.Events](p)
	equal(t, "with the new instance", *m, api.Events{Request: m.Request, Instance: "w", After: 3})
	// It is not answered, because the client closes while it reconnects.
	_ = e.Close()
	_, err = last()
	wantErr(t, "after Close", err, io.EOF)
}

// A subscription keeps no connection in memory that another one has replaced. A program may stay subscribed for months.
func TestEventsDropConnections(t *testing.T) {
	f, c, _ := dialed(t)
	wait := start(t, func() (*Events, error) { return c.EventsAfter(t.Context(), 4) })
	answer := func() *peer {
		t.Helper()
		p := f.accept()
		p.answer(want[*api.Events](p), &api.Subscribed{Instance: "v", Seq: 4})
		return p
	}
	answer()
	p := answer()
	e, err := wait()
	testkit.Must(t, err)
	defer e.Close()
	var replaced []weak.Pointer[conn]
	for seq := uint64(5); seq < 8; seq++ {
		replaced = append(replaced, weak.Make(e.conn))
		_ = p.Close()
		next := start(t, e.Next)
		p = answer()
		p.send(api.Event{Seq: seq, Event: protocol.EventCreated, Session: &session})
		if got, err := next(); err != nil || got.Seq != seq {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	for i, old := range replaced {
		testkit.Eventually(t, patience, func() bool { runtime.GC(); return old.Value() == nil }, fmt.Sprintf("connection %d, which another one has replaced, is no longer in memory", i))
	}
}

// A client that has entered a host through a gate gets no link, and asks for none.
func TestShareThroughGate(t *testing.T) {
	t.Parallel()
	c := &Client{o: Options{Gate: &GateOptions{Host: "red"}}}
	if url, _, err := c.Share(t.Context(), "s", 0); protocol.CodeOf(err) != protocol.CodeUnsupported || url != "" {
		t.Errorf("the link is %q, %v", url, err)
	}
}
