package apiserver

import (
	"context"
	"net"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/pipe"
	"holdfast/shared/testkit"
)

// pipeListener accepts connections like the listener of a named pipe.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, pipe.Peer, error) {
	nc, ok := <-l
	if !ok {
		return nil, pipe.Peer{}, net.ErrClosed
	}
	return nc, pipe.Peer{SID: "S-1-5-21-1", PID: 12}, nil
}

// Without a supervisor, as on Windows, a client can connect and learn about the proxy. A request that needs a
// terminal fails at once with unsupported_os, which is not retryable.
// demand: M14, S12
func TestServePipe(t *testing.T) {
	w := newWorld(t, func(cfg *Config) {
		cfg.Link = linkclient.New(linkclient.Config{
			Dial: func(context.Context) (net.Conn, error) {
				return nil, protocol.Errorf(protocol.CodeUnsupportedOS, "no terminals here")
			},
			Start: func(context.Context) error { t.Error("started a supervisor"); return nil },
			Hello: func() wire.Hello { return wire.Hello{} },
			Log:   zerolog.Nop(),
		})
	})
	ln := make(pipeListener)
	served := make(chan struct{})
	w.wg.Go(func() {
		defer close(served)
		if err := w.server.ServePipe(context.Background(), ln); err != nil {
			t.Error(err)
		}
	})
	a, b := w.pair()
	ln <- b
	close(ln)
	testkit.Within(t, patience, "ServePipe ends with its listener", served)

	c := &client{t: t, nc: a, frames: frame.NewReader(a, frame.Max)}
	c.hello() // without a token, because the system has authenticated the client
	const id = protocol.SessionID("one")
	for _, m := range []protocol.Message{
		api.List{Request: req("list")},
		api.Spawn{Request: req("spawn"), SpawnSpec: protocol.SpawnSpec{Argv: []string{"cmd"}}},
		api.Attach{Request: req("attach"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: id}},
		api.Screen{Request: req("screen"), ScreenSpec: protocol.ScreenSpec{SessionID: id}},
		api.Events{Request: req("events")},
	} {
		c.send(m)
		if e := c.wantError(protocol.CodeUnsupportedOS); e.Retryable || e.Message != "no terminals here" {
			t.Errorf("%s: received %+v", m.MessageType(), e)
		}
	}
	c.send(api.TerminalOpen{TaskID: "task"})
	if e := expect[*api.TerminalError](c); e.Code != protocol.CodeUnsupportedOS {
		t.Errorf("terminal.open: received %+v", e)
	}
	c.send(api.Status{Request: req("status")})
	if s := expect[*api.StatusReport](c); s.Supervisor != nil || s.Proxy.Clients != 1 || s.Proxy.Sessions != 0 {
		t.Errorf("status: %+v", s)
	}
	if n := w.server.Counts().Connections[TransportPipe]; n != 1 {
		t.Errorf("%d connections by pipe, want 1", n)
	}
}
