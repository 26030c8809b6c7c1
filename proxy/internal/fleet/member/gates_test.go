package member

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// The agent keeps the addresses that gates tell it, in the order of its file, and connects for clients to
// these alone.
func TestGates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "join.json")
	state, err := NewState(gate.Entry{Addresses: []string{"alias:1", "b:1"}, Fingerprint: "f"}, "h", nil)
	if err == nil {
		err = state.Save(path)
	}
	testkit.Must(t, err)
	a := &agent{o: Options{Path: path, Log: zerolog.Nop()}, state: state, gates: state.Gates}
	if got := a.order(); !slices.Equal(got, state.Gates) {
		t.Errorf("the first order is %v", got)
	}
	a.current = "alias:1" // the gate calls itself a:1
	for _, tt := range []struct {
		name string
		told []string
		want string
	}{
		{"two gates", []string{"a:1", "b:1"}, "alias:1 b:1 a:1"},
		{"no gate", nil, "alias:1 b:1 a:1"},
		{"an address that is not valid", []string{"c:1", "d"}, "alias:1 b:1 a:1"},
		{"too many gates", slices.Repeat([]string{"c:1"}, gate.MaxGates+1), "alias:1 b:1 a:1"},
		{"a gate was removed, another one added", []string{"a:1", "c:1"}, "alias:1 a:1 c:1"},
	} {
		a.learn(tt.told)
		loaded, err := Load(path)
		if got := strings.Join(a.gates, " "); got != tt.want || err != nil || strings.Join(loaded.Gates, " ") != tt.want {
			t.Errorf("%s: the gates are %s, stored %v, %v", tt.name, got, loaded.Gates, err)
		}
	}
	for told, want := range map[string]bool{"": true, "a:1": true, "c:1": true, "b:1": false, "d:1": false} {
		address, isKnown := a.addressOf(record.Dial{Gate: told})
		if isKnown != want || told == "" && address != "alias:1" || told != "" && address != told {
			t.Errorf("a client at %q is reached at %q, %v", told, address, isKnown)
		}
	}
	a.isOver = true
	if a.learn([]string{"e:1"}); slices.Contains(a.gates, "e:1") {
		t.Error("an agent that has left writes its file again")
	}
}

// listenAsGate returns the address and the fingerprint of a gate that closes some connections, and then receives the first
// message of another one.
func listenAsGate(t *testing.T, closes int) (address, fingerprint string, got chan protocol.Message) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	testkit.Must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	got = make(chan protocol.Message, 1)
	go func() {
		for range closes {
			if conn, err := ln.Accept(); err == nil {
				_ = conn.Close()
			}
		}
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}})
		m, _ := gate.Read(secure, gate.MaxFirst)
		got <- m
	}()
	return ln.Addr().String(), gate.Fingerprint(der), got
}

// A ticket comes to the gate although connections with the gate are closed before.
func TestArriveAgain(t *testing.T) {
	t.Parallel()
	address, fingerprint, got := listenAsGate(t, 2)
	a := &agent{state: State{Fingerprint: fingerprint}}
	conn, err := a.arrive(testkit.Soon(t), address, gate.Arrive{Ticket: "ticket"})
	testkit.Must(t, err)
	defer func() { _ = conn.Close() }()
	if m, ok := testkit.Within(t, limit, "the ticket comes", got).(*gate.Arrive); !ok || m.Ticket != "ticket" {
		t.Errorf("the gate receives %+v", m)
	}
}

// A client for which the agent has no place learns the reason.
func TestNoPlace(t *testing.T) {
	address, fingerprint, got := listenAsGate(t, 0)
	a := &agent{
		o: Options{Log: zerolog.Nop()}, state: State{Fingerprint: fingerprint}, current: address, tickets: make(map[string]bool),
		refusing: make(chan struct{}, maxRefusing), places: places{all: maxClients},
	}
	ticket := protocol.NewToken(gate.TokenBytes)
	a.receive(testkit.Soon(t), t.Context(), record.KindDial, record.Encode(record.Dial{Ticket: ticket}))
	m, ok := testkit.Within(t, limit, "the agent answers", got).(*gate.Arrive)
	if !ok || m.Ticket != ticket || !strings.Contains(m.Reason, "it has 1024 clients") {
		t.Errorf("the gate receives %+v", m)
	}
	a.wg.Wait()
	if len(a.tickets) != 0 {
		t.Errorf("the agent still knows the tickets %v", a.tickets)
	}
}

// An agent connects a client once, although a gate sends its ticket several times.
func TestTicketSentTwice(t *testing.T) {
	a := &agent{tickets: make(map[string]bool)}
	for _, want := range []bool{true, false, false} {
		if got := a.beginTicket("ticket"); got != want {
			t.Errorf("the agent connects the client: %v, want %v", got, want)
		}
	}
	a.endTicket("ticket")
	if !a.beginTicket("ticket") || len(a.tickets) != 1 {
		t.Errorf("after its end the agent knows the tickets %v", a.tickets)
	}
}

// An agent waits before its next connection if another agent with its key has connected since its last one. It does not wait
// if the gate knows a later epoch at the first connection, because the file of the join may have been restored.
func TestAnotherAgentHasTheKey(t *testing.T) {
	for _, isFirst := range []bool{true, false} {
		a := &agent{o: Options{Path: filepath.Join(t.TempDir(), "join.json"), Log: zerolog.Nop()}, state: State{Epoch: 5}}
		a.learnEpoch(6, isFirst)
		if waits := a.notBefore.After(time.Now()); waits == isFirst || a.state.Epoch != 7 {
			t.Errorf("at the first connection %v: the agent waits: %v, and has the epoch %d", isFirst, waits, a.state.Epoch)
		}
	}
}
