package archive

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/fakelink"
)

// A hungStore answers no put until hung is closed.
type hungStore struct {
	Store
	hung chan struct{}
}

func (s *hungStore) Put(ctx context.Context, key string, data []byte) error {
	<-s.hung
	return s.Store.Put(ctx, key, data)
}

// oneLink is a Link over one connection.
type oneLink struct {
	Link
	conn *link.Conn
}

// linkTo returns a link to a supervisor until the end of the test.
func linkTo(t *testing.T, sup *fakelink.Supervisor) oneLink {
	t.Helper()
	nc, err := sup.Dial(t.Context())
	testkit.Must(t, err)
	conn, _, _, err := link.Dial(nc, wire.Hello{Protocol: protocol.Supported(), PID: 1, Instance: "p"}, zerolog.Nop())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return oneLink{conn: conn}
}

func (l oneLink) Open(ctx context.Context, request protocol.Message) (*link.Stream, protocol.Message, error) {
	return l.conn.Open(ctx, request)
}

func (l oneLink) Call(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	return l.conn.Call(ctx, request)
}

// While the store does not answer, a recorder gives up its attachment after stallTime, because the supervisor keeps the
// ring of a forgotten session until then. When the store answers, the recorder can attach again.
func TestStalledStoreReleasesSession(t *testing.T) {
	for _, name := range []string{"segments wait", "the buffer is full"} {
		t.Run(name, func(t *testing.T) {
			attached, released := make(chan uint64), make(chan error)
			var isForgotten atomic.Bool
			sup := fakelink.New(t)
			sup.Listen()
			sup.Answer(func(st *link.Stream, request protocol.Message) {
				m, ok := request.(*wire.Attach)
				if !ok || isForgotten.Load() {
					_ = st.Fail(protocol.Errorf(protocol.CodeSessionNotFound, "forgotten"))
					return
				}
				offset := m.Resume.Offset
				_ = st.Send(wire.Attached{AttachInfo: protocol.AttachInfo{Offset: offset}})
				attached <- offset
				for range 3 { // each resync ends a segment
					_ = st.SendRaw(frame.AppendData(nil, frame.Output, 1, offset, []byte("output")))
					offset += 16
					_ = st.Send(wire.Resync{Offset: offset})
				}
				_, err := st.Next()
				released <- err
			})
			store := &hungStore{OpenDir(t.TempDir()), make(chan struct{})}
			x, end := reading(t, store)
			x.r.Link, x.stallTime = linkTo(t, sup), 10*time.Millisecond
			if name == "the buffer is full" {
				x.r.buffer.limit = 1
			}
			read := make(chan error, 1)
			go func() {
				_, err := x.readOnce(t.Context())
				read <- err
			}()
			if offset := <-attached; offset != 0 {
				t.Errorf("attached at %d", offset)
			}
			if err := <-released; err == nil {
				t.Error("the recorder has sent something")
			}
			isForgotten.Store(true)
			close(store.hung)
			if err := <-read; err == nil {
				t.Error("the attachment has not ended")
			}
			if _, err := x.readOnce(t.Context()); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
				t.Errorf("another attachment: %v", err)
			}
			x.cut()
			end()
			r := report(t, store.Store, nil)
			if r.Segments == 0 {
				t.Error("no segment is stored")
			}
			for _, p := range r.Problems {
				if p.Kind != ProblemMissing {
					t.Errorf("problem: %+v", p)
				}
			}
		})
	}
}
