// Package fakelink is the supervisor's end of the link, for tests of programs that connect to a
// supervisor. It accepts links, and a function of the test answers each request.
//
// Invariant: after the test no goroutine and no descriptor of a Supervisor remains.
//
// Not here: sessions. A test that needs one makes it of the answers to the requests. The tests of
// package link itself use no fake.
package fakelink

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// A Supervisor is the supervisor's end of any number of links. Its methods may be called from any
// goroutine.
type Supervisor struct {
	Path string // of its socket

	t  testing.TB
	wg sync.WaitGroup

	mu        sync.Mutex
	hello     link.Welcomer
	answer    func(*link.Stream, protocol.Message)
	ln        *net.UnixListener
	conns     map[*link.Conn]struct{}
	linkCount int
	requests  []protocol.Message
	isDown    bool
	isOver    bool
}

// New returns a Supervisor that does not listen yet. It answers each request with OK. It ends with
// the test, which must not have begun any goroutine before.
func New(t testing.TB) *Supervisor {
	t.Helper()
	testkit.CheckLeaks(t)
	s := &Supervisor{Path: filepath.Join(testkit.Dir(t), "s"), t: t, conns: make(map[*link.Conn]struct{})}
	s.Welcome(wire.Welcome{PID: 7, Version: "1", Instance: "life"})
	s.Answer(func(st *link.Stream, _ protocol.Message) { _ = st.Send(wire.OK{}) })
	t.Cleanup(s.Close)
	return s
}

// Hello sets the function that answers the hello of each later link.
func (s *Supervisor) Hello(answer link.Welcomer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hello = answer
}

// Welcome sets the welcome of each later link.
func (s *Supervisor) Welcome(m wire.Welcome) {
	s.Hello(func(*wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) { return m, nil, nil })
}

// Answer sets the function that answers each later request. It is called in a goroutine of the
// stream, and the stream is closed when it returns.
func (s *Supervisor) Answer(answer func(st *link.Stream, request protocol.Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Reply is Answer for requests that have one reply each.
func (s *Supervisor) Reply(reply func(request protocol.Message) (protocol.Message, error)) {
	s.Answer(func(st *link.Stream, request protocol.Message) {
		m, err := reply(request)
		if err != nil {
			_ = st.Fail(err)
			return
		}
		_ = st.Send(m)
	})
}

// Requests returns the requests so far: all, or those of the given types.
func (s *Supervisor) Requests(types ...string) []protocol.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(m protocol.Message) bool {
		return len(types) > 0 && !slices.Contains(types, m.MessageType())
	})
}

// LinkCount returns the number of hellos so far.
func (s *Supervisor) LinkCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.linkCount
}

// Listen accepts links on the socket at Path, which must not exist.
func (s *Supervisor) Listen() {
	s.t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: s.Path})
	if err != nil {
		s.t.Error(err)
		return
	}
	ln.SetUnlinkOnClose(false)
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

// Dial connects to the socket. It fails after SetDown(true).
func (s *Supervisor) Dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	isDown := s.isDown
	s.mu.Unlock()
	if isDown {
		return nil, errors.New("the test has made the supervisor unreachable")
	}
	return new(net.Dialer).DialContext(ctx, "unix", s.Path)
}

// Pipe connects without a socket, so that a test can run in a bubble of testing/synctest.
func (s *Supervisor) Pipe(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	s.wg.Go(func() { s.serve(far) })
	return near, nil
}

func (s *Supervisor) serve(nc net.Conn) {
	c, _, err := link.Accept(nc, func(m *wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
		s.mu.Lock()
		s.linkCount++
		hello := s.hello
		s.mu.Unlock()
		return hello(m)
	}, zerolog.Nop())
	if err != nil {
		return
	}
	s.add(c)
	for {
		st, err := c.Accept()
		if err != nil {
			break
		}
		s.wg.Go(func() { s.serveStream(st) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// add registers a link, and closes it if the Supervisor has ended meanwhile.
func (s *Supervisor) add(c *link.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	if s.isOver {
		_ = c.Close()
	}
}

func (s *Supervisor) serveStream(st *link.Stream) {
	defer st.Abort()
	request, err := st.Receive()
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	answer := s.answer
	s.mu.Unlock()
	answer(st, request)
}

// Cut closes all links. The Supervisor accepts new ones.
func (s *Supervisor) Cut() {
	s.mu.Lock()
	var all []*link.Conn
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// Stop stops listening and closes all links, as the death of a supervisor does: the socket's file
// remains.
func (s *Supervisor) Stop() {
	s.mu.Lock()
	if s.ln != nil {
		_ = s.ln.Close()
	}
	s.mu.Unlock()
	s.Cut()
}

// SetDown makes Dial fail, and closes all links, or makes Dial succeed again. The error of Dial
// proves nothing about the supervisor.
func (s *Supervisor) SetDown(isDown bool) {
	s.mu.Lock()
	s.isDown = isDown
	s.mu.Unlock()
	if isDown {
		s.Cut()
	}
}

// Close ends the Supervisor, and returns when its goroutines have ended. A test may call it before
// its end.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.isOver = true
	s.mu.Unlock()
	s.Stop()
	s.wg.Wait()
}
