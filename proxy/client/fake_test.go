package client

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// patience is the time after which a test fails if a call hangs.
const patience = 20 * time.Second

// A fake is a proxy on a real socket, whose replies the test writes. The test calls the client in goroutines of its
// own (start).
type fake struct {
	t     *testing.T
	addr  string
	peers chan *peer // connections whose hello was answered
}

// newFake listens. hello returns the reply to the hello of each connection. If it returns nil, the connection is
// closed.
func newFake(t *testing.T, hello func(*api.Hello) protocol.Message) *fake {
	t.Helper()
	f := &fake{t: t, addr: filepath.Join(t.TempDir(), "s"), peers: make(chan *peer, 16)}
	ln, err := net.Listen("unix", f.addr)
	testkit.Must(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = nc.Close() })
			_ = nc.SetDeadline(time.Now().Add(patience))
			p := &peer{Conn: nc, t: t, r: frame.NewReader(nc, frame.Max)}
			p.hello, _ = p.next().(*api.Hello)
			answer := hello(p.hello)
			if answer == nil {
				_ = nc.Close()
				continue
			}
			if p.write(p.control(answer)) == nil {
				f.peers <- p
			}
		}
	}()
	return f
}

func welcome(*api.Hello) protocol.Message {
	return api.Welcome{Protocol: protocol.Supported(), Agreed: protocol.Version, PID: 7, Version: "fake", Instance: "p"}
}

func (f *fake) options() Options {
	return Options{Name: "tester", Redial: patience, Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", f.addr)
	}}
}

// dialed returns a client of a new fake, and the fake's end of the connection for requests.
func dialed(t *testing.T) (*fake, *Client, *peer) {
	t.Helper()
	f := newFake(t, welcome)
	c, err := Dial(t.Context(), f.options())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return f, c, f.accept()
}

func (f *fake) accept() *peer {
	f.t.Helper()
	select {
	case p := <-f.peers:
		return p
	case <-time.After(patience):
		f.t.Fatal("no client connects")
		return nil
	}
}

// A peer is the fake's end of one of the client's connections.
type peer struct {
	net.Conn
	t     *testing.T
	r     *frame.Reader
	hello *api.Hello
}

// next returns the next control message, or nil at the end.
func (p *peer) next() protocol.Message {
	kind, payload, err := p.r.Next()
	if err != nil || kind != frame.Control {
		return nil
	}
	m, _, err := api.Messages.Decode(payload)
	if err != nil {
		return nil
	}
	return m
}

// want reads the next frame, which must have a message of type T.
func want[T protocol.Message](p *peer) T {
	p.t.Helper()
	got := p.next()
	m, ok := got.(T)
	if !ok {
		p.t.Fatalf("got %T %+v, want %T", got, got, m)
	}
	return m
}

// wantInput reads the next frame, which must be input.
func (p *peer) wantInput(offset uint64, data string) {
	p.t.Helper()
	kind, payload, err := p.r.Next()
	if err != nil || kind != frame.Input {
		p.t.Fatalf("got frame of kind %d, %v, want input", kind, err)
	}
	n, at, b, err := frame.ParseData(payload)
	if err != nil || n != number || at != offset || string(b) != data {
		p.t.Fatalf("got input %q at %d of %d, %v, want %q at %d", b, at, n, err, data, offset)
	}
}

func (p *peer) control(m protocol.Message) []byte {
	b, err := protocol.Encode(m)
	if err != nil {
		p.t.Error(err)
	}
	return frame.Append(nil, frame.Control, b)
}

func (p *peer) write(b []byte) error {
	_, err := p.Write(b)
	return err
}

// send sends messages in one write.
func (p *peer) send(ms ...protocol.Message) {
	p.t.Helper()
	var b []byte
	for _, m := range ms {
		b = append(b, p.control(m)...)
	}
	testkit.Must(p.t, p.write(b))
}

// answer sends the reply to a request.
func (p *peer) answer(r interface{ ID() string }, m interface {
	protocol.Message
	SetID(string)
}) {
	p.t.Helper()
	m.SetID(r.ID())
	p.send(m)
}

func (p *peer) output(kind frame.Kind, offset uint64, data string) {
	p.t.Helper()
	testkit.Must(p.t, p.write(frame.AppendData(nil, kind, number, offset, []byte(data))))
}

type result[T any] struct {
	v   T
	err error
}

// start calls f in another goroutine, and returns a function that waits for its result.
func start[T any](t *testing.T, f func() (T, error)) func() (T, error) {
	ch := make(chan result[T], 1)
	go func() {
		v, err := f()
		ch <- result[T]{v, err}
	}()
	return func() (T, error) {
		t.Helper()
		select {
		case r := <-ch:
			return r.v, r.err
		case <-time.After(patience):
			t.Fatal("the call does not return")
			panic("unreachable")
		}
	}
}

// startErr is start for a call that returns only an error.
func startErr(t *testing.T, f func() error) func() error {
	wait := start(t, func() (struct{}, error) { return struct{}{}, f() })
	return func() error {
		t.Helper()
		_, err := wait()
		return err
	}
}

var session = protocol.SessionInfo{ID: "s", Instance: "i", State: protocol.StateRunning, Argv: []string{"sh"}}

// exact returns the reply to an attach that continues at offset.
func exact(offset uint64) protocol.AttachInfo {
	return protocol.AttachInfo{Session: session, Replay: protocol.ReplayExact, Offset: offset, Writer: "w"}
}

// attached returns an attachment to whose attach the fake has replied with info.
func attached(t *testing.T, f *fake, c *Client, o AttachOptions, info protocol.AttachInfo) (*Attachment, *peer, *api.Attach) {
	t.Helper()
	wait := start(t, func() (*Attachment, error) { return c.Attach(t.Context(), "s", o) })
	p := f.accept()
	m := want[*api.Attach](p)
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: info})
	a, err := wait()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.Close(); _ = a.Detach() })
	return a, p, m
}

// view returns an attachment with default options, and its peer.
func view(t *testing.T) (*fake, *Attachment, *peer) {
	t.Helper()
	f, c, _ := dialed(t)
	a, p, _ := attached(t, f, c, AttachOptions{}, exact(0))
	return f, a, p
}

func readFull(t *testing.T, a *Attachment, n int) string {
	t.Helper()
	b, err := start(t, func() ([]byte, error) {
		b := make([]byte, n)
		n, err := io.ReadFull(a, b)
		return b[:n], err
	})()
	if err != nil {
		t.Fatalf("read %d of %d bytes, %v", len(b), n, err)
	}
	return string(b)
}

func receive(t *testing.T, a *Attachment) *Message {
	t.Helper()
	m, err := a.Receive(patience)
	testkit.Must(t, err)
	return m
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}
