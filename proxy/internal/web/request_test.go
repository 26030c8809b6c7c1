package web

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/testkit"
)

func eventually(t *testing.T, cond func() bool, msg string) {
	t.Helper()
	testkit.Eventually(t, limit, cond, msg)
}

func TestRefused(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	h.cfg.Hosts = []string{"Box.example:8443"}
	h.cfg.Origins = []string{"app://holdfast"}
	addr := e.listen(h)
	port := addr.(*net.TCPAddr).Port
	get := func(path string, changes ...string) string { return handshake(addr, path, changes...) }
	const secret = "verysecret"
	tests := []struct {
		name, send string
		status     int
		code       protocol.Code
		security   bool
	}{
		{"another path", get("/"), 404, protocol.CodeUnsupported, false},
		{"below the api", get("/v1/api/"), 404, protocol.CodeUnsupported, false},
		{"not GET", strings.Replace(get("/v1/api"), "GET", "POST", 1), 404, protocol.CodeUnsupported, false},
		{"an id that cannot be", get("/v1/sessions/a%20b/raw"), 404, protocol.CodeUnsupported, false},
		{"an id with a slash", get("/v1/sessions/a/b/raw"), 404, protocol.CodeUnsupported, false},
		{"no upgrade", get("/v1/api", "Upgrade:"), 426, protocol.CodeInvalidArgument, false},
		{"no connection", get("/v1/api", "Connection: keep-alive"), 426, protocol.CodeInvalidArgument, false},
		{"old version", get("/v1/api", "Sec-WebSocket-Version: 8"), 426, protocol.CodeInvalidArgument, false},
		{"short key", get("/v1/api", "Sec-WebSocket-Key: AAAA"), 400, protocol.CodeInvalidArgument, false},
		{"no key", get("/v1/api", "Sec-WebSocket-Key:"), 400, protocol.CodeInvalidArgument, false},
		{"another subprotocol", get("/v1/api", "Sec-WebSocket-Protocol: holdfast.v2"), 400, protocol.CodeInvalidArgument, false},
		{"a body", get("/v1/api", "Content-Length: 3"), 400, protocol.CodeInvalidArgument, false},
		{"a body in chunks", get("/v1/api", "Transfer-Encoding: chunked"), 400, protocol.CodeInvalidArgument, false},
		{"HTTP/1.0", strings.Replace(get("/v1/api"), "HTTP/1.1", "HTTP/1.0", 1), 400, protocol.CodeInvalidArgument, false},
		{"a whole URL", get("http://" + addr.String() + "/v1/api"), 400, protocol.CodeInvalidArgument, false},
		{"LF alone", strings.ReplaceAll(get("/v1/api"), "\r\n", "\n") + "\r\n\r\n", 400, protocol.CodeInvalidArgument, false},
		{"garbage", "\x16\x03\x01\x00\xf1 hello\r\n\r\n", 400, protocol.CodeInvalidArgument, false},
		{"a bad query", get("/v1/api?a=%zz"), 400, protocol.CodeInvalidArgument, false},
		{"too long", get("/v1/api", "Cookie: "+strings.Repeat("x", maxHead)), 431, protocol.CodeFrameTooLarge, false},

		{"no Host", get("/v1/api", "Host:"), 403, protocol.CodePermissionDenied, true},
		{"another Host", get("/v1/api", "Host: evil.example"), 403, protocol.CodePermissionDenied, true},
		{"another port", get("/v1/api", "Host: localhost:1"), 403, protocol.CodePermissionDenied, true},
		{"two Hosts", get("/v1/api", "X: y\r\nHost: "+addr.String()), 400, protocol.CodeInvalidArgument, false},
		{"another Host, another path", get("/favicon.ico", "Host: evil.example"), 403, protocol.CodePermissionDenied, true},
		{"another Origin", get("/v1/api", "Origin: http://evil.example"), 403, protocol.CodePermissionDenied, true},
		{"another page of this machine", get("/v1/api", "Origin: http://localhost:3000"), 403, protocol.CodePermissionDenied, true},
		{"https", get("/v1/api", "Origin: https://"+addr.String()), 403, protocol.CodePermissionDenied, true},
		{"null Origin", get("/v1/api", "Origin: null"), 403, protocol.CodePermissionDenied, true},
		{"two Origins", get("/v1/api", "Origin: app://holdfast\r\nOrigin: app://holdfast"), 403, protocol.CodePermissionDenied, true},
		{"token in the URL", get("/v1/api?token=" + secret), 400, protocol.CodeInvalidArgument, true},
		{"token in the URL, otherwise", get("/v1/api?Access_Token=" + secret), 400, protocol.CodeInvalidArgument, true},
		{"raw without a ticket", get(rawURL("echo")), 401, protocol.CodeUnauthorized, true},
		{"raw with a wrong ticket", get(rawURL("echo", "ticket="+secret)), 401, protocol.CodeUnauthorized, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(e.log.String())
			c := dial(t, addr)
			c.send(tt.send)
			status, err := c.refusal()
			if status != tt.status || err.Code != tt.code {
				t.Errorf("%d %v, want %d %s", status, err, tt.status, tt.code)
			}
			log := e.log.String()[before:]
			if got := strings.Contains(log, `"security":true`); got != tt.security {
				t.Errorf("security event: %v, want %v: %s", got, tt.security, log)
			}
			if strings.Contains(log, secret) {
				t.Errorf("the URL's secret is in the log: %s", log)
			}
		})
	}
	for _, allowed := range []string{
		"Host: LOCALHOST:%", "Host: 127.0.0.1:%", "Host: [::1]:%", "Host: box.example:8443",
		"Origin: http://localhost:%", "Origin: http://[::1]:%", "Origin: http://box.example:8443", "Origin: app://holdfast",
		"Cookie: " + strings.Repeat("holdfast-40000="+strings.Repeat("x", 200)+"; ", 60), // a browser sends the cookies of all ports of the host
	} {
		open(t, addr, "/v1/api", strings.ReplaceAll(allowed, "%", strconv.Itoa(port))).hello(token)
	}
}

func TestRawRefused(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	tests := []struct {
		name, path string
		status     int
		code       protocol.Code
	}{
		{"unknown", rawURL("gone"), 404, protocol.CodeSessionNotFound},
		{"ended", rawURL("dead"), 410, protocol.CodeSessionExited},
		{"held", rawURL("held"), 409, protocol.CodeAlreadyAttached},
		{"full", rawURL("full"), 429, protocol.CodeLimitExceeded},
		{"bad size", rawURL("echo", "cols=80x"), 400, protocol.CodeInvalidArgument},
		{"less than no size", rawURL("echo", "rows=-1"), 400, protocol.CodeInvalidArgument},
		{"bad mode", rawURL("echo", "mode=god"), 400, protocol.CodeInvalidArgument},
		{"bad view", rawURL("echo", "view=mine"), 400, protocol.CodeInvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, addr)
			c.send(handshake(addr, tt.path))
			status, err := c.refusal()
			if status != tt.status || err.Code != tt.code {
				t.Errorf("%d %v, want %d %s", status, err, tt.status, tt.code)
			}
			if tt.code == protocol.CodeSessionExited && (err.Exit == nil || err.Exit.ExitCode != 3) {
				t.Errorf("the exit record is missing: %+v", err)
			}
		})
	}
}

func TestSupervisorUnreachable(t *testing.T) {
	e := newEnv(t)
	h := e.handler(true)
	h.cfg.Server = apiserver.New(apiserver.Config{Log: zerolog.Nop(), Link: linkclient.New(linkclient.Config{
		Dial: func(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	})})
	addr := e.listen(h)
	c := dial(t, addr)
	c.send(handshake(addr, rawURL("echo")))
	if status, err := c.refusal(); status != 503 || err.Code != protocol.CodeSupervisorUnreachable || !err.Retryable {
		t.Errorf("%d %+v, want 503", status, err)
	}
}

// If a hello must carry a secret, the raw WebSocket needs a ticket as well.
func TestTicketsOfTrustedPeers(t *testing.T) {
	e := newEnv(t)
	h := e.handler(true)
	h.cfg.Tickets = true
	addr := e.listen(h)
	d := dial(t, addr)
	d.send(handshake(addr, rawURL("echo")))
	if status, _ := d.refusal(); status != 401 {
		t.Errorf("without a ticket: %d, want 401", status)
	}
	c := open(t, addr, "/v1/api")
	c.hello("")
	open(t, addr, rawURL("echo", "ticket="+c.ticket("echo"))).bytes(len(snapshot))
}

func TestTrustedAskNothing(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	open(t, addr, "/v1/api", "Host: evil.example", "Origin: http://evil.example").hello("")
	// A client that shows a ticket is refused if it is invalid, although it needs none.
	d := dial(t, addr)
	d.send(handshake(addr, "/v1/api?ticket=none"))
	if status, _ := d.refusal(); status != 401 {
		t.Errorf("with an invalid ticket: %d, want 401", status)
	}
}

func TestServeRefusesListeners(t *testing.T) {
	tests := []struct {
		name    string
		addr    net.Addr
		trusted bool
		ok      bool
	}{
		{"trust on TCP", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, true, false},
		{"every interface", &net.TCPAddr{IP: net.IPv4zero, Port: 1}, false, false},
		{"no interface", &net.TCPAddr{Port: 1}, false, false},
		{"another interface", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, false, false},
		{"no trust on a Unix socket", &net.UnixAddr{Name: "x", Net: "unix"}, false, false},
		{"loopback", &net.TCPAddr{IP: net.IPv6loopback, Port: 80}, false, true},
		{"a Unix socket", &net.UnixAddr{Name: "x", Net: "unix"}, true, true},
	}
	for _, tt := range tests {
		g, err := newGuard(&Config{Trusted: tt.trusted}, tt.addr)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.name == "loopback" && (!g.hosts["[::1]"] || !g.hosts["localhost"] || !g.origins["http://localhost"]) {
			t.Errorf("port 80 may be left out: %v", g.hosts)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	h.quota.Max = 2
	addr := e.listen(h)
	first, second := open(t, addr, "/v1/api"), open(t, addr, "/v1/api")
	first.hello(token)
	second.hello(token)
	eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.quota.Count() == 2 }, "two connections")
	for range 2 {
		if status, err := dial(t, addr).refusal(); status != 503 || err.Code != protocol.CodeLimitExceeded {
			t.Errorf("%d %v, want 503", status, err)
		}
	}
	if n := strings.Count(e.log.String(), "too many web clients"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	_ = second.nc.Close()
	eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.quota.Count() == 1 }, "a client disconnects")
	open(t, addr, "/v1/api").hello(token)
}

// knownConn is a connection whose process is known.
type knownConn struct {
	net.Conn
	pid int
}

func (c knownConn) PeerPID() int { return c.pid }

// One process cannot use all connections.
func TestTooManyConnectionsOfOne(t *testing.T) {
	e := newEnv(t)
	h := e.handler(true)
	h.quota.Max, h.quota.MaxOfOne = 3, 2
	add := func(pid int) bool { return h.add(peerPID(knownConn{pid: pid})) == nil }
	for i, tt := range []struct {
		pid  int
		room bool
	}{{7, true}, {7, true}, {7, false}, {8, true}, {9, false}} {
		if got := add(tt.pid); got != tt.room {
			t.Errorf("connection %d of process %d: room %v, want %v", i, tt.pid, got, tt.room)
		}
	}
	h.remove(7)
	if !add(7) || add(7) {
		t.Error("the end of one connection does not make room for exactly one")
	}
	for _, pid := range []int{7, 7, 8} {
		h.remove(pid)
	}
	if n := h.quota.Count(); n != 0 {
		t.Errorf("%d connections still count", n)
	}
}

func TestSlowHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		h := New(Config{Trusted: true, Log: zerolog.Nop()})
		go h.serve(context.Background(), &guard{trusted: true}, h.addPending(far, nil))
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			for { // a byte a second is too slow
				if _, err := near.Write([]byte("G")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		c := dialPipe(t, near)
		if status, _ := c.refusal(); status != 408 {
			t.Errorf("%d, want 408", status)
		}
		if took := time.Since(began); took != headTimeout {
			t.Errorf("the connection ended after %v, want %v", took, headTimeout)
		}
		_ = near.Close()
		wg.Wait()
	})
}

func TestServeEndsWithContext(t *testing.T) {
	testkit.CheckLeaks(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer ln.Close()
	h := New(Config{Log: zerolog.Nop()})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Serve(ctx, ctx, ln); err != nil {
		t.Errorf("Serve: %v", err)
	}
	// The listener can be used again.
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond))
	if _, err := ln.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("accept: %v", err)
	}
	if err := h.Serve(context.Background(), ctx, failing{ln}); err == nil {
		t.Error("a listener that fails was served")
	}
}

type failing struct{ net.Listener }

func (failing) Accept() (net.Conn, error) { return nil, errors.New("broken") }
