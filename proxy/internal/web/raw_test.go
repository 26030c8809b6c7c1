package web

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/testkit"
)

func TestRawBytes(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo", "cols=100", "rows=30"))
	if got := c.bytes(len(snapshot)); string(got) != snapshot {
		t.Errorf("snapshot %q", got)
	}
	if spec := e.viewer().spec; spec.Cols != 100 || spec.Rows != 30 || spec.Mode != "" {
		t.Errorf("spec %+v", spec)
	}
	var want []byte
	for a := range 256 { // each byte alone and between others
		p := []byte{byte(a), 0, byte(255 - a)}
		c.frame(ws.OpBinary, true, p)
		want = append(want, p...)
	}
	c.frame(ws.OpText, true, []byte("täst\r"))
	want = append(want, "täst\r"...)
	big := wide(300_000)
	c.frame(ws.OpBinary, false, big[:1])
	c.frame(ws.OpContinuation, true, big[1:])
	want = append(want, big...)
	if got := c.bytes(len(want)); !bytes.Equal(got, want) {
		t.Errorf("echo of %d bytes differs", len(want))
	}
}

func TestRawEnd(t *testing.T) {
	exit := func(r protocol.ExitRecord) protocol.Message { return wire.Exited{SessionID: "echo", Exit: r} }
	tests := []struct {
		name   string
		last   protocol.Message
		status ws.StatusCode
		reason string
	}{
		{"exit", exit(protocol.ExitRecord{}), 1000, "exited 0"},
		{"exit with a code", exit(protocol.ExitRecord{ExitCode: 2}), 1000, "exited 2"},
		{"killed", exit(protocol.ExitRecord{ExitCode: 143, Signal: "SIGTERM"}), 1000, "killed by SIGTERM"},
		{"stolen", wire.Stolen{StolenBy: "thief"}, 4001, "stolen"},
		{"our fault", wire.Error{Error: *protocol.Errorf(protocol.CodeInternal, "x")}, 1011, "internal"},
	}
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, addr, rawURL("echo"))
			v := e.viewer()
			last := wide(200_000)
			go func() {
				_ = v.print(last)
				v.tell(tt.last, true)
			}()
			if got := c.bytes(len(snapshot) + len(last)); !bytes.HasSuffix(got, last) {
				t.Error("the last bytes differ")
			}
			if status, reason := c.closing(); status != tt.status || reason != tt.reason {
				t.Errorf("close %d %q, want %d %q", status, reason, tt.status, tt.reason)
			}
		})
	}
}

// A freezingServer lets a freeze of the handler begin between the handshake of a raw WebSocket and its acceptance.
type freezingServer struct {
	Server
	freeze func()
}

func (s freezingServer) AcceptBare(ctx context.Context, t apiserver.Transport, from apiserver.Origin, link *linkclient.Attachment, info *protocol.AttachInfo) (serve func() (moved bool)) {
	s.freeze()
	return s.Server.AcceptBare(ctx, t, from, link, info)
}

// A raw WebSocket that is accepted while requests are frozen is served, or moved as the other ones of its server.
func TestRawDuringFreeze(t *testing.T) {
	e := newEnv(t)
	h := e.handler(true)
	frozen := make(chan error, 1)
	h.cfg.Server = freezingServer{h.cfg.Server, func() {
		go func() {
			_, err := h.Freeze(testkit.Soon(t))
			frozen <- err
		}()
		testkit.Eventually(t, limit, h.isMoving, "the freeze begins")
	}}
	c := open(t, e.listen(h), rawURL("echo"))
	testkit.Must(t, testkit.Within(t, limit, "the freeze ends", frozen))
	c.bytes(len(snapshot))
	c.frame(ws.OpBinary, true, []byte("input"))
	if got := c.bytes(len("input")); string(got) != "input" {
		t.Errorf("received %q", got)
	}
}

func TestRawTellsNothingElse(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	v := e.viewer()
	_ = v.print([]byte("a"))
	v.tell(wire.Resized{Cols: 1, Rows: 1}, false)
	v.tell(wire.Error{Error: protocol.Error{Code: protocol.CodeLineTooLong, Offset: new(uint64)}}, false)
	v.tell(wire.Error{Error: *protocol.Errorf(protocol.CodeSessionNotFound, "ending")}, false)
	v.tell(wire.Resync{Offset: 5, BytesMissed: 4, SnapshotBytes: 3}, false)
	_ = v.st.SendRaw(frame.AppendData(nil, frame.Snapshot, v.n, 5, []byte("new")))
	want := snapshot + "a\x1bcnew"
	if got := c.bytes(len(want)); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A client may ask for its own view, whose frames are sent as bytes like others. When it closes, the supervisor
// receives a detach.
func TestRawView(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo", "view=own", "cols=50"))
	v := e.viewer()
	if v.spec.View != protocol.ViewOwn || v.spec.Cols != 50 {
		t.Errorf("spec %+v", v.spec)
	}
	_ = v.st.SendRaw(frame.AppendData(nil, frame.View, v.n, 5, []byte("view")))
	if got := c.bytes(len(snapshot) + 4); string(got) != snapshot+"view" {
		t.Errorf("got %q", got)
	}
	_ = c.nc.Close()
	<-v.over
	if !v.left {
		t.Error("the supervisor has not received a detach")
	}
}

// When the proxy ends, the viewer is not detached, because it resumes through the next proxy.
func TestRawLost(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	c.bytes(len(snapshot))
	v := e.viewer()
	e.stop()
	<-v.over
	if v.left {
		t.Error("the supervisor has received a detach")
	}
}

func TestRawReadOnly(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo", "mode=read_only"))
	v := e.viewer()
	if v.spec.Mode != protocol.ModeReadOnly {
		t.Errorf("mode %q", v.spec.Mode)
	}
	c.bytes(len(snapshot))
	c.frame(ws.OpText, true, []byte("ignored"))
	c.frame(ws.OpPing, true, nil) // is read after the input
	if op, _ := c.next(); op != ws.OpPong {
		t.Errorf("opcode %d, want a pong", op)
	}
	if got := e.sup.typedSoFar(); len(got) > 0 {
		t.Errorf("typed %q", got)
	}
}

func TestRawFaults(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	tests := []struct {
		name   string
		send   []byte
		status ws.StatusCode
	}{
		{"too large", masked(ws.OpBinary, true, make([]byte, frame.Max+1)), 1009},
		{"not UTF-8", masked(ws.OpText, true, []byte("\xff")), 1007},
		{"reserved", masked(5, true, nil), 1002},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, addr, rawURL("echo"))
			c.bytes(len(snapshot))
			c.send(string(tt.send))
			if status, reason := c.closing(); status != tt.status {
				t.Errorf("close %d %q, want %d", status, reason, tt.status)
			}
			<-e.viewer().over
		})
	}
}

// Input arrives once and in order, even if the supervisor's queue is full.
func TestRawInputIsSentAgain(t *testing.T) {
	e := newEnv(t)
	e.sup.room, e.sup.silent = 10, true
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	v := e.viewer()
	want := wide(3 << 20) // more than the proxy holds
	go func() {
		for p := want; len(p) > 0; {
			n := min(len(p), 60_000)
			_, _ = c.nc.Write(masked(ws.OpBinary, true, p[:n]))
			p = p[n:]
		}
	}()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for got := 0; got < len(want); {
		n := rng.IntN(100_000)
		if rng.IntN(4) == 0 {
			n = 1
		}
		e.sup.makeRoom(n)
		target := min(got+n, len(want))
		eventually(t, func() bool { return e.sup.typedCount() >= target }, "room is used")
		got = target
	}
	if got := e.sup.typedSoFar(); !bytes.Equal(got, want) {
		t.Errorf("seed %d: %d bytes arrived that differ from the %d sent", seed, len(got), len(want))
	}
	_ = c.nc.Close()
	<-v.over
}

func TestRawOutlivesTheLink(t *testing.T) {
	e := newEnv(t)
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	c.bytes(len(snapshot))
	for i := range 5 {
		v := e.viewer()
		want := wide(100_000 + i)
		go func() { _, _ = c.nc.Write(masked(ws.OpBinary, true, want)) }()
		got := c.bytes(1)
		e.sup.Cut() // while input and output are in progress
		<-v.over
		if got = append(got, c.bytes(len(want)-len(got))...); !bytes.Equal(got, want) {
			t.Fatalf("round %d: the echo differs", i)
		}
	}
}

func TestRawEndsWhileTheLinkIsDown(t *testing.T) {
	tests := []struct {
		name   string
		err    *protocol.Error
		status ws.StatusCode
		reason string
	}{
		{"ended", &protocol.Error{Code: protocol.CodeSessionExited, Exit: &protocol.ExitRecord{ExitCode: 3}}, 1000, "exited 3"},
		{"unknown", protocol.Errorf(protocol.CodeSessionNotFound, ""), 1011, "session_not_found"},
		{"another life", protocol.Errorf(protocol.CodeInstanceMismatch, ""), 1011, "instance_mismatch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			c := open(t, e.listen(e.handler(true)), rawURL("echo"))
			c.bytes(len(snapshot))
			e.sup.mu.Lock()
			e.sup.fails["echo"] = tt.err
			e.sup.mu.Unlock()
			e.sup.Cut()
			if status, reason := c.closing(); status != tt.status || reason != tt.reason {
				t.Errorf("close %d %q, want %d %q", status, reason, tt.status, tt.reason)
			}
		})
	}
}

// A client that disconnects while it is not read is noticed.
func TestRawStalledClientGoes(t *testing.T) {
	e := newEnv(t)
	e.sup.room, e.sup.silent = 0, true
	e.server = apiserver.New(apiserver.Config{Link: e.link, ProbeEvery: 5 * time.Millisecond, Log: zerolog.Nop()})
	c := open(t, e.listen(e.handler(true)), rawURL("echo"))
	v := e.viewer()
	c.bytes(len(snapshot))
	go func() { // more than the connection holds
		for range 100 {
			if _, err := c.nc.Write(masked(ws.OpBinary, true, make([]byte, 1<<20))); err != nil {
				return
			}
		}
	}()
	if op, _ := c.next(); op != ws.OpPing {
		t.Errorf("opcode %d, want a ping", op)
	}
	_ = c.nc.Close()
	<-v.over
}

func TestSlowClientHoldsUpNobody(t *testing.T) {
	e := newEnv(t)
	addr := e.listen(e.handler(true))
	for _, path := range []string{rawURL("echo"), rawURL("echo")} {
		slow := open(t, addr, path)
		v := e.viewer()
		stuck := make(chan struct{})
		go func() {
			defer close(stuck)
			for v.print(make([]byte, frame.MaxData)) == nil {
			}
		}()
		t.Cleanup(func() { _ = slow.nc.Close(); <-stuck })
	}
	quick := open(t, addr, rawURL("echo"))
	quick.bytes(len(snapshot))
	for range 100 {
		quick.frame(ws.OpText, true, []byte("x"))
		quick.bytes(1)
	}
}
