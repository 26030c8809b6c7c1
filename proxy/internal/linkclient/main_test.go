package linkclient

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// patience is how long a test waits for what must come; soonish is far below
// every time-out of ours, for what must not wait for one.
const (
	patience = 30 * time.Second
	soonish  = 5 * time.Second
)

// A supervisor is the fake at the other end of the wire. It answers each
// request by answer, in a goroutine of the stream, and then closes the stream.
type supervisor struct {
	t     testing.TB
	path  string
	hello link.Welcomer
	wg    sync.WaitGroup

	mu     sync.Mutex
	answer func(st *link.Stream, request protocol.Message)
	ln     net.Listener
	conns  map[*link.Conn]struct{}
	links  int // begun so far
	asked  []protocol.Message
}

// newSupervisor returns one that does not listen yet.
func newSupervisor(t testing.TB) *supervisor {
	t.Helper()
	testkit.CheckLeaks(t)
	s := &supervisor{
		t: t, path: filepath.Join(testkit.Dir(t), "s"), conns: map[*link.Conn]struct{}{},
		answer: func(st *link.Stream, _ protocol.Message) { _ = st.Send(wire.OK{}) },
	}
	s.hello = func(*wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
		return wire.Welcome{PID: 7, Version: "1", Instance: "life"}, nil, nil
	}
	t.Cleanup(func() { s.stop(); s.wg.Wait() })
	return s
}

// answers says how requests are answered from now on.
func (s *supervisor) answers(how func(st *link.Stream, request protocol.Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = how
}

// heard is what was asked so far.
func (s *supervisor) heard() []protocol.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *supervisor) start() {
	s.t.Helper()
	ln, err := net.Listen("unix", s.path)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	s.ln = ln
	s.mu.Unlock()
	s.wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.serve(nc) })
		}
	})
}

func (s *supervisor) serve(nc net.Conn) {
	c, _, err := link.Accept(nc, func(m *wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
		s.mu.Lock()
		s.links++
		s.mu.Unlock()
		return s.hello(m)
	}, zerolog.Nop())
	if err != nil {
		return
	}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	for {
		st, err := c.Accept()
		if err != nil {
			break
		}
		s.wg.Go(func() {
			defer st.Abort()
			request, err := st.Receive()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.asked = append(s.asked, request)
			answer := s.answer
			s.mu.Unlock()
			answer(st, request)
		})
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// cut ends every link; the supervisor lives on.
func (s *supervisor) cut() {
	s.mu.Lock()
	var all []*link.Conn
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// stop is the supervisor's death, which leaves the socket as it is.
func (s *supervisor) stop() {
	s.mu.Lock()
	if s.ln != nil {
		s.ln.(*net.UnixListener).SetUnlinkOnClose(false)
		s.ln.Close()
	}
	s.mu.Unlock()
	s.cut()
}

func (s *supervisor) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links
}

// dials counts what a client does to reach its supervisor.
type dials struct {
	mu            sync.Mutex
	tries, starts int
}

func (d *dials) get() (tries, starts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries, d.starts
}

// client returns a client that starts the supervisor by start, where given.
func (s *supervisor) client(start func(try int) error) (*Client, *dials) {
	d := &dials{}
	cfg := Config{
		Dial: func(ctx context.Context) (net.Conn, error) {
			d.mu.Lock()
			d.tries++
			d.mu.Unlock()
			return new(net.Dialer).DialContext(ctx, "unix", s.path)
		},
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported(), PID: 8, Instance: "proxy"} },
		Log:   zerolog.Nop(),
	}
	if start != nil {
		cfg.Start = func(context.Context) error {
			d.mu.Lock()
			d.starts++
			n := d.starts
			d.mu.Unlock()
			return start(n)
		}
	}
	c := New(cfg)
	s.t.Cleanup(func() { c.Close() })
	return c, d
}

// running returns a supervisor that listens, and a client of it that must not
// start another.
func running(t testing.TB) (*supervisor, *Client) {
	t.Helper()
	s := newSupervisor(t)
	s.start()
	c, d := s.client(func(int) error { return errors.New("started") })
	t.Cleanup(func() {
		if _, starts := d.get(); starts > 0 {
			t.Error("a supervisor was started, and one was running")
		}
	})
	return s, c
}

// wantCode checks an error by its code, "" for none.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
