package web

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit/fakelink"
)

// A fakeSupervisor is the other end of the link. Its session "echo" prints its input. An attach to an id in fails
// returns that error.
type fakeSupervisor struct {
	*fakelink.Supervisor
	t       *testing.T
	viewers chan *viewer // receives each viewer when it attaches

	mu       sync.Mutex
	fails    map[protocol.SessionID]*protocol.Error
	accepted map[string]uint64 // accepted input of each writer, as in the supervisor
	printed  []byte
	room     int // room of the input queue; negative for no limit
	typed    []byte
	silent   bool // the session does not print its input
	last     *viewer
}

const snapshot = "what was there\r\n"

func newFakeSupervisor(t *testing.T) *fakeSupervisor {
	f := &fakeSupervisor{
		Supervisor: fakelink.New(t), t: t, viewers: make(chan *viewer, 64), accepted: make(map[string]uint64), room: -1,
		fails: map[protocol.SessionID]*protocol.Error{
			"gone": protocol.Errorf(protocol.CodeSessionNotFound, "no session gone"),
			"dead": {Code: protocol.CodeSessionExited, Message: "it ended", Exit: &protocol.ExitRecord{ExitCode: 3}},
			"held": protocol.Errorf(protocol.CodeAlreadyAttached, "another client is there"),
			"full": protocol.Errorf(protocol.CodeLimitExceeded, "too many"),
		},
	}
	f.Answer(f.answer)
	return f
}

func (f *fakeSupervisor) answer(st *link.Stream, m protocol.Message) {
	switch m := m.(type) {
	case *wire.List:
		_ = st.SendSessions([]protocol.SessionInfo{info()})
	case *wire.Info:
		_ = st.Send(wire.Session{Session: info()})
	case *wire.Attach:
		f.attach(st, m)
	default:
		_ = st.Fail(protocol.Errorf(protocol.CodeUnsupported, "%s", m.MessageType()))
	}
}

func info() protocol.SessionInfo {
	return protocol.SessionInfo{ID: "echo", Instance: "life", State: protocol.StateRunning, Argv: []string{"cat"}}
}

// A viewer is the supervisor's end of an attachment.
type viewer struct {
	f    *fakeSupervisor
	st   *link.Stream
	spec protocol.AttachSpec
	n    uint32
	told bool          // the viewer knows that input is missing
	acks chan struct{} // receives a value if input was accepted
	over chan struct{} // closed when the viewer has gone
	left bool          // it has detached; valid after over was closed

	mu sync.Mutex // held while one item is sent
}

func (f *fakeSupervisor) attach(st *link.Stream, m *wire.Attach) {
	f.mu.Lock()
	e := f.fails[m.SessionID]
	f.mu.Unlock()
	if e != nil {
		_ = st.Fail(e)
		return
	}
	v := &viewer{f: f, st: st, spec: m.AttachSpec, n: m.Attachment, acks: make(chan struct{}, 1), over: make(chan struct{})}
	f.mu.Lock()
	last := f.last
	f.last = v
	f.mu.Unlock()
	if m.Resume != nil {
		<-last.over // the link of the last viewer was cut; its messages must be handled first
	}
	reply := wire.Attached{AttachInfo: protocol.AttachInfo{Session: info(), Replay: protocol.ReplayExact, Writer: "w"}}
	f.mu.Lock()
	reply.InputOffset = f.accepted["w"]
	end := uint64(len(f.printed))
	missing := []byte(nil)
	if r := m.Resume; r != nil {
		reply.Offset, missing = r.Offset, bytes.Clone(f.printed[r.Offset:])
	} else {
		reply.Replay, reply.Offset, reply.SnapshotBytes = protocol.ReplaySnapshot, end, len(snapshot)
	}
	f.mu.Unlock()
	_ = st.Send(reply)
	if m.Resume == nil {
		_ = st.SendRaw(frame.AppendData(nil, frame.Snapshot, v.n, end, []byte(snapshot)))
	} else if len(missing) > 0 {
		_ = st.SendRaw(frame.AppendData(nil, frame.Output, v.n, reply.Offset, missing))
	}
	f.viewers <- v
	var wg sync.WaitGroup
	wg.Go(v.acknowledge)
	v.listen()
	close(v.over)
	wg.Wait()
}

// acknowledge sends acknowledgements. It runs beside the reader, because it may have to wait behind much output.
func (v *viewer) acknowledge() {
	for {
		select {
		case <-v.acks:
			_ = v.st.Send(wire.Accepted{Offset: v.f.acceptedBy()})
		case <-v.over:
			return
		}
	}
}

func (v *viewer) listen() {
	for {
		raw, err := v.st.Next()
		if err != nil {
			return
		}
		if frame.Kind(raw[4]) != frame.Input {
			m, _, _ := wire.Messages.Decode(raw[frame.HeaderLen:])
			_, left := m.(*wire.Detach)
			v.left = v.left || left
			continue
		}
		_, offset, p, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			v.f.t.Errorf("input: %v", err)
			return
		}
		fresh, err := v.f.take(offset, p)
		if len(fresh) > 0 {
			poke(v.acks)
			if !v.f.silent {
				v.print(fresh)
			}
		}
		var e *protocol.Error
		if errors.As(err, &e) && !v.told {
			_ = v.st.Fail(e)
		}
		v.told = err != nil
	}
}

// take accepts input as a session does.
func (f *fakeSupervisor) take(offset uint64, p []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	accepted := f.accepted["w"]
	if offset > accepted {
		return nil, &protocol.Error{Code: protocol.CodeInputGap, Offset: &accepted, Retryable: true}
	}
	if offset+uint64(len(p)) <= accepted {
		return nil, nil
	}
	p = p[accepted-offset:]
	n := len(p)
	if f.room >= 0 {
		n = min(n, f.room)
		f.room -= n
	}
	f.typed = append(f.typed, p[:n]...)
	accepted += uint64(n)
	f.accepted["w"] = accepted
	if n < len(p) {
		return bytes.Clone(p[:n]), &protocol.Error{Code: protocol.CodeInputFull, Offset: &accepted, Retryable: true}
	}
	return bytes.Clone(p), nil
}

func (f *fakeSupervisor) acceptedBy() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted["w"]
}

// makeRoom adds room to the input queue.
func (f *fakeSupervisor) makeRoom(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.room += n
}

func (f *fakeSupervisor) typedSoFar() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.Clone(f.typed)
}

func (f *fakeSupervisor) typedCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.typed)
}

// print prints p to this viewer, and returns an error after it has detached.
func (v *viewer) print(p []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(p) > 0 {
		n := min(len(p), frame.MaxData)
		v.f.mu.Lock()
		offset := uint64(len(v.f.printed))
		v.f.printed = append(v.f.printed, p[:n]...)
		v.f.mu.Unlock()
		if err := v.st.SendRaw(frame.AppendData(nil, frame.Output, v.n, offset, p[:n])); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// tell sends a message, and ends the stream if it is the last one.
func (v *viewer) tell(m protocol.Message, last bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.st.Send(m); err != nil {
		v.f.t.Errorf("tell %s: %v", m.MessageType(), err)
	}
	if last {
		_ = v.st.Close()
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
