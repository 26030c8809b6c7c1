//go:build unix

package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// A fault is what is wrong with the network in front of a gate.
type fault int

const (
	whole     fault = iota
	cut             // connections are reset, and none can be made
	silentIn        // no byte arrives at the gate
	silentOut       // no byte of the gate arrives
	silent          // both
	faults
)

// A network is a relay over which the other gates reach a gate. Because each gate connects with each
// other one, a fault in front of one gate makes a partition in one direction.
type network struct {
	to string
	ln net.Listener
	wg sync.WaitGroup

	mu       sync.Mutex
	healed   *sync.Cond
	fault    fault
	isClosed bool
	conns    map[net.Conn]bool
}

func newNetwork(t *testing.T, to string) *network {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	n := &network{to: to, ln: ln, conns: map[net.Conn]bool{}}
	n.healed = sync.NewCond(&n.mu)
	t.Cleanup(func() {
		n.set(cut)
		n.mu.Lock()
		n.isClosed = true
		n.healed.Broadcast()
		n.mu.Unlock()
		_ = ln.Close()
		n.wg.Wait()
	})
	n.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() { n.carry(conn) })
		}
	})
	return n
}

func (n *network) carry(peer net.Conn) {
	defer func() { _ = peer.Close() }()
	own, err := net.Dial("tcp", n.to)
	if err != nil {
		return
	}
	defer func() { _ = own.Close() }()
	n.mu.Lock()
	if n.fault == cut {
		n.mu.Unlock()
		return
	}
	n.conns[peer], n.conns[own] = true, true
	n.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { n.pump(own, peer, silentIn) })
	wg.Go(func() { n.pump(peer, own, silentOut) })
	wg.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, peer)
	delete(n.conns, own)
}

// pump copies bytes in a direction that stopped makes silent.
func (n *network) pump(to, from net.Conn, stopped fault) {
	defer func() { _ = errors.Join(to.(*net.TCPConn).CloseWrite(), from.(*net.TCPConn).CloseRead()) }()
	buffer := make([]byte, 64<<10)
	for {
		k, err := from.Read(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		for (n.fault == stopped || n.fault == silent) && !n.isClosed {
			n.healed.Wait()
		}
		n.mu.Unlock()
		if _, err := to.Write(buffer[:k]); err != nil {
			return
		}
	}
}

func (n *network) set(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = f
	n.healed.Broadcast()
	for conn := range n.conns {
		if f == cut {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
}

// halfClose closes one direction of all connections.
func (n *network) halfClose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		if rand.IntN(2) == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}
}

// An event is a line of the history. A host notes what it does before it tells anybody. An observer
// notes what a gate has told after it was told.
type event struct {
	kind     string // began, ended (a session), joined, saw (a row of a gate), entered
	gate     string
	host     string
	id       string
	instance string
	state    string
	key      string
}

type history struct {
	mu     sync.Mutex
	events []event
	looks  sync.Map // a mutex for each gate and host, held by sees and enters until they have noted the answer: notes have the order of the answers
}

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// check returns what must never happen and has happened: a session that a gate calls exited, and its host did
// not before; an instance that never was, or an earlier one after a later one at the same gate; a session that
// is running after its end; a host that answers to the name of another one; and a name that has at one gate
// an owner that has lost it before.
func (h *history) check() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	began, ended, joined := map[string]int{}, map[string]bool{}, map[string]bool{}
	latest, seenEnd, owner, past := map[string]int{}, map[string]bool{}, map[string]string{}, map[string]bool{}
	for i, e := range h.events {
		instance := e.host + "/" + e.id + "@" + e.instance
		at, atInstance := e.gate+" "+e.host+"/"+e.id, e.gate+" "+instance
		say := func(text string) { wrong = append(wrong, fmt.Sprintf("event %d: %s: %+v", i, text, e)) }
		switch e.kind {
		case "began":
			began[instance] = i + 1
		case "ended":
			ended[instance] = true
		case "joined":
			joined[e.host+" "+e.key] = true
		case "saw":
			switch {
			case began[instance] == 0:
				say("there is no such instance")
			case began[instance] < latest[at]:
				say("an earlier instance comes back")
			case e.state == string(protocol.StateExited) && !ended[instance]:
				say("the session has not exited")
			case e.state == string(protocol.StateRunning) && seenEnd[atInstance]:
				say("the session has exited before")
			}
			latest[at] = max(latest[at], began[instance])
			seenEnd[atInstance] = seenEnd[atInstance] || e.state == string(protocol.StateExited)
		case "entered":
			name, mine := e.gate+" "+e.host, e.gate+" "+e.host+" "+e.key
			if !joined[e.host+" "+e.key] {
				say("another host answers")
			}
			if past[mine] {
				say("the name has an owner again that has lost it")
			}
			if before := owner[name]; before != "" && before != e.key {
				past[name+" "+before] = true
			}
			owner[name] = e.key
		}
	}
	return wrong
}

func TestHistory(t *testing.T) {
	began := event{kind: "began", host: "h", id: "s", instance: "1"}
	again := event{kind: "began", host: "h", id: "s", instance: "2"}
	ended := event{kind: "ended", host: "h", id: "s", instance: "1"}
	saw := func(gate, instance, state string) event {
		return event{kind: "saw", gate: gate, host: "h", id: "s", instance: instance, state: state}
	}
	joined := func(key string) event { return event{kind: "joined", host: "h", key: key} }
	entered := func(gate, key string) event { return event{kind: "entered", gate: gate, host: "h", key: key} }
	for _, tt := range []struct {
		says   string
		events []event
	}{
		{"", []event{began, saw("x", "1", "running"), ended, saw("x", "1", "exited"), again, saw("y", "1", "unknown"), saw("x", "2", "running")}},
		{"has not exited", []event{began, saw("x", "1", "exited"), ended}},
		{"no such instance", []event{began, saw("x", "2", "running")}},
		{"earlier instance", []event{began, ended, again, saw("x", "2", "running"), saw("x", "1", "exited")}},
		{"exited before", []event{began, ended, saw("x", "1", "exited"), saw("x", "1", "running")}},
		{"", []event{joined("k"), joined("l"), entered("x", "k"), entered("y", "l"), entered("y", "k")}},
		{"another host", []event{joined("k"), entered("x", "l")}},
		{"owner again", []event{joined("k"), joined("l"), entered("x", "k"), entered("x", "l"), entered("x", "k")}},
	} {
		wrong := strings.Join((&history{events: tt.events}).check(), "; ")
		if (wrong == "") != (tt.says == "") || !strings.Contains(wrong, tt.says) {
			t.Errorf("%v: got %q, want %q", tt.events, wrong, tt.says)
		}
	}
}

// A citizen is a host that has sessions, moves between the gates, and tells each client its key.
type citizen struct {
	name, key string
	pair      nkeys.KeyPair
	history   *history
	byPublic  map[string]*bench
	isReady   chan struct{} // is closed when bus is set

	place sync.Mutex
	home  *bench   // with which it connects
	at    *bench   // with which it was connected last
	conn  net.Conn // to at
	links uint64

	mu       sync.Mutex // held while it publishes, so that stamps are in order
	bus      *bus.Host
	stamp    record.Stamp
	sessions map[protocol.SessionID]protocol.SessionInfo
}

// settle lets a host join at a gate and connect. ok is false if the gate has refused the name.
func settle(t *testing.T, name string, at *bench, gates []*bench, h *history) (c *citizen, ok bool) {
	t.Helper()
	pair, key := keyPair(t, nkeys.CreateUser)
	c = &citizen{
		name: name, key: key, pair: pair, history: h, byPublic: map[string]*bench{}, isReady: make(chan struct{}),
		home: at, at: at, stamp: record.Stamp{Epoch: 1}, sessions: map[protocol.SessionID]protocol.SessionInfo{},
	}
	for _, b := range gates {
		c.byPublic[b.public] = b
	}
	e, err := at.store.NewJoinEntry(gate.ForHosts, time.Hour, at.now())
	testkit.Must(t, err)
	h.add(event{kind: "joined", host: name, key: c.key})
	if _, err := query[*gate.Joined](t.Context(), at, gate.Join{Secret: e.Secret, Name: name, Key: c.key}); err != nil {
		if !says(err, gate.RefusedNameTaken) {
			t.Errorf("%s joins: %v", name, err)
		}
		return c, false
	}
	c.bus, err = bus.Connect(t.Context(), bus.HostOptions{
		Key:         c.key,
		LinkOptions: bus.LinkOptions{Dial: c.dial, Connected: func() { go c.say() }, Lost: func(error) {}, Failed: func(error) {}},
		Receive:     c.receive,
	})
	testkit.Must(t, err)
	t.Cleanup(c.bus.Close)
	close(c.isReady)
	go func() {
		for t.Context().Err() == nil {
			c.say()
			time.Sleep(300 * time.Millisecond)
		}
	}()
	return c, true
}

// query sends a message to a gate and returns the answer.
func query[T protocol.Message](ctx context.Context, b *bench, m protocol.Message) (answer T, err error) {
	conn, _, err := gate.Dial(ctx, []string{b.address}, b.fingerprint)
	if err != nil {
		return answer, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	return gate.Ask[T](conn, m)
}

func (c *citizen) dial(context.Context) (net.Conn, string, error) {
	c.place.Lock()
	home := c.home
	c.place.Unlock()
	conn, password, err := home.prove(c.key, c.pair)
	if err != nil {
		return nil, "", err
	}
	c.place.Lock()
	defer c.place.Unlock()
	c.at, c.conn = home, conn
	c.links++
	return conn, password, nil
}

// move lets the host connect with another gate.
func (c *citizen) move(home *bench) {
	c.place.Lock()
	defer c.place.Unlock()
	c.home = home
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

func (c *citizen) receive(kind string, data []byte) {
	switch kind {
	case record.KindHello:
		go c.say()
	case record.KindRoster:
		go func() {
			<-c.isReady
			c.mu.Lock()
			defer c.mu.Unlock()
			piece := record.Piece{Stamp: c.next(), Total: 1}
			for _, s := range c.sessions {
				piece.Sessions = append(piece.Sessions, record.Of(s))
			}
			_ = c.bus.Publish(record.KindPiece, record.Encode(piece)) // the gate asks again
		}()
	case record.KindDial:
		if m, err := record.Decode[record.Dial](data); err == nil {
			go c.arrive(m)
		}
	}
}

// arrive tells a client the key of this host.
func (c *citizen) arrive(m record.Dial) {
	c.place.Lock()
	at := c.at
	c.place.Unlock()
	if m.Gate != "" {
		at = c.byPublic[m.Gate]
	}
	conn, _, err := gate.Dial(context.Background(), []string{at.address}, at.fingerprint)
	if err != nil {
		return // the client is refused
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if gate.Write(conn, gate.Arrive{Ticket: m.Ticket}) == nil {
		_, _ = io.WriteString(conn, c.key+"\n")
		_, _ = conn.Read(make([]byte, 1)) // until the client has read
	}
}

func (c *citizen) next() record.Stamp {
	c.stamp.Seq++
	return c.stamp
}

// say publishes the record of the host.
func (c *citizen) say() {
	<-c.isReady
	c.mu.Lock()
	defer c.mu.Unlock()
	c.place.Lock()
	links := c.links
	c.place.Unlock()
	var sum record.Sum
	for _, s := range c.sessions {
		sum.Toggle(record.SumOf(record.Of(s)))
	}
	m := record.Host{Stamp: c.next(), Link: links, IsServing: true, Count: len(c.sessions), Sum: sum.String()}
	_ = c.bus.Publish(record.KindHost, record.Encode(m)) // it is published again soon
}

// live begins or ends a session, or begins another instance of it.
func (c *citizen) live(id protocol.SessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, exists := c.sessions[id]
	if exists && s.State == protocol.StateRunning {
		s.State = protocol.StateExited
		c.history.add(event{kind: "ended", host: c.name, id: string(id), instance: string(s.Instance)})
	} else {
		s = protocol.SessionInfo{ID: id, Instance: protocol.Instance(protocol.NewToken(8)), State: protocol.StateRunning, Argv: []string{"sh"}}
		c.history.add(event{kind: "began", host: c.name, id: string(id), instance: string(s.Instance)})
	}
	c.sessions[id] = s
	_ = c.bus.Publish(record.KindChange, record.Encode(record.Change{Stamp: c.next(), ID: id, Session: record.Of(s)})) // the sum shows the loss
}

// rows returns the sessions of a host in the words of a gate.
func (c *citizen) rows() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rows []string
	for id, s := range c.sessions {
		rows = append(rows, fmt.Sprintf("%s/%s@%s:%s", c.name, id, s.Instance, s.State))
	}
	slices.Sort(rows)
	return strings.Join(rows, " ")
}

// look waits until no other goroutine looks at a host in this way, and returns the function that ends the look.
func (h *history) look(way string, b *bench, host string) (end func()) {
	mu, _ := h.looks.LoadOrStore([3]string{way, b.public, host}, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	return mu.(*sync.Mutex).Unlock
}

// sees returns the sessions of a host as a gate tells them, and notes them.
func (h *history) sees(ctx context.Context, b *bench, host string) (string, error) {
	defer h.look("sees", b, host)()
	e, err := b.store.ClientEntry()
	if err != nil {
		return "", err
	}
	list, err := query[*gate.SessionList](ctx, b, gate.Sessions{Token: e.Secret, Host: host})
	if err != nil {
		return "", err
	}
	var rows []string
	for _, r := range list.Sessions {
		h.add(event{kind: "saw", gate: b.public, host: r.Host, id: string(r.ID), instance: string(r.Instance), state: r.State})
		rows = append(rows, fmt.Sprintf("%s/%s@%s:%s", r.Host, r.ID, r.Instance, r.State))
	}
	return strings.Join(rows, " "), nil
}

// enters returns the key of the host that answers to a name at a gate, and notes it.
func (h *history) enters(ctx context.Context, b *bench, host string) (key string, err error) {
	defer h.look("enters", b, host)()
	e, err := b.store.ClientEntry()
	if err != nil {
		return "", err
	}
	conn, _, err := gate.Dial(ctx, []string{b.address}, b.fingerprint)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := gate.Ask[*gate.Entered](conn, gate.Enter{Token: e.Secret, Host: host}); err != nil {
		return "", err
	}
	line := make([]byte, 57)
	if _, err := io.ReadFull(conn, line); err != nil {
		return "", err
	}
	key = strings.TrimSpace(string(line))
	h.add(event{kind: "entered", gate: b.public, host: host, key: key})
	return key, nil
}

// The networks between three gates fail at random, in one direction and in both, while hosts move between
// the gates, sessions begin and end, hosts join under the same names at several gates, hosts are revoked,
// the token of clients is renewed, and clocks jump. The history has nothing that must never happen, and
// when the networks are whole, all gates tell the same.
// With HOLDFAST_LONG=1 there are 250 steps.
// demand: S9
func TestPartition(t *testing.T) {
	steps := 60
	if os.Getenv("HOLDFAST_LONG") != "" {
		steps = 250
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var gates []*bench
	var networks []*network
	for i := range 3 {
		b := &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t)}
		n := newNetwork(t, b.address)
		b.public = n.ln.Addr().String()
		if i > 0 {
			e, err := gates[0].store.NewJoinEntry(gate.ForGates, time.Minute, time.Now())
			testkit.Must(t, err)
			testkit.Must(t, Enlist(testkit.Soon(t), filepath.Join(b.dir, "gate"), e))
		}
		b.start()
		gates, networks = append(gates, b), append(networks, n)
	}
	h := &history{}
	var hosts []*citizen
	for i := range 4 {
		c, _ := settle(t, fmt.Sprint("host", i), gates[i%3], gates, h)
		c.live("first")
		hosts = append(hosts, c)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var observers sync.WaitGroup
	defer observers.Wait()
	defer stop()
	var names sync.Map // of all hosts
	for _, c := range hosts {
		names.Store(c.name, true)
	}
	for _, b := range gates {
		observers.Go(func() {
			for ctx.Err() == nil {
				names.Range(func(name, _ any) bool {
					_, _ = h.sees(ctx, b, name.(string)) // the token may have been renewed, or the host is not known here
					_, _ = h.enters(ctx, b, name.(string))
					return ctx.Err() == nil
				})
			}
		})
	}

	counts := map[string]int{}
	var rivals, revoked []*citizen
	revoke := func(c *citizen) {
		b := gates[random.IntN(3)]
		if _, err := Revoke(testkit.Soon(t), b.store, b.control, c.name); err != nil {
			t.Error(err)
		}
		revoked = append(revoked, c)
	}
	for ; steps > 0 && !t.Failed(); steps-- {
		time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond)))) // so that the gates are not always surprised
		n, b, c := networks[random.IntN(3)], gates[random.IntN(3)], hosts[random.IntN(len(hosts))]
		switch what := random.IntN(20); {
		case what < 4:
			n.set(fault(1 + random.IntN(int(faults)-1)))
			counts["faults"]++
		case what < 7:
			n.set(whole)
		case what < 8:
			n.halfClose()
			counts["half-closed"]++
		case what < 14:
			c.live(protocol.SessionID(fmt.Sprint("s", random.IntN(3))))
			counts["sessions"]++
		case what < 16:
			c.move(b)
			counts["moves"]++
		case what < 17:
			b.ahead.Store(int64(time.Duration(random.IntN(7200)-3600) * time.Second))
			counts["jumps"]++
		case what < 18:
			if err := RenewClientToken(testkit.Soon(t), b.store, b.control); err != nil {
				t.Error(err)
			}
			counts["tokens"]++
		case what < 19 && len(rivals) < 24:
			name := fmt.Sprint("rival", len(rivals))
			names.Store(name, true)
			for _, at := range gates { // those that cannot reach the first one admit another host
				if c, ok := settle(t, name, at, gates, h); ok {
					rivals = append(rivals, c)
				}
			}
			counts["rivals"]++
		case len(rivals) > 0 && len(revoked) < 8:
			revoke(rivals[random.IntN(len(rivals))])
			counts["revoked"]++
		}
	}
	for _, n := range networks {
		n.set(whole)
	}
	t.Logf("%v", counts)

	const healing = 2 * time.Minute // a gate tries to reach another one every 5 s, and a silent one is noticed after 20 s
	testkit.Eventually(t, healing, func() bool {
		var sums []string
		for _, b := range gates {
			m, err := b.store.Members()
			testkit.Must(t, err)
			sums = append(sums, m.Sum())
		}
		return sums[0] == sums[1] && sums[1] == sums[2]
	}, "all gates have the same hosts, revoked keys, gates, and token of clients")
	members, err := gates[0].store.Members()
	testkit.Must(t, err)
	for _, c := range hosts {
		for _, b := range gates {
			testkit.Eventually(t, healing, func() bool {
				got, err := h.sees(ctx, b, c.name)
				return err == nil && got == c.rows()
			}, c.name+" has the same sessions at all gates")
			testkit.Eventually(t, healing, func() bool {
				key, err := h.enters(ctx, b, c.name)
				return err == nil && key == c.key
			}, c.name+" is entered")
		}
	}
	for _, c := range append(rivals, revoked...) {
		for _, b := range gates {
			owner := members.Hosts[c.name].Key
			if owner == c.key {
				testkit.Eventually(t, healing, func() bool { key, err := h.enters(ctx, b, c.name); return err == nil && key == owner }, "the owner of a name is entered")
			} else if _, _, err := b.prove(c.key, c.pair); !says(err, gate.RefusedUnauthorized) {
				t.Errorf("a host without its name comes back: %v", err)
			}
		}
	}
	stop()
	observers.Wait()
	for i, text := range h.check() {
		if i < 10 {
			t.Error(text)
		}
	}
	t.Logf("%d events", len(h.events))
}
