//go:build unix

package gate

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// request sends a request as the page of the gate does, and returns the answer and its connection, which may have
// become a WebSocket.
func (b *bench) request(method, path string, headers ...string) (*http.Response, *bufio.Reader, net.Conn) {
	b.t.Helper()
	conn := b.dial()
	text := method + " " + path + " HTTP/1.1\r\nHost: " + b.address + "\r\n" + strings.Join(append(headers, "", ""), "\r\n")
	if _, err := io.WriteString(conn, text); err != nil {
		b.t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r, in, conn
}

func (b *bench) origin() string { return "Origin: https://" + b.address }

// signIn returns the header with the cookie of a browser whose user has typed the token.
func (b *bench) signIn(token string) (cookie string, status int) {
	b.t.Helper()
	r, _, _ := b.request(http.MethodPost, "/v1/sign-in", b.origin(), "Authorization: Bearer "+token)
	for _, c := range r.Cookies() {
		if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			b.t.Errorf("the cookie is %+v", c)
		}
		cookie = "Cookie: " + c.Name + "=" + c.Value
	}
	return cookie, r.StatusCode
}

func (b *bench) isSignedIn(cookie string) bool {
	b.t.Helper()
	r, _, _ := b.request(http.MethodGet, "/v1/page", cookie)
	var state struct {
		SignedIn bool `json:"signed_in"`
		Gate     bool `json:"gate"`
	}
	if err := json.NewDecoder(r.Body).Decode(&state); err != nil || !state.Gate {
		b.t.Errorf("the state of the page is %+v, %v", state, err)
	}
	return state.SignedIn
}

// A webSocket is the client's end of a WebSocket of the gate.
type webSocket struct {
	t    *testing.T
	in   *bufio.Reader
	conn net.Conn
}

// openSocket opens a WebSocket. If the gate refuses it, the status tells why.
func (b *bench) openSocket(headers ...string) (s *webSocket, status int) {
	b.t.Helper()
	r, in, conn := b.request(http.MethodGet, "/v1/gate", append(headers, "Connection: Upgrade", "Upgrade: websocket",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Protocol: "+gate.Subprotocol)...)
	return &webSocket{b.t, in, conn}, r.StatusCode
}

const (
	textMessage   = 0x81
	binaryMessage = 0x82
)

// send sends one message, masked with zeros.
func (s *webSocket) send(kind byte, payload []byte) {
	s.t.Helper()
	head := binary.BigEndian.AppendUint64([]byte{kind, 0x80 | 127}, uint64(len(payload)))
	if _, err := s.conn.Write(append(append(head, 0, 0, 0, 0), payload...)); err != nil {
		s.t.Fatal(err)
	}
}

// read returns the next message. The kind is 0 if the gate has closed the connection.
func (s *webSocket) read() (kind byte, payload []byte) {
	s.t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(s.in, head); err != nil {
		return 0, nil
	}
	n := uint64(head[1])
	if n >= 126 {
		size := make([]byte, 8)
		if _, err := io.ReadFull(s.in, size[8-(2<<((n-126)*2)):]); err != nil {
			s.t.Fatal(err)
		}
		n = binary.BigEndian.Uint64(size)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		s.t.Fatal(err)
	}
	return head[0], payload
}

// ask sends a message of the gate, and returns the answer.
func (s *webSocket) ask(m protocol.Message) (protocol.Message, error) {
	s.t.Helper()
	b, err := protocol.Encode(m)
	testkit.Must(s.t, err)
	s.send(textMessage, b)
	return s.answer()
}

func (s *webSocket) answer() (protocol.Message, error) {
	s.t.Helper()
	kind, b := s.read()
	if kind != textMessage {
		s.t.Fatalf("the answer has the kind %#x", kind)
	}
	return gate.Read(bytes.NewReader(frame.Append(nil, frame.Control, b)), gate.MaxAnswer)
}

// A browser signs in with the token or with a ticket, asks for the directory, and enters a host. The frames of
// both sides arrive as they were sent, in whichever pieces.
func TestWebSocket(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	cookie, status := b.signIn(b.client.Secret)
	if status != http.StatusOK || !b.isSignedIn(cookie) {
		t.Fatalf("the browser is not signed in: %d", status)
	}
	s, _ := b.openSocket(b.origin(), cookie)
	for range 2 {
		m, err := s.ask(gate.Hosts{})
		if list, ok := m.(*gate.HostList); err != nil || !ok || len(list.Hosts) != 1 || !list.Hosts[0].IsReachable {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	for name, open := range map[string]func() (*webSocket, string){
		"with a cookie": func() (*webSocket, string) { s, _ := b.openSocket(b.origin(), cookie); return s, "" },
		"with a token":  func() (*webSocket, string) { s, _ := b.openSocket(); return s, b.client.Secret },
	} {
		t.Run(name, func(t *testing.T) {
			s, token := open()
			b, err := protocol.Encode(gate.Enter{Token: token, Host: "h", Start: true})
			testkit.Must(t, err)
			s.send(textMessage, b)
			h.crossCheck(t, s)
		})
	}
}

// crossCheck arrives for a client that enters over a WebSocket, and compares what comes in both directions.
func (h *host) crossCheck(t *testing.T, s *webSocket) {
	t.Helper()
	m := testkit.Within(t, limit, "the dial", h.dials)
	arrived := h.at.Load().dial()
	testkit.Must(t, gate.Write(arrived, gate.Arrive{Ticket: m.Ticket}))
	if answer, err := s.answer(); err != nil || answer.MessageType() != "entered" {
		t.Fatalf("got %v, %v", answer, err)
	}
	large := bytes.Repeat([]byte("all bytes \x00\xff\r\n"), 20_000)
	s.send(textMessage, []byte(`{"type":"hello"}`))
	s.send(binaryMessage, append([]byte{byte(frame.Output)}, large...))
	for _, want := range [][]byte{frame.Append(nil, frame.Control, []byte(`{"type":"hello"}`)), frame.Append(nil, frame.Output, large)} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(arrived, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the host receives other bytes, %v", err)
		}
	}
	wire := frame.Append(frame.Append(nil, frame.Control, []byte(`{"type":"welcome"}`)), frame.Output, large)
	for _, end := range []int{1, 4, 7, 40, len(wire) - 1, len(wire)} {
		piece := wire[:min(end, len(wire))]
		if _, err := arrived.Write(piece); err != nil {
			t.Fatal(err)
		}
		wire = wire[len(piece):]
	}
	if kind, got := s.read(); kind != textMessage || string(got) != `{"type":"welcome"}` {
		t.Errorf("the client receives %#x %.40q", kind, got)
	}
	if kind, got := s.read(); kind != binaryMessage || got[0] != byte(frame.Output) || !bytes.Equal(got[1:], large) {
		t.Errorf("the client receives %#x of %d bytes", kind, len(got))
	}
	_ = arrived.Close()
	for kind := byte(1); kind != 0; {
		if kind, _ = s.read(); kind == textMessage || kind == binaryMessage {
			t.Errorf("a message of kind %#x comes after the end of the host", kind)
		}
	}
}

func TestWebSocketRefused(t *testing.T) {
	b := newBench(t)
	b.join("h")
	cookie, _ := b.signIn(b.client.Secret)
	wrong := strings.Repeat("0", 64)
	if got, status := b.signIn(wrong); got != "" || status != http.StatusUnauthorized {
		t.Errorf("a wrong token gets %q, %d", got, status)
	}
	if r, _, _ := b.request(http.MethodPost, "/v1/sign-in", "Origin: https://evil.example", "Authorization: Bearer "+b.client.Secret); r.StatusCode != http.StatusForbidden {
		t.Errorf("the page of another site signs in: %d", r.StatusCode)
	}
	if _, status := b.openSocket("Origin: https://evil.example", cookie); status != http.StatusForbidden {
		t.Errorf("the page of another site opens a WebSocket: %d", status)
	}
	if r, _, _ := b.request(http.MethodGet, "/v1/gate?token="+wrong); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a token in the URL: %d", r.StatusCode)
	}
	for _, path := range []string{"/v1/api", "/share/x/api", "/share?key=x", "/v1/sessions/s/raw"} {
		if r, _, _ := b.request(http.MethodGet, path, cookie); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	for _, tt := range []struct {
		name    string
		headers []string
		m       protocol.Message
		want    gate.Refusal
	}{
		{"no token", nil, gate.Enter{Host: "h"}, gate.RefusedUnauthorized},
		{"a cookie without an Origin", []string{cookie}, gate.Hosts{}, gate.RefusedUnauthorized},
		{"a wrong cookie", []string{b.origin(), cookie + "x"}, gate.Hosts{}, gate.RefusedUnauthorized},
		{"a wrong token", []string{b.origin(), cookie}, gate.Sessions{Token: wrong}, gate.RefusedUnauthorized},
		{"an unknown host", []string{b.origin(), cookie}, gate.Enter{Host: "other"}, gate.RefusedUnknownHost},
		{"a message of hosts", []string{b.origin(), cookie}, gate.Arrive{Ticket: wrong}, gate.RefusedInvalid},
		{"a message of gates", []string{b.origin(), cookie}, gate.Enlist{Secret: wrong}, gate.RefusedInvalid},
	} {
		s, _ := b.openSocket(tt.headers...)
		if m, err := s.ask(tt.m); !says(err, tt.want) {
			t.Errorf("%s: got %v, %v", tt.name, m, err)
		}
	}
}

// A new token of clients closes the WebSockets that came with the one before, and signs all browsers out. A restart of
// the gate does not.
func TestWebSignOut(t *testing.T) {
	b := newBench(t)
	cookie, _ := b.signIn(b.client.Secret)
	b.stop()
	b.start()
	s, _ := b.openSocket(b.origin(), cookie)
	if m, err := s.ask(gate.Hosts{}); err != nil {
		t.Fatalf("after a restart: %v, %v", m, err)
	}
	testkit.Must(t, RenewClientToken(testkit.Soon(t), b.store, b.control))
	if kind, _ := s.read(); kind != 0 {
		t.Errorf("a message of kind %#x comes after the token is renewed", kind)
	}
	if b.isSignedIn(cookie) {
		t.Error("the browser is signed in")
	}
}

func TestWebTicket(t *testing.T) {
	b := newBench(t)
	ticket, err := Ticket(testkit.Soon(t), b.control)
	testkit.Must(t, err)
	r, _, _ := b.request(http.MethodGet, "/?ticket="+ticket)
	if len(r.Cookies()) != 1 || r.StatusCode != http.StatusSeeOther || !b.isSignedIn("Cookie: "+r.Cookies()[0].Name+"="+r.Cookies()[0].Value) {
		t.Errorf("the ticket gets %d with %v", r.StatusCode, r.Cookies())
	}
	if r, _, _ := b.request(http.MethodGet, "/?ticket="+ticket); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the second browser gets %d", r.StatusCode)
	}
	b.stop()
	if _, err := Ticket(testkit.Soon(t), b.control); !socket.IsAbsent(err) {
		t.Errorf("without a gate: %v", err)
	}
}

// A successor accepts the tickets and the cookies of the gate before it, and each ticket once.
func TestWebTicketOutlivesHandoff(t *testing.T) {
	b := newBench(t)
	ticket, err := Ticket(testkit.Soon(t), b.control)
	used, usedErr := Ticket(testkit.Soon(t), b.control)
	testkit.Must(t, errors.Join(err, usedErr))
	cookie, _ := b.signIn(b.client.Secret)
	b.request(http.MethodGet, "/?ticket="+used)
	for range 2 { // also by the successor of the successor
		testkit.Within(t, 2*limit, "the end of the old gate", b.handOver())
	}
	if !b.isSignedIn(cookie) {
		t.Error("the browser is signed out")
	}
	for _, tt := range []struct {
		name, ticket string
		want         int
	}{
		{"a ticket", ticket, http.StatusSeeOther},
		{"a ticket that the successor has accepted", ticket, http.StatusUnauthorized},
		{"a ticket that the old gate has accepted", used, http.StatusUnauthorized},
	} {
		if r, _, _ := b.request(http.MethodGet, "/?ticket="+tt.ticket); r.StatusCode != tt.want {
			t.Errorf("%s gets %d, want %d", tt.name, r.StatusCode, tt.want)
		}
	}
}

// If a successor gives up after it has received the tickets, the old gate accepts them again.
func TestWebTicketComesBack(t *testing.T) {
	b := newBench(t)
	ticket, err := Ticket(testkit.Soon(t), b.control)
	testkit.Must(t, err)
	take, err := handoff.Begin(testkit.Soon(t), filepath.Join(b.dir, HandoffSocket), handoff.Hello{Records: records, Timeout: limit})
	testkit.Must(t, err)
	_, state, err := take.Prepared(nil)
	if err != nil || !bytes.Contains(state, []byte(ticket)) {
		t.Fatalf("the successor receives %d bytes, %v", len(state), err)
	}
	if answer, err := sendOnce(testkit.Soon(t), b.control, controlTicket); err == nil || err.Error() != errMoved.Error() {
		t.Errorf("a ticket that no gate knows afterwards: %q, %v", answer, err)
	}
	take.GiveUp(errors.New("the test gives up"))
	if r, _, _ := b.request(http.MethodGet, "/?ticket="+ticket); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the ticket gets %d", r.StatusCode)
	}
}

// A browser, which knows no Ed25519 and offers HTTP, gets another certificate than the clients of the gate.
func TestWebCertificate(t *testing.T) {
	b := newBench(t)
	host, _, err := net.SplitHostPort(b.address)
	testkit.Must(t, err)
	browser, err := tls.Dial("tcp", b.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	testkit.Must(t, err)
	defer func() { _ = browser.Close() }()
	got := browser.ConnectionState().PeerCertificates[0]
	if gate.Fingerprint(got.Raw) == b.fingerprint || got.PublicKeyAlgorithm != x509.ECDSA || got.VerifyHostname(host) != nil {
		t.Errorf("a browser gets the certificate %v of %v", got.PublicKeyAlgorithm, got.IPAddresses)
	}
}

// A connection that sends nothing after its request or its handshake is closed.
func TestWebStranger(t *testing.T) {
	b := newBench(t)
	s, _ := b.openSocket()
	for kind := byte(1); kind != 0; {
		if kind, _ = s.read(); kind == binaryMessage {
			t.Error("a stranger receives a message")
		}
	}
	conn := b.dial()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the request may last for ever")
	}
}
