package crowd

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// A stage is a host with one session, which the test plays, and its viewers.
type stage struct {
	t     *testing.T
	table *Table
	wg    sync.WaitGroup

	mu      sync.Mutex
	conns   []net.Conn    // the host's ends of the connections, in the order in which they were made
	refuses bool          // the host answers an attach with an error
	held    chan struct{} // if it is not nil, dial returns when it is closed
}

// watched begins a stage on which two viewers share the output.
func watched(t *testing.T) (*stage, []*guest) {
	t.Helper()
	s := &stage{t: t, table: New(zerolog.Nop())}
	all := []*guest{s.enter(), s.enter()}
	time.Sleep(slowPause)
	if n := s.table.Stats().Viewers; n != len(all) {
		t.Fatalf("%d viewers share the output", n)
	}
	return s, all
}

// shared returns the host's end of the last connection, which is the shared one on a watched stage.
func (s *stage) shared() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

// end returns when everything has ended. The guests must have left.
func (s *stage) end() {
	synctest.Wait()
	s.table.Wait()
	s.mu.Lock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// dial connects with the host, which answers each request.
func (s *stage) dial() (net.Conn, error) {
	near, far := net.Pipe()
	s.mu.Lock()
	s.conns = append(s.conns, far)
	held, refuses := s.held, s.refuses
	s.mu.Unlock()
	if held != nil {
		<-held
	}
	s.wg.Go(func() {
		for frames := frame.NewReader(far, frame.Max); ; {
			raw, err := frames.NextRaw()
			if err != nil {
				return
			}
			var reply protocol.Message
			switch m := decode(raw).(type) {
			case *api.Hello:
				reply = api.Welcome{}
			case *api.Attach:
				if refuses {
					reply = api.Error{Request: m.Request, Error: *protocol.Errorf(protocol.CodeLimitExceeded, "too many viewers")}
					break
				}
				reply = api.Attached{Request: m.Request, Attachment: m.Attachment, AttachInfo: protocol.AttachInfo{
					Session: protocol.SessionInfo{ID: m.SessionID, Size: protocol.Size{Cols: 80, Rows: 24}}, Replay: protocol.ReplayExact,
				}}
			case *api.Detach:
				reply = api.Detached{Request: m.Request, Attachment: m.Attachment}
			case *api.List:
				reply = api.Sessions{Request: m.Request}
			}
			if reply != nil && send(far, reply) != nil {
				return
			}
		}
	})
	return near, nil
}

// A guest is the client of a viewer.
type guest struct {
	*stage
	conn   net.Conn
	frames *frame.Reader
}

// enter lets a read-only viewer attach.
func (s *stage) enter() *guest {
	s.t.Helper()
	conn, far := net.Pipe()
	host, _ := s.dial()
	s.wg.Go(func() {
		s.table.Serve(Visit{Client: far, FromClient: far, ToClient: far, Host: host, Name: "x", Dial: s.dial, Close: func(c net.Conn) {
			if c == nil {
				s.t.Error("the connection that is closed is nil")
				return
			}
			_ = c.Close()
		}})
	})
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	g := &guest{s, conn, frame.NewReader(conn, frame.Max)}
	g.say(api.Hello{Protocol: protocol.Supported(), Client: "guest"})
	hears[*api.Welcome](g)
	g.say(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "play", Mode: protocol.ModeReadOnly, Cols: 80, Rows: 24}})
	hears[*api.Attached](g)
	return g
}

func (g *guest) say(m protocol.Message) {
	g.t.Helper()
	testkit.Must(g.t, send(g.conn, m))
}

// hears returns the next message of the guest, which must be a T.
func hears[T protocol.Message](g *guest) (m T) {
	g.t.Helper()
	raw, err := g.frames.NextRaw()
	if err != nil {
		g.t.Fatalf("instead of a %T: %v", m, err)
	}
	m, ok := decode(raw).(T)
	if !ok {
		g.t.Fatalf("instead of a %T: %q", m, raw)
	}
	return m
}

// A viewer that shares the output of a session receives one answer to each detach, also if the session has just ended, and
// also if it needs a connection of its own afterwards.
func TestDetach(t *testing.T) {
	for _, isEnded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, all := watched(t)
			if isEnded {
				testkit.Must(t, send(s.shared(), api.PTYExited{SessionID: "play"}))
			}
			for _, g := range all {
				if isEnded {
					hears[*api.PTYExited](g)
				}
			}
			for i, g := range all {
				for _, id := range []string{"first", "second"}[:i+1] {
					g.say(api.Detach{Request: protocol.Request{RequestID: id}, Attachment: 1})
					if m := hears[*api.Detached](g); m.RequestID != id {
						t.Errorf("the answer is %+v", m)
					}
				}
				g.say(api.List{Request: protocol.Request{RequestID: "list"}})
				hears[*api.Sessions](g)
				_ = g.conn.Close()
			}
			s.end()
		})
	}
}

// A viewer that shares the output of a session receives the answer to a ping, and goes on sharing. However often it
// sends one, it waits for output once, and not at all when it has left.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := watched(t)
		for range 10 {
			for _, g := range all {
				g.say(api.Ping{Request: protocol.Request{RequestID: "p"}})
				if m := hears[*api.OK](g); m.RequestID != "p" {
					t.Errorf("the answer is %+v", m)
				}
			}
		}
		if n := s.table.Stats().Viewers; n != len(all) {
			t.Errorf("%d viewers share the output", n)
		}
		for i, g := range all {
			synctest.Wait()
			for _, c := range s.table.crowds {
				if n := len(c.parked); n != len(all)-i {
					t.Errorf("%d viewers of %d wait for output", n, len(all)-i)
				}
			}
			_ = g.conn.Close()
		}
		s.end()
	})
}

// If a viewer cannot return to a connection of its own, because the host refuses it or because the client leaves meanwhile,
// the connection of the viewer ends, and nothing else.
func TestReturnFails(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, all := watched(t)
			held := make(chan struct{})
			shared := s.shared()
			s.mu.Lock()
			s.held, s.refuses = held, !leaves
			s.mu.Unlock()
			_ = shared.Close()
			synctest.Wait() // the viewers make connections of their own
			for _, g := range all {
				if leaves {
					_ = g.conn.Close()
				}
			}
			synctest.Wait()
			close(held)
			for _, g := range all {
				if raw, err := g.frames.NextRaw(); err == nil {
					t.Errorf("the viewer receives %q", raw)
				}
				_ = g.conn.Close()
			}
			s.end()
		})
	}
}
