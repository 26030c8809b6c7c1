//go:build unix

package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/directory"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// isReachable reports whether all gates say that a host is connected to the gate at.
func isReachable(name string, at *bench, gates ...*bench) bool {
	return !slices.ContainsFunc(gates, func(b *bench) bool { return b.info(name).Gate != at.address })
}

// carries fails the test unless bytes go in both directions, and closes both ends.
func carries(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() { _, _ = io.WriteString(pair[0], "bytes") }() // a lost byte is noticed by the reader
		got := make([]byte, 5)
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != "bytes" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	_, _ = a.Close(), b.Close()
}

// A client enters each host through each of three gates, to whichever the host is connected. When a gate
// dies, its host is reachable again as soon as it is connected to another one, and the gate learns of
// everything when it is back.
func TestGates(t *testing.T) {
	first := newBench(t)
	second, third := first.another(), first.another()
	gates := []*bench{first, second, third}
	x, y := second.join("x"), third.join("y")
	for _, tt := range []struct {
		name string
		at   *bench
	}{{"x", second}, {"y", third}} {
		testkit.Eventually(t, limit, func() bool { return isReachable(tt.name, tt.at, gates...) }, tt.name+" is reachable at all gates")
	}
	for _, b := range gates {
		for name, h := range map[string]*host{"x": x, "y": y} {
			client, arrived, _ := b.enter(h, name)
			carries(t, client, arrived)
		}
	}

	x.at.Store(third)
	second.stop()
	testkit.Eventually(t, limit, func() bool { return isReachable("x", third, first, third) }, "x has moved to the third gate")
	client, arrived, _ := first.enter(x, "x")
	carries(t, client, arrived)
	z := first.join("z")
	second.start()
	testkit.Eventually(t, limit, func() bool {
		return isReachable("x", third, gates...) && isReachable("z", first, gates...)
	}, "the second gate knows where the hosts are")
	client, arrived, _ = second.enter(z, "z")
	carries(t, client, arrived)
	for _, b := range gates {
		if e, err := b.store.ClientEntry(); err != nil || len(e.Addresses) != 3 || e.Addresses[0] != b.address {
			t.Errorf("the text for clients has %v, %v", e.Addresses, err)
		}
	}
}

// A host learns the address of a gate that is added after the host was accepted, and before it has subscribed. It would
// otherwise refuse all clients at the new gate.
func TestGateAddedWhileHostConnects(t *testing.T) {
	b := newBench(t)
	_, state := joinedHouse(b, "x")
	pair, key := pairOf(t, state)
	learned := make(chan record.Gates, 16)
	h, err := bus.Connect(testkit.Soon(t), bus.HostOptions{Key: key, LinkOptions: bus.LinkOptions{
		Dial: func(context.Context) (net.Conn, string, error) {
			conn, password, err := b.prove(key, pair)
			if err == nil {
				b.another()
				b.expect("of a gate that has another one", map[string]any{"gate_peers": 1})
			}
			return conn, password, err
		},
		Connected: func() {}, Lost: func(error) {}, Failed: func(error) {},
	}, Receive: func(kind string, data []byte) {
		if m, err := record.Decode[record.Gates](data); kind == record.KindGates && err == nil {
			learned <- m
		}
	}})
	testkit.Must(t, err)
	t.Cleanup(h.Close)
	about := record.Encode(record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1, Sum: record.Sum{}.String()})
	testkit.Eventually(t, limit, func() bool { return h.Publish(record.KindHost, about) == nil }, "the host publishes its record")
	if m := testkit.Within(t, limit, "the addresses of the gates", learned); len(m.Addresses) != 2 {
		t.Errorf("the host learns %v", m.Addresses)
	}
}

// A client whose host is lost, or moves to another gate, just before the client begins to wait for it does not wait until the
// ticket expires, and may try again. The same holds if the gate is replaced then, because the host would show the ticket to
// the successor.
func TestDialAfterLoss(t *testing.T) {
	const other, name = "127.0.0.1:2", "x"
	key := newKey(t)
	for _, tt := range []struct {
		name  string
		at    string // "" for this gate
		after func(*Gate)
	}{
		{"the host is lost", "", func(g *Gate) { g.dir.Disconnect(key) }},
		{"the host is lost at another gate", other, func(g *Gate) { g.dir.Lost(key, other, record.Lost{Epoch: 1, Link: 1}) }},
		{"the host has moved", other, func(g *Gate) {
			g.dir.Host(key, g.address, record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 2}, Link: 2}, time.Now())
		}},
		{"the other gate is lost", other, func(g *Gate) { g.dir.SetGate(other, false) }},
		{"the host has left the gate before", predecessor, func(g *Gate) { g.hostLeft(key, record.Lost{Epoch: 1, Link: 1}) }},
		{"a successor accepts connections", other, func(g *Gate) { g.setMoved(Sockets{}, true) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := bareGate(t)
			at := cmp.Or(tt.at, g.address)
			g.dir.SetGate(at, true)
			g.dir.Join(key, name)
			g.dir.Host(key, at, record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1}, time.Now())
			if _, now := g.dir.Resolve(name, time.Now()); now != at {
				t.Fatalf("the host is at %q", now)
			}
			if at != g.address {
				g.peers[at] = silentPeer(at)
			}
			tt.after(g)
			conn, code, why, isLost := g.dial(key, at, record.Dial{Ticket: protocol.NewToken(gate.TokenBytes)})
			if conn != nil || code != gate.RefusedUnreachable || why == "" || !isLost {
				t.Errorf("the dial ends with %v, %s, %q, lost: %v", conn, code, why, isLost)
			}
		})
	}
}

// A host is not reachable over a connection that has ended before its first record is used.
func TestRecordAfterEnd(t *testing.T) {
	g, key := bareGate(t), newKey(t)
	g.dir.Join(key, "x")
	g.receive(g.address, key, record.KindHost, record.Encode(record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1, Sum: record.Sum{}.String()}))
	if g.dir.Epoch(key) != 1 {
		t.Error("the record was not used")
	}
	if _, at := g.dir.Resolve("x", time.Now()); at != "" {
		t.Errorf("the host is reachable at %s", at)
	}
}

// bareGate returns a gate that serves nothing.
func bareGate(t *testing.T) *Gate {
	t.Helper()
	store, err := credential.Open(filepath.Join(testkit.Dir(t), "gate"))
	if err == nil {
		err = store.SetAddress("127.0.0.1:1", time.Now())
	}
	testkit.Must(t, err)
	return gateOf(t, store)
}

// gateOf returns a gate with these credentials that serves nothing.
func gateOf(t *testing.T, store *credential.Store) *Gate {
	t.Helper()
	g, err := newGate(t.Context(), store, zerolog.Nop(), Options{})
	testkit.Must(t, err)
	t.Cleanup(g.close)
	return g
}

// silentPeer returns a gate that answers nothing and closes nothing.
func silentPeer(address string) *peer {
	return &peer{address: address, link: silentLink{}, ended: make(chan struct{}), end: func() {}}
}

// newKey returns the public key of a host.
func newKey(t *testing.T) string {
	t.Helper()
	_, key := keyPair(t, nkeys.CreateUser)
	return key
}

// A question for the sessions of a host that has to wait goes to the gate to which the host has moved meanwhile.
func TestRosterAfterMove(t *testing.T) {
	g, key := bareGate(t), newKey(t)
	g.dir.Join(key, "x")
	asked := make(chan string, 16)
	for i, at := range []string{"127.0.0.1:2", "127.0.0.1:3"} {
		g.mu.Lock()
		g.peers[at] = &peer{address: at, link: silentLink{at: at, asked: asked}, end: func() {}}
		g.mu.Unlock()
		g.dir.Host(key, at, record.Host{Stamp: record.Stamp{Epoch: 1, Seq: uint64(i + 1)}, Link: uint64(i + 1)}, time.Now())
		g.askRoster(at, key)
		if i == 0 {
			g.askRoster(at, key) // it waits, because the host was just asked
		}
	}
	for _, want := range []string{"127.0.0.1:2", "127.0.0.1:3"} {
		if at := testkit.Within(t, limit, "a question", asked); at != want {
			t.Errorf("the host is asked over %s, and not over %s", at, want)
		}
	}
}

// A gate whose connection was lost before it was greeted is not reachable.
func TestGreetAfterLoss(t *testing.T) {
	const address = "127.0.0.1:2"
	g := bareGate(t)
	for _, isLost := range []bool{false, true} {
		p := &peer{address: address, link: silentLink{isLost: isLost}, end: func() {}}
		g.mu.Lock()
		g.peers[address] = p
		g.mu.Unlock()
		if isLost {
			g.disconnectPeer(p)
		}
		g.greet(p)
		if g.dir.IsGateReachable(address) == isLost {
			t.Errorf("the connection was lost: %v, and the gate is reachable: %v", isLost, isLost)
		}
	}
}

// A silentLink is the way to a gate that answers nothing.
type silentLink struct {
	at     string
	asked  chan<- string // receives at with each question for a roster, unless it is nil
	isLost bool
}

func (l silentLink) IsConnected() bool { return !l.isLost }

func (l silentLink) Publish(_, kind string, _ []byte) error {
	if kind == record.KindRoster && l.asked != nil {
		l.asked <- l.at
	}
	return nil
}

func (silentLink) Tell(string, []byte) error { return nil }

// A host that is revoked at one gate is out at all gates, also at one that was away meanwhile. Its name is
// free there.
func TestGatesRevoke(t *testing.T) {
	first := newBench(t)
	second, third := first.another(), first.another()
	h, away := second.join("h"), third.join("away")
	for _, b := range []*bench{first, second, third} {
		testkit.Eventually(t, limit, func() bool { return b.info("h").IsReachable && b.info("away").IsReachable }, "the hosts are reachable")
	}
	client, arrived, _ := third.enter(h, "h")
	if had, err := Revoke(testkit.Soon(t), first.store, first.control, "h"); !had || err != nil {
		t.Fatalf("revoke: %v, %v", had, err)
	}
	for _, conn := range []net.Conn{client, arrived} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection of the host is open: %v", err)
		}
	}
	testkit.Within(t, limit, "the host loses the bus", h.lost)
	for _, b := range []*bench{first, second, third} {
		if _, _, err := b.prove(h.key, h.pair); !says(err, gate.RefusedUnauthorized) {
			t.Errorf("the host comes back: %v", err)
		}
		if _, _, err := b.ask(gate.Enter{Token: b.client.Secret, Host: "h"}); !says(err, gate.RefusedUnknownHost) {
			t.Errorf("a client enters: %v", err)
		}
	}

	third.stop()
	if had, err := Revoke(testkit.Soon(t), second.store, second.control, "away"); !had || err != nil {
		t.Fatalf("revoke: %v, %v", had, err)
	}
	second.join("h")
	third.start()
	testkit.Eventually(t, limit, func() bool { return third.info("away").Name == "" && third.info("h").IsReachable }, "the third gate learns of both")
	if _, _, err := third.prove(away.key, away.pair); !says(err, gate.RefusedUnauthorized) {
		t.Errorf("the host comes back: %v", err)
	}
	third.join("away")
}

// A token of clients that is renewed at one gate is the only one at all gates, also at one that was away
// meanwhile.
func TestGatesRenewClientToken(t *testing.T) {
	first := newBench(t)
	second, third := first.another(), first.another()
	for _, b := range []*bench{first, second, third} {
		testkit.Eventually(t, limit, func() bool { gates, err := b.store.Gates(); return err == nil && len(gates) == 3 }, "all gates know all gates")
	}
	client, _, _ := second.enter(second.join("h"), "h")
	before := first.client.Secret
	third.stop()
	testkit.Must(t, RenewClientToken(testkit.Soon(t), first.store, first.control))
	third.start()
	after, err := first.store.ClientEntry()
	testkit.Must(t, err)
	for _, b := range []*bench{first, second, third} {
		testkit.Eventually(t, limit, func() bool {
			_, _, err := b.ask(gate.Hosts{Token: before})
			return says(err, gate.RefusedUnauthorized)
		}, "the old token is refused")
		if _, _, err := b.ask(gate.Hosts{Token: after.Secret}); err != nil {
			t.Errorf("the new token is refused: %v", err)
		}
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("a connection with the old token is open")
	}
}

// A gate that is gone is removed from all gates, and is back when it starts again.
func TestForget(t *testing.T) {
	first := newBench(t)
	second, third := first.another(), first.another()
	knows := func(n int, gates ...*bench) bool {
		return !slices.ContainsFunc(gates, func(b *bench) bool {
			known, err := b.store.Gates()
			return err != nil || len(known) != n
		})
	}
	testkit.Eventually(t, limit, func() bool { return knows(3, first, second, third) }, "all gates know all gates")
	if _, err := Forget(testkit.Soon(t), first.store, first.control, first.address); err == nil {
		t.Error("a gate forgets itself")
	}
	third.stop()
	if was, err := Forget(testkit.Soon(t), first.store, first.control, third.address); !was || err != nil {
		t.Fatalf("forget: %v, %v", was, err)
	}
	if was, err := Forget(testkit.Soon(t), first.store, first.control, third.address); was || err != nil {
		t.Errorf("forget again: %v, %v", was, err)
	}
	testkit.Eventually(t, limit, func() bool { return knows(2, first, second) }, "the others have forgotten it")
	third.start()
	testkit.Eventually(t, limit, func() bool { return knows(3, first, second, third) }, "it is back")
}

// A program that knows the fingerprint and not the key of the certificate cannot pass for a gate.
func TestPeerProof(t *testing.T) {
	b, stranger := newBench(t), newBench(t)
	request := gate.Peer{Address: "127.0.0.1:1"}
	conn, m, err := b.ask(request)
	testkit.Must(t, err)
	signature, err := stranger.store.Sign(gate.SignedText(request, b.store.Fingerprint(), m.(*gate.Challenge).Nonce))
	testkit.Must(t, err)
	testkit.Must(t, gate.Write(conn, gate.Proof{Signature: signature}))
	if _, err := gate.Read(conn, gate.MaxAnswer); !says(err, gate.RefusedUnauthorized) {
		t.Errorf("got %v", err)
	}
	if gates, err := b.store.Gates(); err != nil || len(gates) != 1 {
		t.Errorf("the gates are %v, %v", gates, err)
	}
}

// Reach finds the gate that serves among gates that do not answer, have another certificate, or refuse.
func TestReach(t *testing.T) {
	b, stranger := newBench(t), newBench(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // its kernel accepts connections, and no program answers
	testkit.Must(t, err)
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	testkit.Must(t, gone.Close())
	dead := []string{silent.Addr().String(), gone.Addr().String(), stranger.address}
	conn, address, err := gate.Dial(testkit.Soon(t), append(dead, b.address), b.store.Fingerprint())
	if err != nil || address != b.address {
		t.Fatalf("got %q, %v", address, err)
	}
	_ = conn.Close()
	if _, _, err := gate.Dial(testkit.Soon(t), dead[1:], b.store.Fingerprint()); err == nil || errors.Is(err, gate.ErrFingerprint) {
		t.Errorf("one of two gates may be back, and the error is %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, err = gate.Dial(ctx, dead[:2], b.store.Fingerprint())
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), dead[0]) || !strings.Contains(err.Error(), dead[1]) {
		t.Errorf("the error of gates that do not answer, which must name them, is %v", err)
	}
	errs := gate.Reach(testkit.Soon(t), []string{b.address, silent.Addr().String()}, b.store.Fingerprint(), time.Hour, func(net.Conn, string) error {
		return &gate.Refused{Code: gate.RefusedUnreachable}
	})
	if len(errs) != 2 || !errors.Is(errs[1], context.DeadlineExceeded) || !strings.Contains(errs[1].Error(), dead[0]) {
		t.Errorf("if one gate refuses and another one does not answer, the errors are %v", errs)
	}

	other := b.another()
	ask := func(refusal gate.Refusal) (asked []string, errs []error) {
		errs = gate.Reach(testkit.Soon(t), []string{b.address, other.address}, b.store.Fingerprint(), time.Minute, func(_ net.Conn, address string) error {
			asked = append(asked, address)
			return &gate.Refused{Code: refusal}
		})
		return asked, errs
	}
	for refusal, want := range map[gate.Refusal]int{gate.RefusedUnknownHost: 2, gate.RefusedUnreachable: 2, gate.RefusedUnauthorized: 2, gate.RefusedInvalid: 1, gate.RefusedNameTaken: 1} {
		asked, errs := ask(refusal)
		if slices.Sort(asked); len(slices.Compact(asked)) != want || len(errs) != want { // in any order, because the first may be slow
			t.Errorf("%s: asked are %v, %v", refusal, asked, errs)
		}
	}
}

// A client that enters a host whose gate has just died waits at another gate until the host is connected there.
func TestHostReturns(t *testing.T) {
	t.Parallel()
	from := newBench(t)
	to := from.another()
	h := from.join("h")
	for {
		testkit.Eventually(t, limit, func() bool { return to.info("h").IsReachable }, "the other gate knows the host")
		from.stop()
		testkit.Eventually(t, limit, func() bool { return !to.info("h").IsReachable }, "the host is lost")
		client := to.dial()
		testkit.Must(t, gate.Write(client, gate.Enter{Token: to.client.Secret, Host: "h"}))
		refused := make(chan error, 1)
		go func() {
			_, err := gate.Read(client, gate.MaxAnswer)
			refused <- err
		}()
		h.at.Store(to)
		select {
		case m := <-h.dials:
			if m.Gate != "" {
				t.Errorf("the client waits at the gate %q", m.Gate)
			}
			return
		case err := <-refused: // the host has taken more than returnWait
			if !says(err, gate.RefusedUnreachable) {
				t.Fatal(err)
			}
			from.start()
			from, to = to, from
		case <-time.After(limit):
			t.Fatal("neither the host nor the client hears anything")
		}
	}
}

// A host whose connection ends before the gate has read the ticket receives the ticket again.
func TestDialAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.join("h")
	client := b.dial()
	testkit.Must(t, gate.Write(client, gate.Enter{Token: b.client.Secret, Host: "h"}))
	m := testkit.Within(t, limit, "the dial", h.dials)
	_ = b.dial().Close()
	testkit.Eventually(t, limit, func() bool { return h.repeats.Load() > 0 }, "the ticket comes again")
	arrived := b.dial()
	testkit.Must(t, gate.Write(arrived, gate.Arrive{Ticket: m.Ticket}))
	if m, err := gate.Read(client, gate.MaxAnswer); err != nil {
		t.Errorf("the client receives %+v, %v", m, err)
	}
	carries(t, client, arrived)
}

// A client that waits for a host at the gate that the host has left is refused as soon as the host is connected elsewhere, so that
// it tries again there.
func TestDialElsewhere(t *testing.T) {
	const here, elsewhere = "a:1", "b:1"
	g := &Gate{dir: directory.New(here), dials: map[string]*dial{}, hostDial: map[string]int{}}
	for i, at := range []string{here, elsewhere} {
		key := fmt.Sprint("key ", i)
		g.dir.Join(key, fmt.Sprint("host-", i))
		d := &dial{key, here, make(chan arrival, 1)}
		g.dials[key], g.hostDial[key] = d, 1
		g.dir.Host(key, at, record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1}, time.Now())
		g.failDialsElsewhere(key)
		select {
		case a := <-d.arrived:
			if at == here || !a.isLost {
				t.Errorf("the client of a host at %s is refused: %+v", at, a)
			}
		default:
			if at != here {
				t.Errorf("the client of a host at %s waits at %s", at, here)
			}
		}
		if _, waits := g.dials[key]; waits != (at == here) || g.hostDial[key] == 1 != waits {
			t.Errorf("%d clients wait for a host at %s", g.hostDial[key], at)
		}
	}
}

// A host that is not connected with this gate yet when the gate before has ended is still shown as reachable, because it
// connects soon. A client that enters it waits for it, and does not fail.
func TestHostReturnsAfterEnd(t *testing.T) {
	next := newBench(t) // stands for the successor of g
	store, err := credential.Open(filepath.Join(next.dir, "gate"))
	testkit.Must(t, err)
	g, key, p := gateOf(t, store), newKey(t), silentPeer(predecessor)
	g.peers[predecessor] = p
	g.counts.hasTakenOver.Store(true)
	g.dir.SetGate(predecessor, true)
	g.dir.Join(key, "x")
	g.dir.Host(key, predecessor, record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1}, time.Now())
	isShown := func() bool {
		list, _ := g.dir.Hosts(nil, "", time.Now())
		return list[0].IsReachable
	}
	begin := time.Now()
	g.predecessorEnded(p)
	if !isShown() && time.Since(begin) < returnLimit {
		t.Error("the host is not shown as reachable")
	}
	if _, code, why, mayReturn := g.reach(nil, &gate.Enter{Host: "x"}); code != gate.RefusedUnreachable || !mayReturn {
		t.Errorf("a client is told %s, %q, may wait: %v", code, why, mayReturn)
	}
	if conn, _, why, isLost := g.dial(key, predecessor, record.Dial{Ticket: protocol.NewToken(gate.TokenBytes)}); conn != nil || !isLost {
		t.Errorf("a dial that has begun before ends with %q, lost: %v", why, isLost)
	}
	if missing, err := g.missing(testkit.Soon(t), next.address, next.client.Secret); err != nil || missing != "" {
		t.Errorf("a successor would be refused because it does not reach %q, %v", missing, err)
	}
	testkit.Eventually(t, limit, func() bool { return !isShown() }, "the host that has not come is shown as unreachable")
}

// A revocation that has to wait for the gate before longer than a command may take to arrive is answered.
func TestSlowCommandIsAnswered(t *testing.T) {
	t.Parallel()
	g := bareGate(t)
	e, err := g.store.NewJoinEntry(gate.ForHosts, time.Minute, time.Now())
	testkit.Must(t, err)
	if _, err := g.store.Join(gate.Join{Secret: e.Secret, Name: "x", Key: newKey(t)}, time.Now()); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.peers[predecessor] = silentPeer(predecessor)
	g.mu.Unlock()
	path := filepath.Join(testkit.Dir(t), ControlSocket)
	l, err := socket.Listen(path, socket.Options{})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	g.wg.Go(func() { g.control(l) })
	if isKnown, err := Revoke(testkit.Soon(t), g.store, path, "x"); !isKnown || err != nil {
		t.Errorf("revoke: %v, %v", isKnown, err)
	}
}
