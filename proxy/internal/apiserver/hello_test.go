package apiserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// demand: R8
func TestHello(t *testing.T) {
	w := newWorld(t, nil)
	c := w.connect(trusted)
	c.send(api.Hello{Protocol: protocol.VersionRange{Min: 1, Max: 9}, Client: "tester", Capabilities: protocol.Capabilities{"from.the.future"}})
	m := expect[*api.Welcome](c)
	if m.Agreed != protocol.Version || m.Protocol != protocol.Supported() || m.PID != os.Getpid() || m.Instance == "" || m.Version == "" {
		t.Errorf("the welcome is %+v", m)
	}
	for _, c := range []protocol.Capability{protocol.CapTerminalExit, protocol.CapWebTicket, protocol.CapAutomation, protocol.CapCage, protocol.CapDurable} {
		if !m.Capabilities.Has(c) {
			t.Errorf("the capabilities are %v, without %s", m.Capabilities, c)
		}
	}
}

// demand: S11
func TestRefused(t *testing.T) {
	hello := func(m api.Hello) []byte {
		if m.Protocol == (protocol.VersionRange{}) {
			m.Protocol = protocol.Supported()
		}
		b, err := protocol.Encode(m)
		testkit.Must(t, err)
		return frame.Append(nil, frame.Control, b)
	}
	good := hello(api.Hello{Client: "tester"})
	unknown := Origin{Transport: "websocket"}
	token, secret := strings.Repeat("t", 64), "the right secret"
	tests := []struct {
		name     string
		raw      []byte
		from     Origin
		cfg      Config
		want     protocol.Code // "" if the client is accepted
		security bool
	}{
		{name: "good", raw: good, from: trusted},
		{name: "a request", raw: text(`{"type":"list","request_id":"1"}`), from: trusted, want: protocol.CodeHelloRequired},
		{name: "an unknown message", raw: text(`{"type":"teleport"}`), from: trusted, want: protocol.CodeHelloRequired},
		{name: "input", raw: frame.AppendData(nil, frame.Input, 1, 0, []byte("rm\n")), from: trusted, want: protocol.CodeHelloRequired},
		{name: "no JSON", raw: text("hello?"), from: trusted, want: protocol.CodeBadFrame},
		{name: "a field of another type", raw: text(`{"type":"hello","client":1}`), from: trusted, want: protocol.CodeBadFrame},
		{name: "an empty frame", raw: []byte{0, 0, 0, 0}, from: trusted, want: protocol.CodeBadFrame},
		{name: "HTTP", raw: []byte("GET / HTTP/1.1\r\n\r\n"), from: trusted, want: protocol.CodeFrameTooLarge},
		{name: "64 KiB", raw: frame.Append(nil, frame.Control, append(good[frame.HeaderLen:], make([]byte, frame.MaxHello-1-len(good)+frame.HeaderLen)...)), from: trusted, want: protocol.CodeBadFrame},
		{name: "more than 64 KiB", raw: frame.AppendHeader(nil, frame.Control, frame.MaxHello), from: trusted, want: protocol.CodeFrameTooLarge},
		{name: "a newer client", raw: hello(api.Hello{Protocol: protocol.VersionRange{Min: 7, Max: 9}, Client: "x"}), from: trusted, want: protocol.CodeProtocolMismatch},
		{name: "no versions", raw: text(`{"type":"hello","client":"x"}`), from: trusted, want: protocol.CodeProtocolMismatch},
		{name: "no name", raw: hello(api.Hello{}), from: trusted, want: protocol.CodeInvalidArgument},
		{name: "a long name", raw: hello(api.Hello{Client: strings.Repeat("x", 257)}), from: trusted, want: protocol.CodeInvalidArgument},
		{name: "the longest name", raw: hello(api.Hello{Client: strings.Repeat("x", 256)}), from: trusted},

		{name: "no token", raw: good, from: unknown, cfg: Config{Token: token}, want: protocol.CodeUnauthorized, security: true},
		{name: "another token", raw: hello(api.Hello{Client: "x", Token: token[1:] + "x"}), from: unknown, cfg: Config{Token: token}, want: protocol.CodeUnauthorized, security: true},
		{name: "the token", raw: hello(api.Hello{Client: "x", Token: token}), from: unknown, cfg: Config{Token: token}},
		{name: "no token is none", raw: good, from: unknown, want: protocol.CodeUnauthorized, security: true},
		{name: "the system vouches", raw: good, from: trusted, cfg: Config{Token: token}},
		{name: "no secret", raw: good, from: trusted, cfg: Config{Secret: secret}, want: protocol.CodeUnauthorized, security: true},
		{name: "another secret", raw: hello(api.Hello{Client: "x", Secret: "the right secre"}), from: trusted, cfg: Config{Secret: secret}, want: protocol.CodeUnauthorized, security: true},
		{name: "the secret", raw: hello(api.Hello{Client: "x", Secret: secret}), from: trusted, cfg: Config{Secret: secret}},
		{name: "the secret, no token", raw: hello(api.Hello{Client: "x", Secret: secret}), from: unknown, cfg: Config{Secret: secret, Token: token}, want: protocol.CodeUnauthorized, security: true},
		{name: "no word of versions to a stranger", raw: hello(api.Hello{Protocol: protocol.VersionRange{Min: 7, Max: 9}, Client: "x"}), from: unknown, want: protocol.CodeUnauthorized, security: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Token, c.Secret = tt.cfg.Token, tt.cfg.Secret })
			c := w.connect(tt.from)
			c.raw(append(tt.raw, text(`{"type":"list","request_id":"behind"}`)...))
			if tt.want == "" {
				expect[*api.Welcome](c)
				return
			}
			e := c.wantError(tt.want)
			if e.RequestID != "" || e.Attachment != nil {
				t.Errorf("received %+v", e)
			}
			if tt.want == protocol.CodeProtocolMismatch && (e.Local == nil || e.Remote == nil || *e.Local != protocol.Supported()) {
				t.Errorf("the error names the versions %v and %v", e.Local, e.Remote)
			}
			c.wantEnd()
			if n := len(w.Requests()); n > 0 {
				t.Errorf("the supervisor received %d requests", n)
			}
			log := w.log.String()
			if strings.Contains(log, `"security":true`) != tt.security {
				t.Errorf("a security event is %v: %s", !tt.security, log)
			}
			if strings.Contains(log, token[1:]) || strings.Contains(log, secret) {
				t.Errorf("a secret is in the log: %s", log)
			}
		})
	}
}

// A client that does not send its hello is disconnected after two seconds, whatever else it sends.
func TestSilence(t *testing.T) {
	for name, says := range map[string][]byte{
		"nothing": nil, "half a header": {0, 0}, "half a hello": text(`{"type":"hello"}`)[:12],
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{Link: linkclient.New(linkclient.Config{}), Log: zerolog.Nop()})
				a, b := net.Pipe()
				defer a.Close()
				begun := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.Accept(context.Background(), NewStream(b, nil), trusted)()
				}()
				for i := range says {
					time.Sleep(100 * time.Millisecond)
					if _, err := a.Write(says[i : i+1]); err != nil {
						t.Error(err)
					}
				}
				<-done
				if took := time.Since(begun); took != helloTimeout {
					t.Errorf("the connection ended after %v", took)
				}
			})
		})
	}
}

// After its hello a client may be silent for any time.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Link: linkclient.New(linkclient.Config{}), Log: zerolog.Nop()})
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Accept(context.Background(), NewStream(b, nil), trusted)()
		}()
		c := &client{t: t, nc: a, frames: frame.NewReader(a, frame.Max), served: done}
		c.send(api.Hello{Protocol: protocol.Supported(), Client: "x"})
		expect[*api.Welcome](c)
		time.Sleep(24 * time.Hour)
		c.ping()
		a.Close()
		<-done
	})
}

// Clients whose connections end within a frame cannot fill the log.
func TestLostConnectionsInLog(t *testing.T) {
	w := newWorld(t, nil)
	for range 40 {
		c := w.client()
		c.raw([]byte{0, 0}) // the beginning of a frame
		c.nc.Close()
		testkit.Within(t, patience, "the end of the connection", c.served)
	}
	if n := strings.Count(w.log.String(), "connection to client lost"); n == 0 || n > 30 {
		t.Errorf("%d lines are in the log", n)
	}
}

// The limits of frames after the hello.
func TestFrameLimits(t *testing.T) {
	w := newWorld(t, nil)
	c := w.client()
	head := `{"type":"teleport","request_id":"big","x":"`
	c.raw(text(head + strings.Repeat("x", frame.Max-1-len(head)-2) + `"}`)) // the largest frame
	if e := c.wantError(protocol.CodeUnsupported); e.RequestID != "big" {
		t.Errorf("received %+v", e)
	}
	c.raw(frame.Append(nil, 77, []byte("of another kind"))) // a frame of an unknown kind is skipped
	c.ping()
	c.raw(frame.AppendHeader(nil, frame.Control, frame.Max))
	c.wantError(protocol.CodeFrameTooLarge)
	c.wantEnd()

	for name, raw := range map[string][]byte{
		"no JSON": text("{{{"), "no type": text("{}"), "a field of another type": text(`{"type":"info","session_id":1}`),
		"an empty frame": {0, 0, 0, 0}, "short input": frame.Append(nil, frame.Input, []byte("short")),
	} {
		t.Run(name, func(t *testing.T) {
			c := w.client()
			c.raw(raw)
			if e := c.wantError(protocol.CodeBadFrame); e.RequestID != "" {
				t.Errorf("received %+v", e)
			}
			c.wantEnd()
		})
	}
}

// ServeListener on a real socket.
func TestServeListener(t *testing.T) {
	w := newWorld(t, nil)
	ln, err := socket.Listen(filepath.Join(testkit.Dir(t), "api"), socket.Options{})
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.server.ServeListener(ctx, context.Background(), ln) }()
	nc, err := net.Dial("unix", ln.Path())
	testkit.Must(t, err)
	defer nc.Close()
	c := &client{t: t, nc: nc, frames: frame.NewReader(nc, frame.Max)}
	c.send(api.Hello{Protocol: protocol.Supported(), Client: "x"})
	expect[*api.Welcome](c)
	cancel()
	ln.Close()
	if err := testkit.Within(t, patience, "ServeListener returns", done); err != nil {
		t.Error(err)
	}
	c.ping() // connections continue after the listener has stopped

	// ServeListener returns the error of a listener that fails.
	ln2, err := socket.Listen(filepath.Join(testkit.Dir(t), "api"), socket.Options{})
	testkit.Must(t, err)
	defer ln2.Close()
	_ = ln2.SetDeadline(time.Unix(1, 0))
	if err := w.server.ServeListener(context.Background(), context.Background(), ln2); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a listener that fails: %v", err)
	}
}
