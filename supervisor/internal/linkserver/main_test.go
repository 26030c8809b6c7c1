//go:build linux || darwin

package linkserver

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
)

// patience is the time after which a test fails if an expected event does not come.
const patience = 30 * time.Second

// A rig is a server with real sessions on a real socket.
type rig struct {
	table *session.Table
	path  string
	log   *testkit.Log
	stops chan struct{} // receives a value for each call of Config.Stop
}

// newRig starts a server that serves until the test's end. Then it checks that no session, goroutine or file is left.
func newRig(t testing.TB, cfg session.Config, secret string) *rig {
	t.Helper()
	testkit.CheckLeaks(t)
	cfg.Env = []string{"PATH=" + os.Getenv("PATH")}
	r := &rig{
		table: session.NewTable(cfg), path: filepath.Join(testkit.Dir(t), "s"),
		log: &testkit.Log{}, stops: make(chan struct{}, 8),
	}
	t.Cleanup(func() {
		if err := r.table.Shutdown(testkit.Soon(t), protocol.Asker{}); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	ln, err := socket.Listen(r.path, socket.Options{})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s := New(Config{Sessions: r.table, Secret: secret, Stop: func() { r.stops <- struct{}{} }, Log: zerolog.New(r.log)})
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		ln.Close()
		if err := testkit.Within(t, patience, "Serve returns", done); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func (r *rig) connect(t testing.TB) net.Conn {
	t.Helper()
	nc, err := net.Dial("unix", r.path)
	testkit.Must(t, err)
	t.Cleanup(func() { nc.Close() })
	return nc
}

var someHello = wire.Hello{Protocol: protocol.Supported(), PID: 1, Instance: "p", Name: "test"}

// link connects as a proxy.
func (r *rig) link(t testing.TB) *link.Conn {
	t.Helper()
	c, _, _, err := link.Dial(r.connect(t), someHello, zerolog.Nop())
	testkit.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// session starts a script and waits until it has printed READY.
func (r *rig) session(t testing.TB, code string) *session.Session {
	t.Helper()
	s, err := r.table.Create("", "", bash(code), protocol.Limits{}, "")
	testkit.Must(t, err)
	testkit.Eventually(t, patience, func() bool {
		_, _, end, err := s.Read(0, 1)
		data, _, _, _ := s.Read(end-min(end, 7), 7)
		return err == nil && strings.Contains(string(data), "READY")
	}, "the script says READY")
	return s
}

func bash(code string) protocol.SpawnSpec {
	return protocol.SpawnSpec{Argv: []string{"bash", "-c", code}}
}

// sleeper is the script of a session that waits, and cat that of one that prints its input.
const (
	sleeper = "echo READY; exec sleep 1000"
	cat     = "stty -echo -onlcr; echo READY; exec cat"
)

func call[T protocol.Message](t testing.TB, c *link.Conn, request protocol.Message) T {
	t.Helper()
	reply, err := c.Call(testkit.Soon(t), request)
	if err != nil {
		t.Fatalf("%s: %v", request.MessageType(), err)
	}
	m, ok := reply.(T)
	if !ok {
		t.Fatalf("the reply to %s is %s", request.MessageType(), reply.MessageType())
	}
	return m
}

// A view is an attachment's stream that checks its messages: offsets have no gap, the snapshot comes before the
// output, and no message comes after the end.
type view struct {
	st     *link.Stream
	info   protocol.AttachInfo
	number uint32

	left int                // bytes of the snapshot that have not come yet
	pos  uint64             // offset of the next byte of output
	seen []byte             // snapshot and output
	told []protocol.Message // messages that until and end have passed over
}

func attach(t testing.TB, c *link.Conn, number uint32, spec protocol.AttachSpec) *view {
	t.Helper()
	st, reply, err := c.Open(testkit.Soon(t), wire.Attach{Attachment: number, AttachSpec: spec})
	testkit.Must(t, err)
	t.Cleanup(st.Abort)
	info := reply.(*wire.Attached).AttachInfo
	return &view{st: st, info: info, number: number, left: info.SnapshotBytes, pos: info.Offset}
}

// next returns the next message, nil after data, or an error at the end.
func (v *view) next(t testing.TB) (protocol.Message, error) {
	t.Helper()
	_ = v.st.SetDeadline(time.Now().Add(patience))
	raw, err := v.st.Next()
	if err != nil {
		return nil, err
	}
	payload := raw[frame.HeaderLen:]
	kind := frame.Kind(raw[4])
	if kind == frame.Control {
		m, _, err := wire.Messages.Decode(payload)
		testkit.Must(t, err)
		if r, ok := m.(*wire.Resync); ok {
			v.pos, v.left = r.Offset, r.SnapshotBytes
		}
		return m, nil
	}
	number, offset, data, err := frame.ParseData(payload)
	switch {
	case err != nil || number != v.number || offset != v.pos:
		t.Fatalf("a frame of %d at %d, want %d at %d; %v", number, offset, v.number, v.pos, err)
	case kind == frame.Snapshot && len(data) <= v.left:
		v.left -= len(data)
	case kind == frame.Output && v.left == 0:
		v.pos += uint64(len(data))
	default:
		t.Fatalf("%d bytes of kind %d while %d of the snapshot are to come", len(data), kind, v.left)
	}
	v.seen = append(v.seen, data...)
	return nil, nil
}

// message returns the next message, and passes over data.
func (v *view) message(t testing.TB) protocol.Message {
	t.Helper()
	if len(v.told) > 0 {
		m := v.told[0]
		v.told = v.told[1:]
		return m
	}
	for {
		m, err := v.next(t)
		if err != nil {
			t.Fatalf("the stream ended without a message: %v", err)
		}
		if m != nil {
			return m
		}
	}
}

// until reads until the output has the text. It keeps messages for later calls of message.
func (v *view) until(t testing.TB, text string) {
	t.Helper()
	for !strings.Contains(string(v.seen), text) {
		m, err := v.next(t)
		if err != nil {
			t.Fatalf("the stream ended without %q: %v; %v", text, m, err)
		}
		if m != nil {
			v.told = append(v.told, m)
		}
	}
}

// end reads to the end and returns the last message.
func (v *view) end(t testing.TB) (last protocol.Message) {
	t.Helper()
	for {
		m, err := v.next(t)
		switch {
		case err == io.EOF:
			return last
		case err != nil:
			t.Fatal(err)
		case m == nil && last != nil && isLast(last):
			t.Fatal("data after the end")
		case m != nil && isLast(last):
			t.Fatalf("%s after %s", m.MessageType(), last.MessageType())
		case m != nil:
			last = m
		}
	}
}

func isLast(m protocol.Message) bool {
	switch m.(type) {
	case *wire.Exited, *wire.Stolen:
		return true
	}
	return false
}

func (v *view) typeAt(t testing.TB, offset uint64, p string) {
	t.Helper()
	testkit.Must(t, v.st.SendRaw(frame.AppendData(nil, frame.Input, v.number, offset, []byte(p))))
}

// A rogue is a proxy that has sent hello, and breaks the rules of the protocol afterwards.
type rogue struct{ mux *yamux.Session }

func newRogue(t testing.TB, r *rig) *rogue {
	t.Helper()
	cfg := yamux.DefaultConfig()
	cfg.EnableKeepAlive, cfg.LogOutput, cfg.AcceptBacklog = false, io.Discard, 4096
	cfg.StreamOpenTimeout = 0
	mux, err := yamux.Client(r.connect(t), cfg)
	testkit.Must(t, err)
	t.Cleanup(func() { mux.Close() })
	g := &rogue{mux}
	hello, err := protocol.Encode(someHello)
	testkit.Must(t, err)
	st := g.stream(t, frame.Append(nil, frame.Control, hello))
	for {
		if m, ok := heard(t, st).(*wire.Sessions); ok && !m.More {
			break
		}
	}
	st.Close()
	return g
}

func (g *rogue) stream(t testing.TB, raw []byte) *yamuxStream {
	t.Helper()
	st, err := g.mux.OpenStream()
	if err == nil && len(raw) > 0 {
		_, err = st.Write(raw)
	}
	testkit.Must(t, err)
	return &yamuxStream{st, frame.NewReader(st, frame.Max)}
}

type yamuxStream struct {
	*yamux.Stream
	frames *frame.Reader
}

// heard returns the next message of a stream. The test fails if none comes.
func heard(t testing.TB, st *yamuxStream) protocol.Message {
	t.Helper()
	m, err := hear(st)
	if err != nil {
		t.Fatalf("no message: %v", err)
	}
	return m
}

func hear(st *yamuxStream) (protocol.Message, error) {
	_ = st.SetDeadline(time.Now().Add(patience))
	for {
		kind, payload, err := st.frames.Next()
		if err != nil {
			return nil, err
		}
		if kind != frame.Control {
			continue
		}
		m, _, err := wire.Messages.Decode(payload)
		return m, err
	}
}

// text returns a frame that holds a text.
func text(s string) []byte { return frame.Append(nil, frame.Control, []byte(s)) }

// wantCode checks that an error has a code, or that there is no error if the code is empty.
func wantCode(t testing.TB, what string, err error, want protocol.Code) {
	t.Helper()
	if got := protocol.CodeOf(err); got != want {
		t.Errorf("%s: got %v, want code %q", what, err, want)
	}
}
