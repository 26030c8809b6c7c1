package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/fakelink"
)

// patience is the time after which a test fails if an expected event does not come. soonish is a limit for calls that
// must not wait.
const (
	patience = 30 * time.Second
	soonish  = 5 * time.Second
)

// A world is a server between clients and a fake supervisor.
type world struct {
	*fakelink.Supervisor
	t      testing.TB
	server *Server
	log    *testkit.Log
	wg     sync.WaitGroup
}

// newWorld starts a server that serves until the test's end. Then it checks that no connection or goroutine is left.
// change may be nil, or change the configuration.
func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := &world{Supervisor: fakelink.New(t), t: t, log: &testkit.Log{}}
	w.Welcome(wire.Welcome{PID: 7, Instance: "supervisor"})
	w.Listen()
	links := linkclient.New(linkclient.Config{
		Dial:  w.Dial,
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported(), Name: "test"} },
		Log:   zerolog.Nop(),
	})
	cfg := Config{Link: links, Log: zerolog.New(w.log)}
	if change != nil {
		change(&cfg)
	}
	w.server = New(cfg)
	t.Cleanup(func() {
		w.server.Goaway("test", 0)
		links.Close()
		w.wg.Wait()
	})
	return w
}

// pair returns both ends of a connection on a Unix socket.
func (w *world) pair() (a, b net.Conn) {
	ln, err := net.Listen("unix", filepath.Join(filepath.Dir(w.Path), protocol.NewToken(4)))
	testkit.Must(w.t, err)
	defer ln.Close()
	if a, err = net.Dial("unix", ln.Addr().String()); err == nil {
		b, err = ln.Accept()
	}
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// A client is the other end of a connection to the server.
type client struct {
	t      testing.TB
	nc     net.Conn
	frames *frame.Reader
	served chan struct{} // closed when Accept's function has returned
}

var trusted = Origin{Transport: "test", Trusted: true}

// connect returns a client that has not sent hello.
func (w *world) connect(from Origin) *client {
	a, b := w.pair()
	c := &client{t: w.t, nc: a, frames: frame.NewReader(a, frame.Max), served: make(chan struct{})}
	w.wg.Go(func() {
		defer close(c.served)
		w.server.Accept(context.Background(), NewStream(b, nil), from)()
	})
	return c
}

// client returns a client that has sent hello.
func (w *world) client(caps ...protocol.Capability) *client {
	w.t.Helper()
	c := w.connect(trusted)
	c.hello(caps...)
	return c
}

func (c *client) hello(caps ...protocol.Capability) {
	c.t.Helper()
	c.send(api.Hello{Protocol: protocol.Supported(), Client: "tester", Capabilities: caps})
	expect[*api.Welcome](c)
}

func (c *client) send(m protocol.Message) {
	c.t.Helper()
	b, err := protocol.Encode(m)
	testkit.Must(c.t, err)
	c.raw(frame.Append(nil, frame.Control, b))
}

func (c *client) raw(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// data is a frame of a data kind.
type data struct {
	kind       frame.Kind
	attachment uint32
	offset     uint64
	bytes      string
}

// next returns the next message, or the next data frame as data.
func (c *client) next() (any, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	kind, payload, err := c.frames.Next()
	if err != nil {
		return nil, err
	}
	if kind != frame.Control {
		n, offset, p, err := frame.ParseData(payload)
		return data{kind, n, offset, string(p)}, err
	}
	m, _, err := api.Messages.Decode(payload)
	return m, err
}

func (c *client) mustNext() any {
	c.t.Helper()
	m, err := c.next()
	if err != nil {
		c.t.Fatalf("no message came: %v", err)
	}
	return m
}

// expect returns the next message, which must have type T.
func expect[T any](c *client) T {
	c.t.Helper()
	m := c.mustNext()
	if v, ok := m.(T); ok {
		return v
	}
	c.t.Fatalf("%T %+v came instead of %T", m, m, *new(T))
	panic("unreachable")
}

// wantError checks that the next message is an error with that code.
func (c *client) wantError(code protocol.Code) *api.Error {
	c.t.Helper()
	e := expect[*api.Error](c)
	if e.Code != code {
		c.t.Fatalf("received %v, want %s", e.Error, code)
	}
	return e
}

// wantEnd checks that no message follows, and that the connection has ended.
func (c *client) wantEnd() {
	c.t.Helper()
	if m, err := c.next(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		c.t.Errorf("received %T %+v instead of the end (%v)", m, m, err)
	} else if !errors.Is(err, io.EOF) && !isReset(err) {
		c.t.Errorf("the connection ended with %v", err)
	}
	testkit.Within(c.t, patience, "the server is done", c.served)
}

func isReset(err error) bool {
	var e *net.OpError
	return errors.As(err, &e) && !e.Timeout()
}

// ping waits until the server has handled everything that was sent before.
func (c *client) ping() {
	c.t.Helper()
	c.raw(text(`{"type":"teleport","request_id":"ping"}`))
	if e := c.wantError(protocol.CodeUnsupported); e.RequestID != "ping" {
		c.t.Fatalf("received %+v", e)
	}
}

// text returns a frame that holds a text.
func text(s string) []byte { return frame.Append(nil, frame.Control, []byte(s)) }

func req(id string) protocol.Request { return protocol.Request{RequestID: id} }

// equal compares the encodings of two messages.
func equal(t testing.TB, what string, got, want protocol.Message) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, err := protocol.Encode(got)
	testkit.Must(t, err)
	w, err := protocol.Encode(want)
	testkit.Must(t, err)
	if string(g) != string(w) {
		t.Errorf("%s:\ngot  %s\nwant %s", what, g, w)
	}
}
