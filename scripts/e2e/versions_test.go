package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	wire "holdfast/protocol/link"
	"holdfast/proxy/client"
	"holdfast/shared/link"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// versions are the versions of peers, with the result of the negotiation.
var versions = []struct {
	name   string
	speaks protocol.VersionRange
	agreed int // 0 if there is no common version
	advice string
}{
	{"same", protocol.VersionRange{Min: 1, Max: 1}, 1, ""},
	{"newer that knows us", protocol.VersionRange{Min: 1, Max: 5}, 1, ""},
	{"newer", protocol.VersionRange{Min: 2, Max: 3}, 0, "upgrade this side"},
	{"older", protocol.VersionRange{Min: 0, Max: 0}, 0, "upgrade the peer"},
	{"no range", protocol.VersionRange{Min: 5, Max: 1}, 0, ""},
}

// demand: S5, S13
func TestVersionsOfProxies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.echo(w.dial(client.Options{}), "s")
	for _, tt := range versions {
		nc, _, err := socket.Dial(w.ctx(), w.Path("supervisor.sock"))
		testkit.Must(t, err)
		conn, welcome, sessions, err := link.Dial(nc, wire.Hello{Protocol: tt.speaks, Version: "v9", Name: tt.name}, zerolog.Nop())
		if err == nil {
			_ = conn.Close()
			if welcome.Agreed != tt.agreed || welcome.PID != w.Only("supervisor").PID || len(sessions) != 1 || sessions[0].ID != "s" {
				t.Errorf("%s: agreed on version %d with %+v, which lists %d sessions", tt.name, welcome.Agreed, welcome, len(sessions))
			}
			continue
		}
		checkMismatch(t, tt.name, tt.agreed, tt.advice, tt.speaks, err)
	}
	v.ask("nobody is harmed")
}

// checkMismatch checks that err reports the version mismatch with both ranges and the advice.
func checkMismatch(t *testing.T, name string, agreed int, advice string, speaks protocol.VersionRange, err error) {
	t.Helper()
	var e *protocol.Error
	switch {
	case agreed != 0:
		t.Errorf("%s: %v", name, err)
	case !errors.As(err, &e) || e.Code != protocol.CodeProtocolMismatch:
		t.Errorf("%s: %v", name, err)
	case e.Local == nil || *e.Local != protocol.Supported() || e.Remote == nil || *e.Remote != speaks:
		t.Errorf("%s: the ranges in the error are %v and %v", name, e.Local, e.Remote)
	case !strings.Contains(e.Message, advice):
		t.Errorf("%s: the error text %q lacks %q", name, e.Message, advice)
	}
}

// demand: S13
func TestVersionsOfClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.echo(w.dial(client.Options{}), "s")
	for _, tt := range versions {
		p := w.client(api.Hello{Protocol: tt.speaks})
		m, err := p.receive()
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		switch m := m.(type) {
		case *api.Welcome:
			if m.Agreed != tt.agreed || m.Protocol != protocol.Supported() {
				t.Errorf("%s: agreed on version %d; the proxy supports %v", tt.name, m.Agreed, m.Protocol)
			}
		case *api.Error:
			checkMismatch(t, tt.name, tt.agreed, tt.advice, tt.speaks, &m.Error)
			if m, err := p.receive(); err == nil {
				t.Errorf("%s: after the error the connection stays open, with %+v", tt.name, m)
			}
		default:
			t.Errorf("%s: the answer to hello is %s", tt.name, m.MessageType())
		}
	}
	v.ask("nobody is harmed")
}

// The commands must neither kill nor replace a supervisor of a later release.
// demand: S13
func TestNewerSupervisor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ln, err := socket.Listen(w.Path("supervisor.sock"), socket.Options{})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	asked := make(chan protocol.VersionRange, 16)
	go serveNewer(ln, asked)
	was := inode(w.Path("supervisor.sock"))

	for _, args := range [][]string{{"serve"}, {"ls"}, {"--handoff"}} {
		begun := time.Now()
		r := w.Run("proxy", args...)
		if r.Code == 0 || r.Out != "" || !strings.Contains(r.Errout, "1-1") || !strings.Contains(r.Errout, "2-2") {
			t.Errorf("proxy %v: %v", args, r)
		}
		if took := time.Since(begun); took > limit/4 {
			t.Errorf("proxy %v reported the mismatch after %v", args, took)
		}
		if got := <-asked; got != protocol.Supported() {
			t.Errorf("the hello of proxy %v has the versions %v", args, got)
		}
	}
	testkit.Eventually(t, limit, func() bool { return len(w.Running("proxy"))+len(w.Running("supervisor")) == 0 }, "no process runs")
	if now := inode(w.Path("supervisor.sock")); now != was {
		t.Errorf("the inode of the supervisor's socket was %s; now it is %s", was, now)
	}
	nc, _, err := socket.Dial(context.Background(), w.Path("supervisor.sock"))
	if err != nil {
		t.Fatal("the supervisor's socket cannot be reached any more:", err)
	}
	_ = nc.Close()
}

// serveNewer answers as a supervisor that supports version 2 alone.
func serveNewer(ln *socket.Listener, asked chan<- protocol.VersionRange) {
	for {
		nc, _, err := ln.Accept()
		if err != nil {
			return
		}
		go func(nc net.Conn) {
			local := protocol.VersionRange{Min: 2, Max: 2}
			_, _, _ = link.Accept(nc, func(h *wire.Hello) (wire.Welcome, []protocol.SessionInfo, error) {
				asked <- h.Protocol
				return wire.Welcome{}, nil, &protocol.Error{
					Code: protocol.CodeProtocolMismatch, Local: &local, Remote: &h.Protocol,
					Message: fmt.Sprintf("no common protocol version: this side speaks %s, the peer speaks %s; upgrade the peer", local, h.Protocol),
				}
			}, zerolog.Nop())
		}(nc)
	}
}
