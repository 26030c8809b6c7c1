//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// checking is a session that answers each numbered line with its number. If a number is not the expected one,
// the answer contains both.
var checking = shell(`stty raw -echo; echo ready; i=0; while read n; do i=$((i+1)); [ "$n" = $i ] && echo "line $i" || echo "line $i is $n"; done`)

// A caller types numbered lines into a session that runs checking, also before it has received the answers to
// earlier lines. It fails the test unless each line is answered once and in order.
type caller struct {
	id       protocol.SessionID
	a        *client.Attachment
	wg       sync.WaitGroup
	over     chan struct{}
	answered atomic.Int64 // number of answered lines

	mu    sync.Mutex // held while a line is typed
	typed int64      // number of typed lines
	waits []wait
}

// A wait receives the time of the answer to a line.
type wait struct {
	line  int64
	ended chan<- time.Time
}

// newCaller starts a session that runs checking, and types three lines at random times, on average once per
// every.
func newCaller(w *world, c *client.Client, id string, every time.Duration) *caller {
	w.T.Helper()
	w.spawn(c, id, checking)
	v := w.attach(c, id, client.AttachOptions{})
	v.until("ready\n")
	x := &caller{id: protocol.SessionID(id), a: v.Attachment, over: make(chan struct{})}
	x.wg.Go(func() {
		if err := x.read(v.buf); err != nil {
			w.T.Errorf("%s: after line %d of %d: %v", id, x.answered.Load(), x.lines(), err)
		}
	})
	x.wg.Go(func() {
		for {
			select {
			case <-time.After(rand.N(2 * every)):
				for range 3 {
					x.say(nil)
				}
			case <-x.over:
				return
			}
		}
	})
	w.T.Cleanup(x.stop)
	return x
}

// say types the next line. Its answer is sent to ended, unless that is nil.
func (x *caller) say(ended chan<- time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.typed++
	if ended != nil {
		x.waits = append(x.waits, wait{x.typed, ended})
	}
	_, _ = fmt.Fprintln(x.a, x.typed) // if it fails, read reports the error
}

func (x *caller) lines() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.typed
}

// read returns nil when the caller is stopped, or an error if an answer is wrong.
func (x *caller) read(seen []byte) error {
	for {
		m, err := x.a.Receive(-1)
		switch {
		case errors.Is(err, io.EOF):
			return nil // the caller was stopped
		case err != nil:
			return err
		case m.Kind != client.Output && m.Kind != client.Resized:
			return fmt.Errorf("unexpected message %+v", m)
		}
		for seen = append(seen, m.Data...); ; {
			line, rest, isWhole := bytes.Cut(seen, []byte("\n"))
			if !isWhole {
				break
			}
			n := x.answered.Load() + 1
			if want := fmt.Sprint("line ", n); string(line) != want {
				return fmt.Errorf("the answer is %q, want %q", line, want)
			}
			x.answered.Store(n)
			seen = rest
			x.mu.Lock()
			if len(x.waits) > 0 && x.waits[0].line == n {
				x.waits[0].ended <- time.Now()
				x.waits = x.waits[1:]
			}
			x.mu.Unlock()
		}
	}
}

// stop returns when both goroutines have ended.
func (x *caller) stop() {
	select {
	case <-x.over:
		return
	default:
	}
	close(x.over)
	_ = x.a.Close() // the session continues
	x.wg.Wait()
}

// resumed makes each caller type a line and returns when all these lines are answered. It returns the sorted
// times from since to the answers.
func resumed(t *testing.T, callers []*caller, since time.Time) (took []time.Duration) {
	t.Helper()
	ended := make(chan time.Time, len(callers))
	for _, x := range callers {
		x.say(ended)
	}
	for late := time.After(10 * limit); len(took) < len(callers) && !t.Failed(); {
		select {
		case at := <-ended:
			took = append(took, at.Sub(since))
		case <-time.After(time.Second): // a caller may have failed
		case <-late:
			t.Errorf("of %d callers, %d have an answer", len(callers), len(took))
		}
	}
	slices.Sort(took)
	return took
}

// quantile returns the value below which the given share of the sorted values is.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(share*float64(len(sorted)-1))].Round(time.Millisecond)
}

// A maze is three gates and their hosts, with a relay on each connection. On each host, one session prints
// lines and another one has a caller.
type maze struct {
	*gates
	rnd     *rand.Rand
	clients []*relay // in front of each gate, for clients
	peers   []*relay // in front of each gate, for hosts and other gates
	names   []string // of the hosts
	entered []*client.Client
	flows   []*lineReader
	callers []*caller
	shells  []map[protocol.SessionID]process // of each host
	servers *natsServers                     // over which the gates exchange their messages, or nil

	harmed atomic.Int64 // number of connections that a relay has disturbed
}

func newMaze(t *testing.T, rnd *rand.Rand, hosts int, servers *natsServers) *maze {
	t.Helper()
	m := &maze{rnd: rnd, servers: servers}
	var all []*gatehouse
	for range 3 {
		g := &gatehouse{world: newWorld(t), listen: testkit.FreeAddress(t)}
		if servers != nil {
			g.args = []string{"--nats", servers.urls}
		}
		peers := newRelay(t, g.listen)
		g.public = peers.ln.Addr().String()
		m.clients, m.peers = append(m.clients, newRelay(t, g.listen)), append(m.peers, peers)
		all = append(all, g)
	}
	m.gates = serveGates(t, all)
	for i := range hosts {
		name := fmt.Sprint("host-", i)
		m.names = append(m.names, name)
		m.join(name, all[i%len(all)], restless...)
	}
	m.gate.Addresses = nil
	for _, r := range m.clients {
		m.gate.Addresses = append(m.gate.Addresses, r.ln.Addr().String())
	}
	for _, name := range m.names {
		m.place(name)
		c := m.enter(name)
		m.spawn(c, "flow", trickling)
		m.entered, m.flows = append(m.entered, c), append(m.flows, m.followLines(c, "flow"))
		m.callers = append(m.callers, newCaller(m.world, c, "called", 50*time.Millisecond))
		m.shells = append(m.shells, m.pidsOf(c))
	}
	return m
}

// watch asks the gates repeatedly for all sessions until stop is called. stop returns the number of answers
// and of rows in them. The test fails if a session is reported as exited.
func (f *gates) watch() (stop func() (answers, rows int)) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	var answers, rows int
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
			all, err := client.AllSessions(f.T.Context(), f.gate, client.GateFilter{})
			if err != nil {
				continue // no gate serves
			}
			answers, rows = answers+1, rows+len(all)
			for _, row := range all {
				if row.State == string(protocol.StateExited) {
					f.T.Errorf("a gate reports a session as exited: %+v", row)
				}
			}
		}
	})
	end := sync.OnceFunc(func() { close(over); wg.Wait() })
	f.T.Cleanup(end)
	return func() (int, int) { end(); return answers, rows }
}

// some returns one to three hosts.
func (m *maze) some() (hosts []*world) {
	for _, i := range m.rnd.Perm(len(m.names))[:1+m.rnd.IntN(3)] {
		hosts = append(hosts, m.hosts[m.names[i]])
	}
	return hosts
}

// killGates kills count gates, and returns a function that starts them again.
func (m *maze) killGates(count int) (start func()) {
	chosen := m.rnd.Perm(len(m.all))[:count]
	for _, i := range chosen {
		m.all[i].die()
	}
	return func() {
		for _, i := range chosen {
			m.all[i].serve()
		}
	}
}

// A mazeFault kills or replaces programs. do may return a function that must be called after the clients have continued.
type mazeFault struct {
	name     string
	isLong   bool // only in the long mode
	ofServer bool // only if the gates use servers of NATS
	do       func(m *maze) (after func())
}

var mazeFaults = []mazeFault{
	{"a gate is killed", false, false, func(m *maze) func() { return m.killGates(1) }},
	{"two gates are killed", false, false, func(m *maze) func() { return m.killGates(2) }},
	{"the bus is killed", false, false, func(m *maze) func() { m.killGates(3)(); return nil }},
	{"agents are killed", false, false, func(m *maze) func() { return m.killAt("join.sock") }},
	{"proxies are killed", false, false, func(m *maze) func() { return m.killAt("proxy.sock") }},
	{"supervisors are killed", false, false, func(m *maze) func() {
		for _, h := range m.some() {
			h.KillSupervisor()
		}
		return nil
	}},
	{"hosts are upgraded", true, false, func(m *maze) func() {
		for _, h := range m.some() {
			// A new agent that does not reach the gates, because connections are cut, does not take over.
			if r := h.Run("proxy", "upgrade"); r.Code != 0 && !strings.Contains(r.Errout, "the agent, pid") {
				m.T.Errorf("an upgrade: %v", r)
			}
		}
		return nil
	}},
	{"a server of NATS is killed", true, true, func(m *maze) func() {
		i := m.rnd.IntN(len(m.servers.running))
		m.servers.kill(i)
		return func() { m.servers.start(i) }
	}},
}

// killAt kills the programs that serve a socket on some hosts. The agent starts the next proxy; killAt starts
// the next agent.
func (m *maze) killAt(socket string) func() {
	for _, h := range m.some() {
		if p := lookup(h.Holder(socket)); p.Running() {
			h.Kill(p)
		}
		if socket == "join.sock" {
			h.Must("proxy", "join")
		}
	}
	return nil
}

// A disturbance is a failure of connections at a relay.
type disturbance struct {
	name string
	do   func(*relay) (count int)
}

var disturbances = []disturbance{
	{"delay", func(r *relay) int { r.delay.Store(int64(30 * time.Millisecond)); return 0 }},
	{"cut", func(r *relay) int { return r.harm(0.5, true) }},
	{"half-close", func(r *relay) int { return r.harm(0.5, false) }},
}

// disturb disturbs the connections of a relay repeatedly until stop is called.
func (m *maze) disturb(r *relay, d disturbance) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			m.harmed.Add(int64(d.do(r)))
			select {
			case <-over:
				r.delay.Store(0)
				return
			case <-time.After(rand.N(300 * time.Millisecond)):
			}
		}
	})
	return func() { close(over); wg.Wait() }
}

// Programs are killed and upgraded, while connections between clients, gates and hosts are cut, delayed and
// closed in one direction. After each fault, all clients must continue: no byte may be missing or duplicated in
// either direction, no gate may ever report a session as exited, and each shell must be the same process. Each fault happens
// once, and then others until the test has lasted for HOLDFAST_CHAOS=TIME. In the long mode that is a minute, there are more
// hosts and more faults, and in every second run the gates use three servers of NATS. HOLDFAST_CHAOS_SEED=N repeats the
// faults of a run.
// demand: S9
func TestGatesChaos(t *testing.T) {
	hosts, lasts := 5, time.Duration(0)
	if isLong {
		hosts, lasts = 10, time.Minute
	}
	if s := os.Getenv("HOLDFAST_CHAOS"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(number(t, "HOLDFAST_CHAOS_SEED", int(rand.Uint32())))
	t.Logf("HOLDFAST_CHAOS_SEED=%d", seed)
	var servers *natsServers
	if isLong && seed%2 == 1 {
		servers = newNATSServers(t)
	}
	m := newMaze(t, rand.New(rand.NewPCG(seed, 0)), hosts, servers)
	stopWatch := m.watch()
	counts, took := map[string]int{}, []time.Duration(nil)
	chosen := slices.DeleteFunc(slices.Clone(mazeFaults), func(f mazeFault) bool { return f.isLong && !isLong || f.ofServer && servers == nil })
	begin := time.Now()
	for n := 0; (n < len(chosen) || time.Since(begin) < lasts) && !t.Failed(); n++ {
		if n%len(chosen) == 0 {
			m.rnd.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		}
		fault, relays, at := chosen[n%len(chosen)], m.clients, "clients and gates"
		if n%2 == 1 {
			relays, at = m.peers, "gates, and gates and hosts"
		}
		d := disturbances[n%len(disturbances)]
		counts[fault.name]++
		counts[d.name+" between "+at]++
		stop := m.disturb(relays[m.rnd.IntN(len(relays))], d)
		after := fault.do(m)
		stop()
		waits := m.check(t, fault.name+", "+d.name)
		if slowest := waits[len(waits)-1]; slowest > 2*time.Second {
			t.Logf("%s, %s between %s: the slowest client continued after %v", fault.name, d.name, at, slowest)
		}
		took = append(took, waits...)
		if after != nil {
			after()
		}
	}
	answers, rows := stopWatch()
	var lines, calls int64
	for i, flow := range m.flows {
		flow.over.Store(true)
		flow.wg.Wait()
		m.callers[i].stop()
		lines, calls = lines+flow.lines.Load(), calls+m.callers[i].answered.Load()
	}
	slices.Sort(took)
	t.Logf("%d hosts in %v: %v; %d connections harmed", len(m.names), time.Since(begin).Round(time.Second), counts, m.harmed.Load())
	t.Logf("%d lines came, %d typed lines were answered; %d lists of sessions with %d rows", lines, calls, answers, rows)
	t.Logf("after the end of the faults, the clients continued %d times: after %v (median), %v (99 of 100), %v at most", len(took), quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1))
}

// check returns when all clients have continued, with the time that each has needed. It fails the test if a
// shell is another process.
func (m *maze) check(t *testing.T, after string) []time.Duration {
	t.Helper()
	since := time.Now()
	before := make([]int64, len(m.flows))
	for i, flow := range m.flows {
		before[i] = flow.lines.Load()
	}
	took := resumed(t, m.callers, since)
	for i, flow := range m.flows {
		if !eventually(func() bool { return t.Failed() || flow.lines.Load() > before[i]+5 }) { // some lines may have arrived before
			t.Errorf("%s: on %s the output stopped at line %d", after, m.names[i], flow.lines.Load())
		}
	}
	for i, c := range m.entered {
		if now := m.pidsOf(c); !maps.Equal(now, m.shells[i]) {
			t.Errorf("%s: the shells of %s were %v; now they are %v", after, m.names[i], m.shells[i], now)
		}
	}
	return took
}

// natsServers are three servers of NATS that form a cluster, each a process.
type natsServers struct {
	t       *testing.T
	urls    string
	args    [3][]string
	running [3]*exec.Cmd // nil for a server that does not run
}

func newNATSServers(t *testing.T) *natsServers {
	t.Helper()
	s := &natsServers{t: t}
	var urls, routes []string
	for range s.args {
		urls, routes = append(urls, "nats://"+testkit.FreeAddress(t)), append(routes, "nats://"+testkit.FreeAddress(t))
	}
	s.urls = strings.Join(urls, ",")
	for i := range s.args {
		s.args[i] = []string{
			"--name", fmt.Sprint("n", i), "--client_advertise", strings.TrimPrefix(urls[i], "nats://"), "--addr", "127.0.0.1", "--port", urls[i][strings.LastIndexByte(urls[i], ':')+1:],
			"--cluster_name", "c", "--cluster", routes[i], "--routes", strings.Join(routes, ","), "--no_advertise",
		}
	}
	t.Cleanup(func() {
		for i := range s.running {
			s.kill(i)
		}
	})
	for i := range s.args {
		s.start(i)
	}
	return s
}

// start starts a server, and returns when it accepts connections.
func (s *natsServers) start(i int) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(testkit.Build(s.t, "github.com/nats-io/nats-server/v2"), "nats-server"), s.args[i]...)
	testkit.Must(s.t, cmd.Start())
	s.running[i] = cmd
	testkit.Eventually(s.t, limit, func() bool {
		conn, err := net.Dial("tcp", s.args[i][3])
		return err == nil && conn.Close() == nil
	}, "the server of NATS accepts connections")
}

func (s *natsServers) kill(i int) {
	if cmd := s.running[i]; cmd != nil {
		_ = errors.Join(cmd.Process.Kill(), cmd.Wait()) // that it was killed
		s.running[i] = nil
	}
}
