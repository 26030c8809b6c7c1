//go:build unix

package gate

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

const limit = 30 * time.Second

// A bench has a running gate, and plays its clients and hosts.
type bench struct {
	t       *testing.T
	dir     string
	store   *credential.Store
	client  gate.Entry
	control string
	stop    func()
	options Options
	log     zerolog.Logger // the zero value logs nothing
	ended   chan error     // receives the result of the gate, and is closed

	address, fingerprint string
	public               string       // address that the gate tells, or "" for the same
	ahead                atomic.Int64 // nanoseconds by which the clock of the gate is ahead
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t)}
	b.start()
	return b
}

// another starts another gate of the same hosts.
func (b *bench) another() *bench {
	b.t.Helper()
	n := b.enlisted()
	n.start()
	return n
}

// enlisted adds another gate of the same hosts, which the caller must start.
func (b *bench) enlisted() *bench {
	b.t.Helper()
	e, err := b.store.NewJoinEntry(gate.ForGates, time.Minute, time.Now())
	testkit.Must(b.t, err)
	n := &bench{t: b.t, dir: testkit.Dir(b.t), address: testkit.FreeAddress(b.t), options: b.options, log: b.log}
	testkit.Must(b.t, Enlist(testkit.Soon(b.t), filepath.Join(n.dir, "gate"), e))
	return n
}

// start starts the gate, also again after stop.
func (b *bench) start() {
	b.t.Helper()
	store, err := credential.Open(filepath.Join(b.dir, "gate"))
	testkit.Must(b.t, err)
	ln, err := net.Listen("tcp", b.address)
	testkit.Must(b.t, err)
	if b.store == nil { // hosts read these while the gate starts again
		b.address, b.fingerprint, b.control = ln.Addr().String(), store.Fingerprint(), filepath.Join(b.dir, ControlSocket)
	}
	b.store = store
	control, err := socket.Listen(b.control, socket.Options{})
	testkit.Must(b.t, err)
	testkit.Must(b.t, store.SetAddress(cmp.Or(b.public, b.address), b.now()))
	if b.client, err = store.ClientEntry(); err != nil {
		b.t.Fatal(err)
	}
	offers, err := socket.Listen(filepath.Join(b.dir, HandoffSocket), socket.Options{})
	testkit.Must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	options := b.options
	options.Now = b.now
	b.runs(cancel, func() error { return Run(ctx, store, Sockets{ln, control, offers}, b.log, options) })
}

// runs runs a gate, which ends after cancel.
func (b *bench) runs(cancel context.CancelFunc, run func() error) {
	ended := make(chan error, 1)
	go func() {
		ended <- run()
		close(ended)
	}()
	b.ended = ended
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := testkit.Within(b.t, limit, "the gate ends", ended); err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.stop)
}

// now is the clock of the gate.
func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

func (b *bench) dial() net.Conn {
	b.t.Helper()
	conn, _, err := gate.Dial(testkit.Soon(b.t), []string{b.address}, b.store.Fingerprint())
	testkit.Must(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(limit))
	return conn
}

// ask opens a connection, sends m, and returns the connection and the answer.
func (b *bench) ask(m protocol.Message) (net.Conn, protocol.Message, error) {
	b.t.Helper()
	conn := b.dial()
	testkit.Must(b.t, gate.Write(conn, m))
	answer, err := gate.Read(conn, gate.MaxAnswer)
	return conn, answer, err
}

// A host is played by the test.
type host struct {
	key   string
	pair  nkeys.KeyPair
	bus   *bus.Host
	dials chan record.Dial
	lost  chan error

	tickets map[string]bool // of dials; owned by the receiver of the bus
	repeats atomic.Int64    // dials with a ticket that came before

	at    atomic.Pointer[bench] // the gate with which the host connects
	links atomic.Uint64
	seq   atomic.Uint64

	isReady chan struct{} // is closed when bus is set

	mu       sync.Mutex // also orders the messages with stamps
	sessions map[protocol.SessionID]json.RawMessage
}

// keyPair returns the pair of keys that create makes, and its public key.
func keyPair(t testing.TB, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	pair, err := create()
	testkit.Must(t, err)
	key, err := pair.PublicKey()
	testkit.Must(t, err)
	return pair, key
}

// pairOf returns the pair of keys of a host that has joined, and its public key.
func pairOf(t testing.TB, host member.State) (nkeys.KeyPair, string) {
	t.Helper()
	return keyPair(t, func() (nkeys.KeyPair, error) { return nkeys.FromSeed([]byte(host.Seed)) })
}

// join admits a host and connects it with the bus.
func (b *bench) join(name string) *host {
	b.t.Helper()
	pair, key := keyPair(b.t, nkeys.CreateUser)
	e, err := b.store.NewJoinEntry(gate.ForHosts, time.Minute, time.Now())
	testkit.Must(b.t, err)
	if _, _, err := b.ask(gate.Join{Secret: e.Secret, Name: name, Key: key}); err != nil {
		b.t.Fatal(err)
	}
	h := &host{key: key, pair: pair, dials: make(chan record.Dial, 16), lost: make(chan error, 1024), tickets: map[string]bool{}, isReady: make(chan struct{}), sessions: map[protocol.SessionID]json.RawMessage{}}
	h.at.Store(b)
	connected := make(chan bool, 1024)
	h.bus, err = bus.Connect(b.t.Context(), bus.HostOptions{
		Key: key,
		LinkOptions: bus.LinkOptions{
			Dial: func(context.Context) (net.Conn, string, error) {
				h.links.Add(1)
				return h.at.Load().prove(key, pair)
			},
			Connected: func() {
				connected <- true
				go h.say()
			},
			Lost:   func(err error) { h.lost <- err },
			Failed: func(err error) { h.lost <- err },
		},
		Receive: func(kind string, data []byte) {
			switch kind {
			case record.KindHello:
				go h.say()
			case record.KindRoster:
				go h.sayAll()
			}
			switch m, err := record.Decode[record.Dial](data); {
			case kind != record.KindDial || err != nil:
			case h.tickets[m.Ticket]:
				h.repeats.Add(1)
			default:
				h.tickets[m.Ticket] = true
				h.dials <- m
			}
		},
	})
	testkit.Must(b.t, err)
	b.t.Cleanup(h.bus.Close)
	close(h.isReady)
	testkit.Within(b.t, limit, "the host connects", connected)
	h.say()
	testkit.Eventually(b.t, limit, func() bool { return b.info(name).IsReachable }, name+" is reachable")
	return h
}

// stamp returns the next stamp. h.mu must be held until the message is published, as an agent publishes in the
// order of its stamps: a gate ignores a message whose stamp is older than the last one.
func (h *host) stamp() record.Stamp { return record.Stamp{Epoch: 1, Seq: h.seq.Add(1)} }

// sayLocked publishes the record of the host. h.mu must be held.
func (h *host) sayLocked() {
	sum := record.Sum{}
	for _, raw := range h.sessions {
		sum.Toggle(record.SumOf(raw))
	}
	_ = h.bus.Publish(record.KindHost, record.Encode(record.Host{ // if it is lost, the gate asks again
		Stamp: h.stamp(), Link: h.links.Load(), IsServing: true, Count: len(h.sessions), Sum: sum.String(),
	}))
}

// hide adds a session of which the gate is not told.
func (h *host) hide(id protocol.SessionID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[id] = record.Of(protocol.SessionInfo{ID: id, State: protocol.StateRunning, Argv: []string{"run"}})
}

// say publishes the record of the host, as an agent does when it is connected and when a gate asks.
func (h *host) say() {
	<-h.isReady
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sayLocked()
}

// sayAll publishes all sessions, as an agent does when a gate asks.
func (h *host) sayAll() {
	<-h.isReady
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.bus.Publish(record.KindPiece, record.Encode(record.Piece{ // if it is lost, the gate asks again
		Stamp: h.stamp(), Total: 1, Sessions: slices.Collect(maps.Values(h.sessions)),
	}))
}

func (h *host) publish(t *testing.T, kind string, data []byte) {
	t.Helper()
	testkit.Must(t, h.bus.Publish(kind, data))
}

// prove opens a connection for the bus.
func (b *bench) prove(key string, pair nkeys.KeyPair) (net.Conn, string, error) {
	conn, _, err := gate.Dial(b.t.Context(), []string{b.address}, b.fingerprint)
	if err != nil {
		return nil, "", err
	}
	if err := gate.Write(conn, gate.Bus{Key: key}); err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	m, err := gate.Read(conn, gate.MaxAnswer)
	if err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	signature, err := pair.Sign(gate.SignedText(gate.Bus{}, b.fingerprint, m.(*gate.Challenge).Nonce))
	if err == nil {
		err = gate.Write(conn, gate.Proof{Signature: signature})
	}
	if err == nil {
		m, err = gate.Read(conn, gate.MaxAnswer)
	}
	if err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	return conn, m.(*gate.Accepted).Password, nil
}

func (b *bench) info(name string) gate.HostInfo {
	b.t.Helper()
	conn, m, err := b.ask(gate.Hosts{Token: b.client.Secret})
	testkit.Must(b.t, err)
	_ = conn.Close() // otherwise an old gate waits for further questions
	for _, h := range m.(*gate.HostList).Hosts {
		if h.Name == name {
			return h
		}
	}
	return gate.HostInfo{}
}

// enter lets a client enter a host, and returns both ends and the ticket.
func (b *bench) enter(h *host, name string) (client, arrived net.Conn, ticket string) {
	b.t.Helper()
	client = b.dial()
	testkit.Must(b.t, gate.Write(client, gate.Enter{Token: b.client.Secret, Host: name, Start: true}))
	m := testkit.Within(b.t, limit, "the dial", h.dials)
	if !m.Start || m.Again {
		b.t.Errorf("the dial is %+v", m)
	}
	if (m.Gate == b.address) == (h.at.Load() == b) { // the host names the gate only if it is another one
		b.t.Errorf("the dial names gate %q", m.Gate)
	}
	arrived = b.dial()
	testkit.Must(b.t, gate.Write(arrived, gate.Arrive{Ticket: m.Ticket}))
	if _, err := gate.Read(client, gate.MaxAnswer); err != nil {
		b.t.Fatal(err)
	}
	return client, arrived, m.Ticket
}

func says(err error, want gate.Refusal) bool {
	var r *gate.Refused
	return errors.As(err, &r) && r.Code == want
}

// Bytes go through the gate unchanged in both directions, and the end of one side is the end of the other.
func TestSplice(t *testing.T) {
	b := newBench(t)
	client, arrived, _ := b.enter(b.join("h"), "h")
	text := strings.Repeat("all bytes \x00\xff\r\n", 100_000)
	for _, pair := range [][2]net.Conn{{client, arrived}, {arrived, client}} {
		go func() { _, _ = io.WriteString(pair[0], text) }() // a lost byte is noticed by the reader
		got := make([]byte, len(text))
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != text {
			t.Errorf("%v, or other bytes", err)
		}
	}
	_ = client.Close()
	if n, err := arrived.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("after the client's end, %d bytes and %v", n, err)
	}
}

func TestTicketOnce(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	_, _, ticket := b.enter(h, "h")
	for _, wrong := range []string{ticket, "", strings.Repeat("0", 64)} {
		if _, _, err := b.ask(gate.Arrive{Ticket: wrong}); !says(err, gate.RefusedUnauthorized) {
			t.Errorf("ticket %.8q: %v", wrong, err)
		}
	}
	client := b.dial()
	testkit.Must(t, gate.Write(client, gate.Enter{Token: b.client.Secret, Host: "h"}))
	m := testkit.Within(t, limit, "the dial", h.dials)
	testkit.Must(t, gate.Write(b.dial(), gate.Arrive{Ticket: m.Ticket, Reason: "nothing runs there"}))
	if _, err := gate.Read(client, gate.MaxAnswer); !says(err, gate.RefusedUnreachable) || !strings.Contains(err.Error(), "nothing runs there") {
		t.Errorf("the client is told %v", err)
	}
}

func TestRefused(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	wrong := strings.Repeat("0", 64)
	for _, tt := range []struct {
		name string
		m    protocol.Message
		want gate.Refusal
	}{
		{"enter with a wrong token", gate.Enter{Token: wrong, Host: "h"}, gate.RefusedUnauthorized},
		{"enter without a token", gate.Enter{Host: "h"}, gate.RefusedUnauthorized},
		{"hosts with a wrong token", gate.Hosts{Token: wrong}, gate.RefusedUnauthorized},
		{"sessions with a wrong token", gate.Sessions{Token: wrong}, gate.RefusedUnauthorized},
		{"join with a client's token", gate.Join{Secret: b.client.Secret, Name: "x", Key: h.key}, gate.RefusedUnauthorized},
		{"an unknown host", gate.Enter{Token: b.client.Secret, Host: "../h"}, gate.RefusedUnknownHost},
		{"an unknown key", gate.Bus{Key: "U" + wrong}, gate.RefusedUnauthorized},
		{"a proof first", gate.Proof{}, gate.RefusedInvalid},
		{"the identity with a client's token", gate.Enlist{Secret: b.client.Secret}, gate.RefusedUnauthorized},
		{"a gate without an address", gate.Peer{}, gate.RefusedInvalid},
		{"an answer first", gate.Entered{}, gate.RefusedInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := b.ask(tt.m); !says(err, tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("the key of another host", func(t *testing.T) {
		other, err := nkeys.CreateUser()
		testkit.Must(t, err)
		if _, _, err := b.prove(h.key, other); !says(err, gate.RefusedUnauthorized) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("another fingerprint", func(t *testing.T) {
		if _, _, err := gate.Dial(testkit.Soon(t), []string{b.address}, wrong); !errors.Is(err, gate.ErrFingerprint) {
			t.Errorf("got %v", err)
		}
	})
	for name, bytes := range map[string][]byte{
		"a frame that is too long": {0, 2, 0, 0, 0}, "no frame": []byte("get / HTTP/1.1\r\n\r\n"), "no JSON": frame.Append(nil, frame.Control, []byte("{")),
	} {
		t.Run(name, func(t *testing.T) {
			conn := b.dial()
			if _, err := conn.Write(bytes); err != nil {
				t.Fatal(err)
			}
			if _, err := gate.Read(conn, gate.MaxAnswer); !says(err, gate.RefusedInvalid) {
				t.Errorf("got %v", err)
			}
		})
	}
	if !b.info("h").IsReachable {
		t.Error("the host is not reachable any more")
	}
}

// A revoked host loses its connections at once, cannot come back with its key, and leaves no
// file. Its name is free.
func TestRevoke(t *testing.T) {
	b := newBench(t)
	h, other := b.join("h"), b.join("other")
	client, arrived, _ := b.enter(h, "h")
	if had, err := Revoke(testkit.Soon(t), b.store, b.control, "h"); !had || err != nil {
		t.Fatalf("revoke: %v, %v", had, err)
	}
	for _, conn := range []net.Conn{client, arrived} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection of the host is open: %v", err)
		}
	}
	testkit.Within(t, limit, "the host loses the bus", h.lost)
	if _, _, err := b.prove(h.key, h.pair); !says(err, gate.RefusedUnauthorized) {
		t.Errorf("the host comes back: %v", err)
	}
	if _, _, err := b.ask(gate.Enter{Token: b.client.Secret, Host: "h"}); !says(err, gate.RefusedUnknownHost) {
		t.Errorf("a client enters: %v", err)
	}
	if had, err := Revoke(testkit.Soon(t), b.store, b.control, "h"); had || err != nil {
		t.Errorf("revoke again: %v, %v", had, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(b.control), "gate", "hosts", "h")); !os.IsNotExist(err) {
		t.Errorf("the file of the host: %v", err)
	}
	b.enter(other, "other")
	b.join("h")
}

// If the sockets of a running gate were removed, a revocation does not pass by the gate, which makes its sockets again.
func TestSocketsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.join("h")
	paths := []string{b.control, filepath.Join(b.dir, HandoffSocket)}
	for _, path := range paths {
		testkit.Must(t, os.Remove(path))
	}
	var inUse *socket.InUseError
	if had, err := Revoke(testkit.Soon(t), b.store, b.control, "h"); had || !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("revoke without the socket: %v, %v", had, err)
	}
	for _, path := range paths {
		testkit.Eventually(t, limit, func() bool { _, err := os.Stat(path); return err == nil }, path+" is there again")
	}
	if had, err := Revoke(testkit.Soon(t), b.store, b.control, "h"); !had || err != nil {
		t.Errorf("revoke: %v, %v", had, err)
	}
	testkit.Within(t, limit, "the host loses the bus", h.lost)
}

// A new token of clients takes the place of the one before at once, and the connections that came with that
// one are closed. Hosts stay connected.
func TestRenewClientToken(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	client, arrived, _ := b.enter(h, "h")
	before := b.client
	asking, _, err := b.ask(gate.Hosts{Token: before.Secret})
	testkit.Must(t, err)
	testkit.Must(t, RenewClientToken(testkit.Soon(t), b.store, b.control))
	for _, conn := range []net.Conn{client, arrived, asking} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection with the token before is open: %v", err)
		}
	}
	for _, m := range []protocol.Message{gate.Enter{Token: before.Secret, Host: "h"}, gate.Hosts{Token: before.Secret}, gate.Sessions{Token: before.Secret}} {
		if _, _, err := b.ask(m); !says(err, gate.RefusedUnauthorized) {
			t.Errorf("%s with the token before: %v", m.MessageType(), err)
		}
	}
	if b.client, err = b.store.ClientEntry(); err != nil || b.client.Fingerprint != before.Fingerprint {
		t.Errorf("the new entry has another fingerprint: %v, %v", b.client.Fingerprint, err)
	}
	b.enter(h, "h")
	if len(h.lost) > 0 {
		t.Errorf("the host has lost its connection: %v", <-h.lost)
	}
}

// A host that leaves is removed, and cannot remove another one.
func TestLeave(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	b.join("other")
	if err := h.bus.Publish(record.KindLeave, []byte("other")); err != nil { // the gate may close the connection before a flush
		t.Fatal(err)
	}
	testkit.Eventually(t, limit, func() bool { return b.info("h").Name == "" }, "the host is removed")
	if !b.info("other").IsReachable {
		t.Error("the other host is gone")
	}
}

// Connections that show nothing are limited in number and in time.
func TestUnproven(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	var conns []net.Conn
	for range maxUnproven + 16 {
		conn, err := net.Dial("tcp", b.address)
		testkit.Must(t, err)
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	last := conns[len(conns)-1]
	_ = last.SetReadDeadline(time.Now().Add(limit))
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("the last of too many connections: %v", err)
	}
	_ = conns[0].SetReadDeadline(time.Now().Add(limit))
	if _, err := io.Copy(io.Discard, conns[0]); err != nil && !isReset(err) {
		t.Errorf("the first connection: %v", err)
	}
	testkit.Eventually(t, limit, func() bool {
		conn, _, err := gate.Dial(testkit.Soon(t), []string{b.address}, b.store.Fingerprint())
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, "the gate serves again")
	b.enter(h, "h")
}

// If one address opens as many connections as may show nothing, the gate still serves other addresses.
func TestUnprovenOfOneAddress(t *testing.T) {
	b := newBench(t)
	for range maxUnproven {
		conn, err := net.Dial("tcp", b.address)
		testkit.Must(t, err)
		defer func() { _ = conn.Close() }()
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	raw, err := other.DialContext(testkit.Soon(t), "tcp", b.address)
	if err != nil {
		t.Skip("the machine has no second address: ", err)
	}
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // the test compares no fingerprint
	_ = conn.SetDeadline(time.Now().Add(firstLimit / 2))
	if _, err := gate.Ask[*gate.HostList](conn, gate.Hosts{Token: b.client.Secret}); err != nil {
		t.Errorf("a client of another address: %v", err)
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(fmt.Sprint(err), "reset") }

// A client whose first frame is late may try again: a machine that is short of processor time must not end its
// attachments.
func TestFirstFrameIsLate(t *testing.T) {
	t.Parallel()
	if _, err := gate.Read(newBench(t).dial(), gate.MaxAnswer); !says(err, gate.RefusedBusy) {
		t.Errorf("got %v, want %s", err, gate.RefusedBusy)
	}
}

// The same holds for a proof.
func TestProofIsLate(t *testing.T) {
	t.Parallel()
	conn := newBench(t).dial()
	if _, err := gate.Ask[*gate.Challenge](conn, gate.Peer{Address: "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.Read(conn, gate.MaxAnswer); !says(err, gate.RefusedBusy) {
		t.Errorf("got %v, want %s", err, gate.RefusedBusy)
	}
}

// If a host's record differs twice from the gate's copy, the gate asks for all its sessions twice, although it waits
// between the questions. Without the second question, the list would lack a session until the host's next record.
func TestAsksAgain(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	for n, id := range []protocol.SessionID{"first", "second"} {
		h.hide(id)
		h.say()
		testkit.Eventually(t, limit, func() bool { return len(b.sessions()) == n+1 }, "the gate knows the "+string(id)+" session")
	}
}
