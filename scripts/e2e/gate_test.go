//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// A relay stands for the network between a gate and its peers, which can be cut and slow.
type relay struct {
	to string
	ln net.Listener

	accepted atomic.Int64 // number of connections that were made
	delay    atomic.Int64 // longest time, in nanoseconds, for which a piece is held

	mu     sync.Mutex
	conns  map[net.Conn]bool
	isOver bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	r := &relay{to: to, ln: ln, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		r.mu.Lock()
		r.isOver = true
		r.mu.Unlock()
		r.cut()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r.accepted.Add(1)
			wg.Go(func() { r.carry(conn) })
		}
	})
	return r
}

func (r *relay) carry(a net.Conn) {
	defer func() { _ = a.Close() }()
	b, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer func() { _ = b.Close() }()
	r.mu.Lock()
	if r.isOver {
		r.mu.Unlock()
		return
	}
	r.conns[a], r.conns[b] = true, true
	r.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { r.pump(a, b) })
	wg.Go(func() { r.pump(b, a) })
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, a)
	delete(r.conns, b)
}

// pump copies one direction. At its end it closes this direction alone, as a router does.
func (r *relay) pump(to, from net.Conn) {
	defer func() { _ = errors.Join(to.(*net.TCPConn).CloseWrite(), from.(*net.TCPConn).CloseRead()) }()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		if d := time.Duration(r.delay.Load()); d > 0 {
			time.Sleep(rand.N(d))
		}
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections, and returns their number.
func (r *relay) cut() int { return r.harm(1, true) }

// harm resets a share of the connections, or closes one direction of each, and returns their number.
func (r *relay) harm(share float64, isReset bool) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		if rand.Float64() >= share {
			continue
		}
		count++
		if isReset {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset, as from a router that has lost its state
			_ = conn.Close()
		} else {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}
	return (count + 1) / 2
}

// A gatehouse is a gate with a state directory of its own.
type gatehouse struct {
	*world
	daemon *daemon
	listen string // the address on which it listens
	public string // the address that it tells its peers, or "" if it is listen
	args   []string
}

// serve starts the gate, and returns when it serves.
func (g *gatehouse) serve(args ...string) {
	g.T.Helper()
	before, _ := os.Stat(g.Path("gate/address"))
	args = append(append([]string{"gate", "--listen", g.listen}, g.args...), args...)
	if g.public != "" {
		args = append(args, "--address", g.public)
	}
	g.daemon = g.Start(g.Command("proxy", args...))
	testkit.Eventually(g.T, limit, func() bool {
		now, err := os.Stat(g.Path("gate/address")) // the file is replaced when the gate listens
		return err == nil && (before == nil || !os.SameFile(before, now))
	}, "the gate serves")
	if g.public == "" {
		b, err := os.ReadFile(g.Path("gate/address"))
		testkit.Must(g.T, err)
		g.listen = strings.TrimSpace(string(b))
	}
}

// token returns the text with which a host joins, or with --for-gate another gate.
func (g *gatehouse) token(args ...string) string {
	g.T.Helper()
	return strings.TrimSpace(g.Must("proxy", append([]string{"gate", "token"}, args...)...))
}

// die kills the gate.
func (g *gatehouse) die() {
	g.T.Helper()
	g.daemon.Signal(syscall.SIGKILL)
	g.daemon.Wait(g.T)
}

// A fleet has a gate, and hosts that have joined it.
type fleet struct {
	*gatehouse // its world is also the world of the clients
	relay      *relay
	hosts      map[string]*world
	text       string             // the text with which clients enter the gates
	gate       client.GateOptions // the parsed text
}

// newFleet starts a gate behind a relay, and lets the hosts join it.
func newFleet(t *testing.T, names ...string) *fleet {
	t.Helper()
	f := &fleet{gatehouse: &gatehouse{world: newWorld(t), listen: testkit.FreeAddress(t)}, hosts: map[string]*world{}}
	f.serve()
	f.relay = newRelay(t, f.listen)
	f.die()
	f.public = f.relay.ln.Addr().String()
	f.serve()
	f.useGate()
	for _, name := range names {
		f.join(name, f.gatehouse)
	}
	for _, name := range names {
		f.await(name, "idle")
	}
	return f
}

// useGate makes clients use all gates that the fleet's gate knows.
func (f *fleet) useGate() {
	f.T.Helper()
	f.text = strings.TrimSpace(f.Must("proxy", "gate", "client-token"))
	f.Env = append(f.Env, "HOLDFAST_GATE="+f.text)
	var err error
	if f.gate, err = client.ParseGate(f.text); err != nil {
		f.T.Fatal(err)
	}
}

// join makes a new host join a gate.
func (f *fleet) join(name string, at *gatehouse, env ...string) *world {
	f.T.Helper()
	h := newWorld(f.T.(*testing.T), append([]string{bigRing}, env...)...)
	if out := h.Must("proxy", "join", at.token(), "--name", name, "--label", "team=red"); !strings.HasPrefix(out, name+" has joined the gate ") {
		f.T.Errorf("join prints %q", out)
	}
	f.hosts[name] = h
	return h
}

// state returns the state of a host, as "proxy hosts" prints it.
func (f *fleet) state(name string) string {
	f.T.Helper()
	for line := range strings.Lines(f.Must("proxy", "hosts")) {
		if words := strings.Fields(line); words[0] == name {
			return words[1]
		}
	}
	return ""
}

func (f *fleet) await(name, state string) {
	f.T.Helper()
	testkit.Eventually(f.T, limit, func() bool { return f.state(name) == state }, name+" is "+state)
}

// states returns HOST/ID and state of all sessions.
func (f *fleet) states(args ...string) string {
	f.T.Helper()
	var rows []gate.SessionRow
	testkit.Must(f.T, json.Unmarshal([]byte(f.Must("proxy", append([]string{"ls", "--all", "--json"}, args...)...)), &rows))
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprintf("%s/%s:%s", r.Host, r.ID, r.State))
	}
	return strings.Join(out, " ")
}

func (f *fleet) awaitStates(want string) {
	f.T.Helper()
	got := ""
	if !eventually(func() bool { got = f.states(); return got == want }) {
		f.T.Fatalf("sessions are %q, want %q", got, want)
	}
}

// enter returns a client of a host.
func (f *fleet) enter(name string) *client.Client {
	f.T.Helper()
	o := f.gate
	o.Host, o.Start = name, true
	return f.connect(client.Options{Gate: &o})
}

// A client types and reads through a gate while the host's proxy is replaced, the connections are cut, and
// the gate is killed and started again. No byte may be missing or duplicated in either direction, and the
// gate must never report a session as exited.
// demand: S9
func TestGate(t *testing.T) {
	f := newFleet(t, "red", "blue")
	c := f.enter("red")
	f.spawn(c, "flow", flowing)
	echo := f.echo(c, "echo")
	f.spawn(f.enter("blue"), "other", flowing)
	const all = "blue/other:running red/echo:running red/flow:running"
	f.awaitStates(all)
	if got := f.states("--host", "red", "--state", "running"); got != "red/echo:running red/flow:running" {
		t.Errorf("the sessions of red are %q", got)
	}
	if got := f.states("--label", "none=x"); got != "" {
		t.Errorf("the sessions with a label that no session has are %q", got)
	}

	flow := f.followLines(c, "flow")
	s := newScribe(echo)
	for _, event := range []struct {
		name    string
		disturb func()
	}{
		{"a handoff of the host's proxy", f.hosts["red"].handOff},
		{"a cut", func() {
			if n := f.relay.cut(); n < 4 {
				t.Errorf("%d connections were cut, want at least 4: of two attachments and two hosts", n)
			}
		}},
		{"another cut", func() { f.relay.cut() }},
		{"a death of the gate", func() {
			f.die()
			f.serve()
		}},
	} {
		end := beginSpan()
		event.disturb()
		before := flow.lines.Load()
		if !eventually(func() bool { return t.Failed() || flow.lines.Load() > before+50 }) { // some lines may have arrived before
			t.Errorf("after %s, the output stopped at line %d", event.name, flow.lines.Load())
		}
		worst := s.longest(t, end())
		t.Logf("%s: the longest echo took %v", event.name, worst)
		if got := f.states(); strings.Contains(got, ":exited") {
			t.Errorf("after %s the sessions are %q", event.name, got)
		}
	}
	flow.over.Store(true)
	s.stop()
	flow.wg.Wait()
	f.awaitStates(all)
	t.Logf("%d lines came", flow.lines.Load())
	f.checkSpare()
}

// checkSpare checks that a client that will attach opens the connection of its attachment beside its own, and that
// the connection ends with the client if it was not used.
func (f *fleet) checkSpare() {
	f.T.Helper()
	o := f.gate
	o.Host, o.Attaches = "red", true
	open := func() int {
		f.relay.mu.Lock()
		defer f.relay.mu.Unlock()
		return len(f.relay.conns) / 2
	}
	for _, uses := range []bool{true, false} {
		before, accepted := open(), f.relay.accepted.Load()
		c := f.connect(client.Options{Gate: &o})
		if uses {
			testkit.Must(f.T, f.attach(c, "echo", client.AttachOptions{}).Detach())
		}
		if !eventually(func() bool { return f.relay.accepted.Load() >= accepted+3 }) { // two of the client, and at least one of the host, which may use another address
			f.T.Errorf("%d connections were made", f.relay.accepted.Load()-accepted)
		}
		testkit.Must(f.T, c.Close())
		if !eventually(func() bool { return open() <= before }) {
			f.T.Errorf("%d connections are left, want at most %d", open(), before)
		}
	}
}

// typesAtGate returns a fleet of one host, and a program with the npm client that types into a session there.
func typesAtGate(t *testing.T) (*fleet, *node) {
	t.Helper()
	dir := npmClient(t)
	f := newFleet(t, "red")
	f.hosts["red"].echoAlone(f.enter("red"), "typed")
	config, err := json.Marshal([]map[string]any{{
		"name": "types", "does": "types", "session": "typed", "gate": map[string]any{"text": f.text, "host": "red"},
	}})
	testkit.Must(t, err)
	n := startNode(t, dir, filepath.Join("test", "real.mjs"))
	n.ask(string(config), "open")
	return f, n
}

// The npm client types through a gate, and must lose no byte if the connections are cut and the gate is
// killed.
// demand: S9
func TestNPMClientGate(t *testing.T) {
	t.Parallel()
	f, n := typesAtGate(t)
	for _, disturb := range []func(){
		func() { f.relay.cut() },
		func() {
			f.die()
			f.serve()
		},
		func() { f.relay.cut() },
	} {
		n.ask("on", "on")
		disturb()
	}
	n.ask("on", "on")
	t.Logf("%s", n.ask("end", "end"))
}

// If a host's agent is killed, the gate must report the host as unreachable and its sessions as unknown,
// until the agent is back. Sessions of a host without a proxy must be unknown too.
func TestGateUnknown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red", "blue")
	f.spawn(f.enter("red"), "a", shell("exec sleep 1000"))
	f.spawn(f.enter("blue"), "b", shell("exec sleep 1000"))
	f.awaitStates("blue/b:running red/a:running")
	red, blue := f.hosts["red"], f.hosts["blue"]
	finds := func(w *world, says string) {
		t.Helper()
		if r := w.Run("proxy", "doctor"); !strings.Contains(r.Out, says) {
			t.Errorf("the output of doctor does not contain %q: %v", says, r)
		}
	}
	finds(f.world, "connected hosts: 2")
	finds(red, "the agent of red is connected")
	red.Kill(lookup(red.Holder("join.sock")))
	f.await("red", "unreachable")
	finds(f.world, "hosts that are not connected: red")
	finds(red, "its agent does not run")
	if got := f.states("--state", "unknown"); got != "red/a:unknown" {
		t.Errorf("the unknown sessions are %q", got)
	}
	if r := f.Run("proxy", "info", "red/a"); r.Code != 69 || !strings.Contains(r.Errout, "red is not connected to the gate") {
		t.Errorf("info of a session of an unreachable host: %v", r)
	}
	red.Must("proxy", "join")
	f.awaitStates("blue/b:running red/a:running")

	blue.Must("proxy", "stop")
	f.awaitStates("blue/b:unknown red/a:running")
	if out := f.Must("proxy", "ls", "--on", "blue"); !strings.Contains(out, "b ") { // ls starts a proxy
		t.Errorf("ls prints %s", out)
	}
	f.awaitStates("blue/b:running red/a:running")
	f.Must("proxy", "kill", "blue/b")
	f.awaitStates("blue/b:exited red/a:running")
	f.Must("proxy", "forget", "blue/b")
	f.awaitStates("red/a:running")
}

// A name without a host means the session on this host, if there is one, and otherwise the only session of
// the fleet with this id.
func TestGateNames(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red", "blue")
	red := f.enter("red")
	f.spawn(red, "one", shell("exec sleep 1000"))
	f.spawn(red, "both", shell("exec sleep 1000"))
	f.spawn(f.enter("blue"), "both", shell("exec sleep 2000"))
	f.awaitStates("blue/both:running red/both:running red/one:running")
	if got := f.states("--command", "sleep 2000"); got != "blue/both:running" {
		t.Errorf("the sessions that sleep for 2000 s are %q", got)
	}
	for _, tt := range []struct {
		id, says string
		code     int
	}{
		{"one", "sleep 1000", 0}, {"both", "blue/both, red/both", 66}, {"none", "neither on this host nor on a host of the gate", 66},
	} {
		if r := f.Run("proxy", "info", tt.id); r.Code != tt.code || !strings.Contains(r.Out+r.Errout, tt.says) {
			t.Errorf("info %s: %v, want %d and %q", tt.id, r, tt.code, tt.says)
		}
	}
	testkit.Eventually(t, limit, func() bool { // the gate may be late for one completion
		return strings.Contains(f.Must("proxy", "__complete", "attach", "red/"), "red/one\trunning, ")
	}, "the names of red are completed")

	if out := f.Must("proxy", "new", "-d", "--place", "team=red", "--id", "placed", "--", "sleep", "1000"); out != "blue/placed\n" { // blue has one session, and red has two
		t.Errorf("the placed session is %q, want blue/placed", out)
	}
	if r := f.Run("proxy", "new", "-d", "--place", "team=none", "--", "true"); r.Code != 69 || !strings.Contains(r.Errout, "team=none") {
		t.Errorf("new with a label that no host has: %v", r)
	}

	f.Must("proxy", "new", "-d", "--id", "both", "--", "sleep", "3000")
	if out := f.Must("proxy", "info", "both"); !strings.Contains(out, "sleep 3000") {
		t.Errorf("with a session on this host info prints %s", out)
	}
	if r := f.Run("proxy", "kill", "one", "none", "both"); r.Code != 66 || !strings.Contains(r.Errout, "none is neither") {
		t.Errorf("kill: %v", r)
	}
	f.awaitStates("blue/both:running blue/placed:running red/both:running red/one:exited")
	if out := f.Must("proxy", "ls"); !strings.Contains(out, "exited") {
		t.Errorf("ls prints %s", out)
	}
}

// If the socket of an agent was removed, the host does not leave without its agent, which would stay, and leaves as soon
// as the agent has made the socket again.
func TestLeaveWithoutSocket(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red")
	red := f.hosts["red"]
	testkit.Must(t, os.Remove(red.Path("join.sock")))
	if r := red.Run("proxy", "leave"); r.Code != 75 || !strings.Contains(r.Errout, "the file of the socket is gone; try again") {
		t.Errorf("leave without the socket: %v", r)
	}
	testkit.Eventually(t, limit, func() bool { return red.Run("proxy", "leave").Code == 0 }, "the host leaves")
	testkit.Eventually(t, limit, func() bool {
		held, err := socket.Locked(red.Path("join.sock"))
		return !held && err == nil
	}, "the agent ends")
	if out := f.Must("proxy", "hosts"); strings.Contains(out, "red") {
		t.Errorf("the host is still there: %s", out)
	}
}

// Tests which hosts may join and which clients may enter a gate, and until when.
func TestGateAccess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red")
	used := f.token()
	third := newWorld(t)
	third.Must("proxy", "join", used, "--name", "third")
	fourth := newWorld(t)
	for _, tt := range []struct {
		says string
		args []string
	}{
		{"was used before", []string{used, "--name", "fourth"}},
		{"the name red belongs to another host", []string{f.token(), "--name", "red"}},
		{"another fingerprint", []string{strings.Replace(used, f.gate.Fingerprint, strings.Repeat("0", 64), 1)}},
	} {
		if r := fourth.Run("proxy", append([]string{"join"}, tt.args...)...); r.Code != 77 || !strings.Contains(r.Errout, tt.says) {
			t.Errorf("join %v: %v, want 77 and %q", tt.args, r, tt.says)
		}
		if _, err := os.Stat(fourth.Path("join.json")); err == nil {
			t.Error("a refused host has stored a key")
		}
	}
	for _, wrong := range []func(*client.GateOptions){
		func(o *client.GateOptions) { o.Token = protocol.NewToken(32) },
		func(o *client.GateOptions) { o.Fingerprint = protocol.NewToken(32) },
	} {
		o := f.gate
		o.Host = "red"
		wrong(&o)
		if _, err := client.Dial(f.ctx(), client.Options{Gate: &o}); protocol.CodeOf(err) != protocol.CodeUnauthorized {
			t.Errorf("a client with a wrong credential: %v, want unauthorized", err)
		}
	}
	c := f.enter("red")
	f.spawn(c, "a", shell("exec sleep 1000"))
	v := f.attach(c, "a", client.AttachOptions{})
	begin := time.Now()
	f.Must("proxy", "gate", "revoke", "red")
	for {
		if _, err := v.Receive(limit); err != nil {
			break
		}
	}
	if took := time.Since(begin); took > 5*time.Second { // includes the start of the command on a loaded machine
		t.Errorf("the client of a revoked host was disconnected after %v, want at most 5s", took)
	}
	if got := f.state("red"); got != "" {
		t.Errorf("the state of the revoked host is %s, want no entry", got)
	}
	f.hosts["red"].Must("proxy", "info", "a") // the session lives
	f.hosts["red"].Must("proxy", "leave")
	third.Must("proxy", "leave")
	testkit.Eventually(t, limit, func() bool { return f.state("third") == "" }, "third has left")
}
