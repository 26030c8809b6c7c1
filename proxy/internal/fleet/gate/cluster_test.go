//go:build unix

package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// A natsCluster has three servers of NATS, each a process, which speak TLS and demand credentials.
type natsCluster struct {
	t       *testing.T
	dir     string
	options bus.ClusterOptions
	ports   []string
	running []*exec.Cmd // nil for a server that does not run
}

func newNATSCluster(t *testing.T) *natsCluster {
	t.Helper()
	c := &natsCluster{t: t, dir: testkit.Dir(t), running: make([]*exec.Cmd, 3)}
	c.options.CA, c.options.Credentials = filepath.Join(c.dir, "ca.pem"), filepath.Join(c.dir, "gate.creds")
	c.writeCertificate()
	auth := c.writeCredentials()
	var urls, routes, routePorts []string
	for range c.running {
		client, route := testkit.FreePort(t), testkit.FreePort(t)
		c.ports, routePorts = append(c.ports, client), append(routePorts, route)
		urls, routes = append(urls, "tls://127.0.0.1:"+client), append(routes, "nats://127.0.0.1:"+route)
	}
	c.options.URL = strings.Join(urls, ",")
	for i, port := range c.ports {
		c.write(fmt.Sprintf("%d.conf", i), fmt.Sprintf("server_name: n%d\nlisten: 127.0.0.1:%s\n%s\ntls { cert_file: %q, key_file: %q }\ncluster { name: c, listen: 127.0.0.1:%s, routes: [%s] }\n",
			i, port, auth, c.options.CA, filepath.Join(c.dir, "key.pem"), routePorts[i], strings.Join(routes, ", ")))
	}
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
	for i := range c.running {
		c.start(i)
	}
	return c
}

func (c *natsCluster) write(name, content string) {
	c.t.Helper()
	testkit.Must(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600))
}

// writeCertificate writes the certificate of the servers, which is its own authority.
func (c *natsCluster) writeCertificate() {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(c.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nats"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Must(c.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.Must(c.t, err)
	c.write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	c.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// writeCredentials writes the credentials of a user, and returns the settings with which servers demand them.
func (c *natsCluster) writeCredentials() (settings string) {
	c.t.Helper()
	encode := func(v any) string {
		b, err := json.Marshal(v)
		testkit.Must(c.t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	token := func(signer nkeys.KeyPair, issuer, subject string, claims map[string]any) string {
		claims["version"] = 2
		text := encode(map[string]any{"typ": "JWT", "alg": "ed25519-nkey"}) + "." +
			encode(map[string]any{"jti": "t", "iat": time.Now().Unix(), "iss": issuer, "sub": subject, "name": "t", "nats": claims})
		signature, err := signer.Sign([]byte(text))
		testkit.Must(c.t, err)
		return text + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	operator, operatorKey := keyPair(c.t, nkeys.CreateOperator)
	account, accountKey := keyPair(c.t, nkeys.CreateAccount)
	userPair, userKey := keyPair(c.t, nkeys.CreateUser)
	seed, err := userPair.Seed()
	testkit.Must(c.t, err)
	c.write("gate.creds", "-----BEGIN NATS USER JWT-----\n"+
		token(account, accountKey, userKey, map[string]any{"type": "user", "pub": map[string]any{}, "sub": map[string]any{}, "subs": -1, "data": -1, "payload": -1})+
		"\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n"+string(seed)+"\n------END USER NKEY SEED------\n")
	limits := map[string]any{"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1}
	return fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload { %s: %s }", token(operator, operatorKey, operatorKey, map[string]any{"type": "operator"}),
		accountKey, token(operator, operatorKey, accountKey, map[string]any{"type": "account", "limits": limits, "default_permissions": map[string]any{"pub": map[string]any{}, "sub": map[string]any{}}}))
}

// start starts a server, and returns when it listens.
func (c *natsCluster) start(i int) {
	c.t.Helper()
	program := filepath.Join(testkit.Build(c.t, "github.com/nats-io/nats-server/v2"), "nats-server")
	cmd := exec.Command(program, "-c", filepath.Join(c.dir, fmt.Sprintf("%d.conf", i)), "-l", filepath.Join(c.dir, fmt.Sprintf("%d.log", i)))
	testkit.Must(c.t, cmd.Start())
	c.running[i] = cmd
	if !testkit.Poll(limit, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+c.ports[i])
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		log, _ := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("%d.log", i)))
		c.t.Fatalf("the server of NATS does not listen within %v; its log:\n%s", limit, log)
	}
}

func (c *natsCluster) kill(i int) {
	if cmd := c.running[i]; cmd != nil {
		c.running[i] = nil
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// sessions returns what a gate says of all sessions.
func (b *bench) sessions() []gate.SessionRow {
	b.t.Helper()
	_, m, err := b.ask(gate.Sessions{Token: b.client.Secret})
	testkit.Must(b.t, err)
	return m.(*gate.SessionList).Sessions
}

// flows fails the test unless bytes go in both directions.
func flows(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		got := make([]byte, 5)
		deadline := time.Now().Add(limit) // a new one, because the test may go on for longer
		err := errors.Join(pair[0].SetDeadline(deadline), pair[1].SetDeadline(deadline))
		if err == nil {
			_, err = pair[0].Write([]byte("bytes"))
		}
		if err == nil {
			_, err = io.ReadFull(pair[1], got)
		}
		if err != nil || string(got) != "bytes" {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// Two gates exchange their messages over a NATS cluster of others. One of its servers is killed, and later all
// of them. Clients that have entered a host do not notice. When the cluster is back, each gate knows all
// that has changed meanwhile. HOLDFAST_LONG=1 keeps the cluster away for 10 minutes, and demands that the
// gates agree within 5 s.
func TestCluster(t *testing.T) {
	c := newNATSCluster(t)
	first := &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t), options: Options{NATS: c.options}}
	first.start()
	second := first.another()
	x, y := second.join("x"), first.join("y")
	testkit.Eventually(t, limit, func() bool { return isReachable("x", second, first, second) && isReachable("y", first, first, second) }, "both gates know both hosts")
	x.set(t, "a", protocol.StateRunning)
	agree := func() bool { s := first.sessions(); return len(s) > 0 && reflect.DeepEqual(s, second.sessions()) }
	testkit.Eventually(t, limit, agree, "both gates know the session")
	client, arrived, _ := first.enter(x, "x")
	flows(t, client, arrived)

	c.kill(0)
	flows(t, client, arrived)
	testkit.Eventually(t, limit, func() bool { return isReachable("x", second, first) && isReachable("y", first, second) }, "the hosts are reachable over the other servers")
	x.set(t, "b", protocol.StateRunning)
	testkit.Eventually(t, limit, func() bool { return len(first.sessions()) == 2 && agree() }, "both gates know the second session")
	other, otherArrived, _ := second.enter(y, "y")
	flows(t, other, otherArrived)

	c.kill(1)
	c.kill(2)
	testkit.Eventually(t, limit, func() bool { return !first.info("x").IsReachable && !second.info("y").IsReachable }, "the gates notice that the cluster is gone")
	for _, s := range first.sessions() {
		if s.State != string(gate.StateUnknown) {
			t.Errorf("without the cluster, session %s is %s", s.ID, s.State)
		}
	}
	x.set(t, "a", protocol.StateExited)
	x.set(t, "c", protocol.StateRunning)
	z := second.join("z")
	z.set(t, "d", protocol.StateRunning)
	own, ownArrived, _ := first.enter(y, "y")
	carries(t, own, ownArrived)
	isLong := os.Getenv("HOLDFAST_LONG") != ""
	if isLong {
		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
			flows(t, client, arrived)
			flows(t, other, otherArrived)
		}
	}
	flows(t, client, arrived)
	flows(t, other, otherArrived)
	for i := range c.running {
		c.start(i)
	}
	begin := time.Now()
	testkit.Eventually(t, limit, func() bool {
		return len(first.sessions()) == 4 && agree() && first.info("z").IsReachable && first.sessions()[0].State == string(protocol.StateExited)
	}, "both gates know all that has changed")
	took := time.Since(begin)
	t.Logf("the gates agree %v after the return of the cluster", took)
	if isLong && took > 5*time.Second {
		t.Errorf("the gates agree %v after the return of the cluster, want at most 5 s", took)
	}
	flows(t, client, arrived)
	flows(t, other, otherArrived)
	client, arrived, _ = first.enter(z, "z")
	carries(t, client, arrived)
}

// What crosses the cluster is of no use to whoever reads it, and what others publish there has no effect.
func TestClusterKey(t *testing.T) {
	first := newBench(t)
	second := first.another()
	alone := newBench(t)
	keys := map[string]bool{}
	for _, b := range []*bench{first, second, alone} {
		key, err := b.store.ClusterKey()
		if err != nil || len(key) != 32 {
			t.Fatalf("key of %d bytes, %v", len(key), err)
		}
		keys[string(key)] = true
	}
	if len(keys) != 2 {
		t.Errorf("the gates of two fleets have %d keys", len(keys))
	}
}

// set changes a session of the host, and tells the gate.
func (h *host) set(t *testing.T, id protocol.SessionID, state protocol.State) {
	t.Helper()
	raw := record.Of(protocol.SessionInfo{ID: id, State: state, Argv: []string{"run"}})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[id] = raw
	h.publish(t, record.KindChange, record.Encode(record.Change{Stamp: h.stamp(), ID: id, Session: raw}))
	h.sayLocked()
}
