package shadow

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/link"
	"holdfast/shared/testkit/fakelink"
)

// patience is the time after which a test fails if an expected event does not come.
const patience = 30 * time.Second

// A supervisor is a fake at the other end of the link. It has sessions, which only shadows can attach to.
type supervisor struct {
	*fakelink.Supervisor
	t testing.TB

	mu       sync.Mutex
	sessions []*session
	stalled  bool // the list is announced as longer, and its next part never comes
	asked    []wire.Attach
	hold     chan struct{} // if it is not nil, attaches wait for it
	waiting  int           // number of attaches that wait
	most     int           // the most that have waited at a time
}

// A session has some output. Its screen is all of it, with its size.
type session struct {
	id       protocol.SessionID
	instance protocol.Instance
	state    protocol.State
	size     protocol.Size
	printed  []byte
	start    uint64           // start of the ring
	full     bool             // an attach is refused
	silent   bool             // the snapshot does not come
	cut      bool             // the attachment ends within the snapshot
	skips    bool             // output has a gap
	overtake bool             // the ring overtakes the viewer
	attached func(s *session) // called at each attach, before it is answered
}

func some(id string, printed string) *session {
	return &session{
		id: protocol.SessionID(id), instance: protocol.Instance(id + "-life"), state: protocol.StateRunning,
		size: protocol.Size{Cols: 80, Rows: 24}, printed: []byte(printed),
	}
}

func (s *session) info() protocol.SessionInfo {
	return protocol.SessionInfo{
		ID: s.id, Instance: s.instance, State: s.state, Size: s.size, OutputOffset: uint64(len(s.printed)), RingStart: s.start,
	}
}

// screen returns the content of a snapshot of s.
func (s *session) screen() []byte { return fmt.Appendf(nil, "%v %s", s.size, s.printed) }

// ask returns a request for a view of the screen.
func (s *session) ask() Ask { return Ask{Session: s.id, Instance: s.instance} }

func newSupervisor(t testing.TB, sessions ...*session) *supervisor {
	t.Helper()
	s := &supervisor{Supervisor: fakelink.New(t), t: t, sessions: sessions}
	s.Answer(s.answer)
	s.Listen()
	return s
}

// change calls how with the lock held.
func (s *supervisor) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

func (s *supervisor) answer(st *link.Stream, request protocol.Message) {
	switch m := request.(type) {
	case *wire.List:
		s.list(st)
	case *wire.Attach:
		s.attach(st, m)
	}
	for { // until the proxy closes the stream
		if _, err := st.Next(); err != nil {
			return
		}
	}
}

func (s *supervisor) list(st *link.Stream) {
	s.mu.Lock()
	part := wire.Sessions{Sessions: []protocol.SessionInfo{}, More: s.stalled}
	for _, ss := range s.sessions {
		part.Sessions = append(part.Sessions, ss.info())
	}
	s.mu.Unlock()
	_ = st.Send(part)
}

func (s *supervisor) attach(st *link.Stream, m *wire.Attach) {
	s.mu.Lock()
	s.asked = append(s.asked, *m)
	s.waiting++
	s.most = max(s.most, s.waiting)
	hold := s.hold
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	for _, ss := range s.sessions {
		if ss.id == m.SessionID {
			if ss.attached != nil {
				ss.attached(ss)
			}
			if err := ss.show(st, m); err != nil {
				_ = st.Fail(err)
			}
			return
		}
	}
	_ = st.Fail(protocol.Errorf(protocol.CodeSessionNotFound, "no such session"))
}

func (s *session) show(st *link.Stream, m *wire.Attach) error {
	info := protocol.AttachInfo{Session: s.info(), Replay: protocol.ReplayExact}
	end := uint64(len(s.printed))
	switch r := m.Resume; {
	case !m.Shadow || m.Mode != protocol.ModeReadOnly || m.History == nil || *m.History != 0 || m.Writer != "":
		return protocol.Errorf(protocol.CodeInvalidArgument, "this is no shadow of a screen")
	case s.full:
		return protocol.Errorf(protocol.CodeLimitExceeded, "it is full")
	case s.state == protocol.StateExited && r == nil:
		return protocol.Errorf(protocol.CodeSessionExited, "it has exited")
	case r != nil && r.Instance != s.instance:
		return protocol.Errorf(protocol.CodeInstanceMismatch, "another life")
	case r != nil && r.Offset > end:
		return protocol.Errorf(protocol.CodeInvalidArgument, "not printed yet")
	case r != nil && r.Offset >= s.start:
		info.Offset = r.Offset
	default:
		info.Replay, info.Offset, info.SnapshotBytes = protocol.ReplaySnapshot, end, len(s.screen())
	}
	_ = st.Send(wire.Attached{AttachInfo: info})
	if s.silent {
		return nil
	}
	_ = st.Send(wire.Resized{Cols: 1, Rows: 1}) // a message that a shadow ignores
	_ = st.SendRaw(frame.Append(nil, 99, []byte("from the future")))
	if s.cut {
		_ = st.SendRaw(frame.AppendData(nil, frame.Snapshot, m.Attachment, info.Offset, s.screen()[:1]))
		_ = st.Close()
		return nil
	}
	if info.SnapshotBytes > 0 {
		shot := s.screen()
		_ = st.SendRaw(frame.AppendData(nil, frame.Snapshot, m.Attachment, info.Offset, shot[:len(shot)/2]))
		_ = st.SendRaw(frame.AppendData(nil, frame.Snapshot, m.Attachment, info.Offset, shot[len(shot)/2:]))
	}
	for at := info.Offset; at < end; { // in pieces that do not depend on the requested range
		p := s.printed[at:min(end, at+1000)]
		_ = st.SendRaw(frame.AppendData(nil, frame.Output, m.Attachment, at, p))
		at += uint64(len(p))
		if s.skips {
			at++
		}
		if s.overtake {
			_ = st.Send(wire.Resync{Offset: end})
			return nil
		}
	}
	return nil
}

// client returns the client of a proxy.
func (s *supervisor) client() *linkclient.Client {
	c := linkclient.New(linkclient.Config{
		Dial:  s.Dial,
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported(), PID: 8, Instance: "proxy"} },
		Log:   zerolog.Nop(),
	})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// wantCode checks that an error has a code, or that there is no error if the code is empty.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
