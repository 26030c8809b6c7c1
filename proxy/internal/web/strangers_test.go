package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/internal/pass"
)

// A flood of connections without authentication neither keeps out clients that authenticate, nor ends their
// connections.
func TestStrangers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sends func(addr net.Addr) string
	}{
		{"heads that do not end", func(net.Addr) string { return "GET " }},
		{"nothing", func(net.Addr) string { return "" }},
		{"WebSockets without a hello", func(addr net.Addr) string { return handshake(addr, "/v1/api") }},
		{"answers that are not fetched", func(addr net.Addr) string { return strings.Repeat(getting(addr, "/metrics"), 3) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			h := e.handler(false)
			h.cfg.Page, h.cfg.Files, h.passes = true, files, pass.NewKey(token)
			// With a quarter of the limits, the flood costs little processor time. A stranger that is not closed keeps its
			// place for 2 s, so a client that is kept out waits longer than a second.
			h.maxStranger, h.quota.Max, h.quota.MaxOfOne = maxStrangers/4, maxTCPConns/4, maxTCPConns/4
			addr := e.listen(h)
			mine := signIn(t, e, addr)
			own := "Origin: http://" + addr.String()
			page, program := open(t, addr, "/v1/api", own, "Cookie: "+mine), open(t, addr, "/v1/api")
			page.hello("")
			program.hello(token)

			var last net.Addr
			for range 150 {
				nc, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Fatal(err)
				}
				last = nc.LocalAddr()
				t.Cleanup(func() { _ = nc.Close() })
				_, _ = nc.Write([]byte(tt.sends(addr))) // the server may have closed the connection
			}
			eventually(t, func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return slices.ContainsFunc(h.strangers, func(a *pendingConn) bool { return a.nc.RemoteAddr().String() == last.String() })
			}, "all connections of the flood are accepted")
			began := time.Now()
			if r, _ := get(t, addr, "/", "Cookie: "+mine); r.StatusCode != http.StatusOK {
				t.Errorf("the page has the status %d", r.StatusCode)
			}
			open(t, addr, "/v1/api", own, "Cookie: "+mine).hello("")
			open(t, addr, "/v1/api").hello(token)
			if took := time.Since(began); took > time.Second {
				t.Errorf("clients that authenticate waited %v", took)
			}
			for name, c := range map[string]*client{"the page": page, "the program": program} {
				c.message(api.List{Request: protocol.Request{RequestID: "l"}})
				receive[api.Sessions](c)
				if t.Failed() {
					t.Fatal(name)
				}
			}
			h.mu.Lock()
			strangers, conns := len(h.strangers), h.quota.Count()
			h.mu.Unlock()
			if strangers > maxStrangers/4 || conns > maxStrangers/4+5 {
				t.Errorf("%d strangers among %d connections", strangers, conns)
			}
			if n := strings.Count(e.log.String(), "the oldest ones are closed"); n != 1 && tt.name != "answers that are not fetched" {
				t.Errorf("logged %d times, want once", n)
			}
		})
	}
}

func getting(addr net.Addr, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + addr.String() + "\r\n\r\n"
}

// If authenticated clients use all connections, a connection without authentication is accepted only in the place of
// another one.
func TestStrangersAndTheKnown(t *testing.T) {
	e := newEnv(t)
	h := e.handler(false)
	h.quota.Max = 3
	addr := e.listen(h)
	for range 2 {
		open(t, addr, "/v1/api").hello(token)
	}
	first := dial(t, addr)
	first.send("GET ")
	eventually(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.quota.Count() == 3 }, "three connections")
	open(t, addr, "/v1/api").hello(token)
	if _, err := io.Copy(io.Discard, first.br); errors.Is(err, os.ErrDeadlineExceeded) { // it may receive an answer before
		t.Error("the slow connection is not closed")
	}
	if status, err := dial(t, addr).refusal(); status != 503 || err.Code != protocol.CodeLimitExceeded {
		t.Errorf("%d %v, want 503", status, err)
	}
}
