package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/testkit"
)

// limit is the time after which a test fails if an expected event does not come.
const limit = 20 * time.Second

const token = "0123456789abcdef0123456789abcdef"

// An env is a proxy without its main function: a link to a fake supervisor, the real api server, and handlers on real
// sockets.
type env struct {
	t      *testing.T
	sup    *fakeSupervisor
	link   *linkclient.Client
	server *apiserver.Server
	log    *testkit.Log
	ctx    context.Context // the context of connections
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func newEnv(t *testing.T) *env {
	e := &env{t: t, sup: newFakeSupervisor(t), log: &testkit.Log{}}
	log := zerolog.New(e.log)
	e.link = linkclient.New(linkclient.Config{
		Dial:  e.sup.Pipe,
		Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported()} },
		Log:   zerolog.Nop(),
	})
	e.server = apiserver.New(apiserver.Config{Link: e.link, Token: token, Log: log})
	e.ctx, e.stop = context.WithCancel(context.Background())
	t.Cleanup(func() {
		e.stop()
		e.wg.Wait()
		_ = e.link.Close()
	})
	return e
}

// listen serves a handler, on a Unix socket if it trusts its peers, and returns the address.
func (e *env) listen(h *Handler) net.Addr {
	e.t.Helper()
	network, address := "tcp", "127.0.0.1:0"
	if h.cfg.Trusted {
		network, address = "unix", filepath.Join(testkit.Dir(e.t), "web.sock")
	}
	ln, err := net.Listen(network, address)
	testkit.Must(e.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, e.ctx, ln) }()
	e.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			e.t.Errorf("Serve: %v", err)
		}
		_ = ln.Close()
		h.Goaway()
	})
	return ln.Addr()
}

func (e *env) handler(trusted bool) *Handler {
	return New(Config{Server: e.server, Trusted: trusted, Log: zerolog.New(e.log)})
}

func (e *env) viewer() *viewer {
	e.t.Helper()
	select {
	case v := <-e.sup.viewers:
		return v
	case <-time.After(limit):
		e.t.Fatal("no client has attached")
		return nil
	}
}

// A client is the client's end of a WebSocket, byte by byte.
type client struct {
	t  *testing.T
	nc net.Conn
	br *bufio.Reader
}

func dial(t *testing.T, addr net.Addr) *client {
	t.Helper()
	nc, err := net.Dial(addr.Network(), addr.String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(limit))
	return &client{t: t, nc: nc, br: bufio.NewReader(nc)}
}

func dialPipe(t *testing.T, nc net.Conn) *client {
	return &client{t: t, nc: nc, br: bufio.NewReader(nc)}
}

const key = "dGhlIHNhbXBsZSBub25jZQ=="

// handshake returns the request of a browser. changes are headers that replace its own, or are added.
func handshake(addr net.Addr, path string, changes ...string) string {
	host := addr.String()
	if addr.Network() == "unix" {
		host = "localhost"
	}
	lines := []string{
		"Host: " + host, "Connection: keep-alive, Upgrade", "Upgrade: websocket",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + key,
		"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
	}
	if !strings.HasSuffix(path, "/raw") && !strings.Contains(path, "/raw?") {
		lines = append(lines, "Sec-WebSocket-Protocol: other, "+api.Subprotocol)
	}
	for _, c := range changes {
		name, value, _ := strings.Cut(c, ":")
		kept := lines[:0]
		for _, l := range lines {
			if !strings.HasPrefix(l, name+":") {
				kept = append(kept, l)
			}
		}
		if lines = kept; value != "" {
			lines = append(lines, c)
		}
	}
	return "GET " + path + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.nc, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *client) response() *http.Response {
	c.t.Helper()
	r, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatalf("response: %v", err)
	}
	return r
}

// refusal reads a reply that is not a WebSocket.
func (c *client) refusal() (int, *protocol.Error) {
	c.t.Helper()
	r := c.response()
	body, err := io.ReadAll(r.Body)
	testkit.Must(c.t, err)
	var e api.Error
	if err := json.Unmarshal(body, &e); err != nil {
		c.t.Fatalf("body %q: %v", body, err)
	}
	if want := "application/json"; r.Header.Get("Content-Type") != want {
		c.t.Errorf("content type %q, want %q", r.Header.Get("Content-Type"), want)
	}
	return r.StatusCode, &e.Error
}

// open opens a WebSocket.
func open(t *testing.T, addr net.Addr, path string, changes ...string) *client {
	t.Helper()
	c := dial(t, addr)
	c.send(handshake(addr, path, changes...))
	c.opened()
	return c
}

func (c *client) opened() {
	c.t.Helper()
	r := c.response()
	if r.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(r.Body)
		c.t.Fatalf("status %d: %s", r.StatusCode, body)
	}
	if got, want := r.Header.Get("Sec-Websocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="; got != want { // RFC 6455, 1.3
		c.t.Errorf("accept %q, want %q", got, want)
	}
	if r.Header.Get("Sec-Websocket-Extensions") != "" {
		c.t.Error("an extension was accepted")
	}
}

// masked returns a frame as clients send it.
func masked(op ws.OpCode, fin bool, payload []byte) []byte {
	b, err := ws.CompileFrame(ws.MaskFrameWith(ws.NewFrame(op, fin, payload), [4]byte{1, 2, 3, 4}))
	if err != nil {
		panic(err)
	}
	return b
}

func (c *client) frame(op ws.OpCode, fin bool, payload []byte) {
	c.t.Helper()
	c.send(string(masked(op, fin, payload)))
}

func (c *client) message(m protocol.Message) {
	c.t.Helper()
	b, err := protocol.Encode(m)
	testkit.Must(c.t, err)
	c.frame(ws.OpText, true, b)
}

// next reads a frame.
func (c *client) next() (ws.OpCode, []byte) {
	c.t.Helper()
	op, p, err := c.read()
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return op, p
}

func (c *client) read() (ws.OpCode, []byte, error) {
	h, err := ws.ReadHeader(c.br)
	if err != nil {
		return 0, nil, err
	}
	if err := ws.CheckHeader(h, ws.StateClientSide); err != nil {
		return 0, nil, err
	}
	p := make([]byte, h.Length)
	_, err = io.ReadFull(c.br, p)
	return h.OpCode, p, err
}

// receive reads a message of the api.
func receive[M any](c *client) *M {
	c.t.Helper()
	op, p := c.next()
	m, _, err := api.Messages.Decode(p)
	if err != nil || op != ws.OpText {
		c.t.Fatalf("opcode %d, %q: %v", op, p, err)
	}
	got, ok := any(m).(*M)
	if !ok {
		c.t.Fatalf("got %s, want %T", p, got)
	}
	return got
}

// closing reads a close frame and answers it. Then the connection must end.
func (c *client) closing() (ws.StatusCode, string) {
	c.t.Helper()
	op, p := c.next()
	for op == ws.OpPing {
		op, p = c.next()
	}
	if op != ws.OpClose {
		c.t.Fatalf("opcode %d, %.200q in place of a close", op, p)
	}
	status, reason := ws.ParseCloseFrameData(p)
	_, _ = c.nc.Write(masked(ws.OpClose, true, p)) // the other side may have closed
	if n, err := io.Copy(io.Discard, c.br); n > 0 {
		c.t.Errorf("%d bytes after the close (%v)", n, err)
	}
	_ = c.nc.Close()
	return status, reason
}

// hello sends hello and reads the welcome.
func (c *client) hello(token string) {
	c.t.Helper()
	c.message(api.Hello{Protocol: protocol.Supported(), Client: "test", Token: token})
	receive[api.Welcome](c)
}

// data reads the data frames of one attachment until it has n bytes.
func (c *client) data(kind frame.Kind, n int) []byte {
	c.t.Helper()
	var got []byte
	for len(got) < n {
		op, p := c.next()
		if op == ws.OpText {
			continue // accepted, resized and similar messages
		}
		if frame.Kind(p[0]) != kind {
			c.t.Fatalf("kind %d, want %d", p[0], kind)
		}
		_, _, data, err := frame.ParseData(p[1:])
		testkit.Must(c.t, err)
		got = append(got, data...)
	}
	return got
}

// bytes reads n bytes of a raw WebSocket.
func (c *client) bytes(n int) []byte {
	c.t.Helper()
	var got []byte
	for len(got) < n {
		op, p := c.next()
		if op == ws.OpPing {
			continue
		}
		if op != ws.OpBinary {
			c.t.Fatalf("opcode %d: %.200q", op, p)
		}
		got = append(got, p...)
	}
	return got
}

func rawURL(id string, query ...string) string {
	return fmt.Sprintf("/v1/sessions/%s/raw?%s", id, strings.Join(query, "&"))
}
