package apiserver

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// Each connection is in one batch, and no batch is too large. Connections that cannot be frozen at once are in
// batches of their own, at the end.
func TestBatches(t *testing.T) {
	const atOnce = 10
	s := New(Config{})
	var conns []*conn
	slow := map[*conn]bool{}
	for i := range 95 {
		a, b := net.Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		c := s.newConn(context.Background(), NewStream(b, nil), Origin{}, phaseServing)
		for n := range uint32(i % 90) {
			c.attachments.byNumber[n] = &attachment{}
		}
		if i == 50 {
			for n := range uint32(2 * maxBatchAttachments) {
				c.attachments.byNumber[n] = &attachment{}
			}
		}
		switch {
		case i%20 == 3:
			c.requests.add(&api.Rename{}, []byte("{}"))
			slow[c] = true
		case i%20 == 4:
			c.requests.add(&api.Search{}, []byte("{}"))
		case i%20 == 5:
			c.t.(*streamTransport).writeStart.Store(time.Now().Add(-time.Second).UnixNano())
			slow[c] = true
		}
		conns = append(conns, c)
	}
	var seen []*conn
	late := false
	for i, batch := range batches(conns, atOnce) {
		attached := 0
		for _, c := range batch {
			attached += c.attachments.count()
			if slow[c] != slow[batch[0]] || late && !slow[c] {
				t.Errorf("batch %d has a connection that belongs to another batch", i)
			}
			late = late || slow[c]
		}
		if len(batch) == 0 || len(batch) > atOnce || attached > maxBatchAttachments && len(batch) > 1 {
			t.Errorf("batch %d has %d connections with %d attachments", i, len(batch), attached)
		}
		seen = append(seen, batch...)
	}
	for _, c := range conns {
		if !slices.Contains(seen, c) {
			t.Error("a connection is in no batch")
		}
	}
	if len(seen) != len(conns) {
		t.Errorf("%d connections, in batches %d", len(conns), len(seen))
	}
}

// A connection that is frozen while the supervisor is replaced completes its freeze over the next link. Its record
// has a higher move than this proxy used, and the client's own attempt, so that the next attach of the client counts
// as later.
func TestFreezeOverLostLink(t *testing.T) {
	w := newWorld(t, nil)
	var attaches atomic.Int64
	w.Answer(func(st *link.Stream, m protocol.Message) {
		attach, ok := m.(*wire.Attach)
		if !ok {
			return
		}
		n := attaches.Add(1)
		first := n == 1
		if attach.Attempt != 7 || attach.Move != 0 {
			t.Errorf("attach %d has attempt %d and move %d, want 7 and 0", n, attach.Attempt, attach.Move)
		}
		info := protocol.AttachInfo{Session: someInfo, Replay: protocol.ReplayExact, Offset: 5, Writer: "w", InputOffset: 3}
		if attach.Resume != nil {
			info.Offset = attach.Resume.Offset
		}
		_ = st.Send(wire.Attached{AttachInfo: info})
		for {
			m, err := st.Receive()
			if err != nil {
				return
			}
			if _, ok := m.(*wire.Pause); !ok {
				continue
			}
			if first {
				w.Cut()
				return
			}
			_ = st.Send(wire.Paused{InputOffset: 3})
		}
	})
	c := w.client()
	c.send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "s", Writer: "w", Attempt: 7, Move: 3}})
	expect[*api.Attached](c)
	var given []*Frozen
	closed, err := w.server.Freeze(testkit.Soon(t), 12, func(frozen []*Frozen) error {
		given = append(given, frozen...)
		return nil
	})
	if err != nil || closed != 0 || len(given) != 1 {
		t.Fatalf("%d given, %d closed, %v", len(given), closed, err)
	}
	all := given[0].Record.Attachments
	if len(all) != 1 || all[0].Spec.Resume == nil || all[0].Spec.Resume.Offset != 5 || attaches.Load() != 2 {
		t.Errorf("the record has %+v after %d attaches", all, attaches.Load())
	}
	for move, goesOn := range []func(){func() {}, func() { _, _ = given[0].TakeBack() }} {
		goesOn()
		if spec := all[0].Spec; spec.Attempt != 7 || spec.Move != uint64(move+1) {
			t.Errorf("the record has attempt %d and move %d, want 7 and %d", spec.Attempt, spec.Move, move+1)
		}
	}
	w.server.Forget()
}

// An await without a mark has the inclusive mark of its beginning, also if it is moved, so that a repetition finds also a line
// that has left the screen meanwhile. Without it, the wait for such a line would not end.
func TestMovedAwaitHasMark(t *testing.T) {
	for inclusive, want := range map[string]string{"all": "all", "": ""} { // an older supervisor has none
		w := newWorld(t, nil)
		var since atomic.Value
		w.Answer(func(st *link.Stream, m protocol.Message) {
			switch m := m.(type) {
			case *wire.Mark:
				_ = st.Send(wire.Marked{MarkInfo: protocol.MarkInfo{Mark: []byte("mark"), Inclusive: []byte(inclusive)}})
			case *wire.Await:
				since.Store(string(m.Since))
				_, _ = st.Receive() // until the request is moved
			}
		})
		c := w.client()
		c.send(api.Await{Request: req("r"), AwaitSpec: protocol.AwaitSpec{SessionID: "s", Text: "x"}})
		testkit.Eventually(t, patience, func() bool { return since.Load() != nil }, "the supervisor waits")
		var moved []json.RawMessage
		_, err := w.server.Freeze(testkit.Soon(t), 12, func(frozen []*Frozen) error {
			moved = frozen[0].Record.Requests
			return nil
		})
		if err != nil || len(moved) != 1 {
			t.Fatalf("moved %s, %v", moved, err)
		}
		m, _, err := api.Messages.Decode(moved[0])
		if await, ok := m.(*api.Await); !ok || string(await.Since) != want || await.Text != "x" || await.RequestID != "r" || since.Load() != want {
			t.Errorf("the supervisor receives the mark %q, and the await is moved as %s, %v", since.Load(), moved[0], err)
		}
		w.server.Forget()
	}
}

// A hesitantTransport starts a freeze when the reader sets its n-th deadline, and delays the reader until the freeze
// has set its own deadline.
type hesitantTransport struct {
	Movable
	order  int
	freeze func()
	isSet  chan struct{} // closed when the freeze has set its deadline
	once   sync.Once
}

func (h *hesitantTransport) SetReadDeadline(at time.Time) error {
	if at.Equal(longAgo) {
		defer h.once.Do(func() { close(h.isSet) })
		return h.Movable.SetReadDeadline(at)
	}
	if h.order--; h.order == 0 {
		go h.freeze()
		<-h.isSet
	}
	return h.Movable.SetReadDeadline(at)
}

// A connection that is frozen while its hello is read can be moved. The reader sets a deadline at that time, which
// must not replace the one that stops it.
func TestFreezeWithinHello(t *testing.T) {
	for order := 1; order <= 2; order++ { // before and after the hello
		w := newWorld(t, nil)
		a, b := w.pair()
		var given []*Frozen
		frozen := make(chan error, 1)
		freeze := func() {
			_, err := w.server.Freeze(testkit.Soon(t), 12, func(all []*Frozen) error {
				given = append(given, all...)
				return nil
			})
			frozen <- err
		}
		hesitant := &hesitantTransport{Movable: NewStream(b, nil), order: order, freeze: freeze, isSet: make(chan struct{})}
		w.wg.Go(func() { w.server.Accept(context.Background(), hesitant, trusted)() })
		c := &client{t: t, nc: a, frames: frame.NewReader(a, frame.Max)}
		c.send(api.Hello{Protocol: protocol.Supported(), Client: "tester"})
		if err := testkit.Within(t, patience, "the connection is frozen", frozen); err != nil || len(given) != 1 {
			t.Fatalf("deadline %d: %d connections were frozen, %v", order, len(given), err)
		}
		if r := given[0].Record; (r.Hello != nil) != (order == 2) {
			t.Errorf("deadline %d: the record has the hello %+v", order, r.Hello)
		}
		w.server.Forget()
	}
}

// TestIsMovable checks which requests in progress the next proxy may repeat.
func TestIsMovable(t *testing.T) {
	tests := []struct {
		m    protocol.Message
		want bool
	}{
		{&api.Wait{}, true}, {&api.Search{}, true}, {&api.Share{}, true}, {&api.Spawn{Token: "t"}, true}, {&api.Input{Writer: "w"}, true},
		{&api.Spawn{}, false}, {&api.Input{}, false}, // they have no token, so that a repeat could not be recognized
		{&api.Rename{}, false}, {&api.Clear{}, false}, {&api.Ticket{}, false}, // they set a state, which may have changed since
		{&api.Signal{}, false}, {&api.Terminate{}, false}, {&api.Forget{Instance: "i"}, false},
		{&api.Attach{AttachSpec: protocol.AttachSpec{Writer: "w"}}, false}, {&api.Events{}, false}, {&api.TerminalOpen{}, false},
	}
	for _, tt := range tests {
		if got := isMovable(tt.m); got != tt.want {
			t.Errorf("%T: got %t, want %t", tt.m, got, tt.want)
		}
	}
}
