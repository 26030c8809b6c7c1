//go:build unix

package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/policy"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// handOver lets a new gate take over, and returns a channel that receives the result of the old one.
func (b *bench) handOver() (oldEnds <-chan error) {
	b.t.Helper()
	store, err := credential.Open(filepath.Join(b.dir, "gate"))
	testkit.Must(b.t, err)
	oldEnds = b.ended
	serving := make(chan int, 1)
	ctx, cancel := context.WithCancel(context.Background())
	b.runs(cancel, func() error {
		err := runOnceAlone(ctx, store, Takeover{
			ControlPath: b.control, HandoffPath: filepath.Join(b.dir, HandoffSocket), Timeout: limit, Serving: func(pid int) { serving <- pid },
		})
		close(serving)
		return err
	})
	if testkit.Within(b.t, 2*limit, "the successor serves", serving) == 0 {
		b.t.Fatal(<-b.ended)
	}
	return oldEnds
}

// runOnceAlone runs a successor. A gate refuses each successor until it has noticed the end of the gate before it, which may
// take a while after that gate has returned.
func runOnceAlone(ctx context.Context, store *credential.Store, takeover Takeover) (err error) {
	testkit.Poll(limit, func() bool {
		err = takeover.Run(ctx, store, zerolog.Nop(), Options{})
		return err == nil || !strings.Contains(err.Error(), "still moves its clients")
	})
	return err
}

// serve arrives for each client of the host, and sends each byte back.
func (h *host) serve(b *bench) {
	for {
		select {
		case m := <-h.dials:
			go func() {
				conn, _, err := gate.Dial(b.t.Context(), []string{b.address}, b.fingerprint)
				if err != nil {
					return // the test has ended
				}
				defer func() { _ = conn.Close() }()
				if gate.Write(conn, gate.Arrive{Ticket: m.Ticket}) == nil {
					_, _ = io.Copy(conn, conn)
				}
			}()
		case <-b.t.Context().Done():
			return
		}
	}
}

// open enters a host.
func (b *bench) open(name string) (net.Conn, error) {
	conn, _, err := gate.Dial(b.t.Context(), []string{b.address}, b.fingerprint)
	if err != nil {
		return nil, err
	}
	if _, err := gate.Ask[*gate.Entered](conn, gate.Enter{Token: b.client.Secret, Host: name}); err != nil {
		return nil, fmt.Errorf("%w; %w", err, conn.Close())
	}
	return conn, nil
}

// A caller sends numbered frames through a gate, and expects each of them back.
type caller struct {
	conn  net.Conn
	moves atomic.Uint64 // number of times that it was asked to leave
	count atomic.Uint64
}

// run calls until over is set. If the gate asks it to leave, it opens the next connection first.
func (c *caller) run(b *bench, name string, over *atomic.Bool) (err error) {
	if c.conn, err = b.open(name); err != nil {
		return err
	}
	defer func() { _ = c.conn.Close() }()
	for !over.Load() {
		sent := frame.Append(nil, frame.Output, fmt.Appendf(nil, "%d", c.count.Add(1)))
		if _, err := c.conn.Write(sent); err != nil {
			return err
		}
		for isLeaving := false; ; {
			got, err := gate.ReadFrame(c.conn, frame.Max)
			if err != nil {
				return fmt.Errorf("the answer to %q: %w", sent, err)
			}
			if !bytes.Equal(got, sent) {
				if !strings.Contains(string(got), `"goaway"`) || isLeaving {
					return fmt.Errorf("the answer to %q is %q", sent, got)
				}
				isLeaving = true
				continue
			}
			if isLeaving {
				c.moves.Add(1)
				next, err := b.open(name)
				if err != nil {
					return err
				}
				_ = c.conn.Close()
				c.conn = next
			}
			break
		}
	}
	return nil
}

// While clients call, enter and ask, the gate is replaced several times. No connection is refused, no frame is
// lost, all clients come over, and each old gate ends.
func TestHandoff(t *testing.T) {
	b := newBench(t)
	hosts := []string{"x", "y"}
	for _, name := range hosts {
		go b.join(name).serve(b)
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	var callers []*caller
	fails := make(chan error, 16)
	for i := range 4 {
		c := &caller{}
		callers = append(callers, c)
		wg.Go(func() {
			if err := c.run(b, hosts[i%2], &over); err != nil {
				fails <- err
			}
		})
	}
	var entered, asked int
	wg.Go(func() {
		for ; !over.Load(); entered++ {
			conn, err := b.open(hosts[entered%2])
			if err != nil {
				fails <- fmt.Errorf("a new client: %w", err)
				return
			}
			_ = conn.Close()
		}
	})
	wg.Go(func() {
		for ; !over.Load(); asked++ {
			conn, _, err := gate.Dial(t.Context(), []string{b.address}, b.fingerprint)
			var list *gate.HostList
			if err == nil {
				list, err = gate.Ask[*gate.HostList](conn, gate.Hosts{Token: b.client.Secret})
				_ = conn.Close()
			}
			if err != nil {
				fails <- fmt.Errorf("a question: %w", err)
				return
			}
			for _, h := range list.Hosts {
				if !h.IsReachable || h.Gate != b.address {
					fails <- fmt.Errorf("host %s is reachable: %v, at gate %q", h.Name, h.IsReachable, h.Gate)
					return
				}
			}
		}
	})
	const handoffs = 3
	for n := range handoffs {
		for _, c := range callers {
			before := c.count.Load()
			testkit.Eventually(t, limit, func() bool { return len(fails) > 0 || c.count.Load() > before }, "calls are answered")
		}
		if err := testkit.Within(t, limit, "the old gate ends", b.handOver()); err != nil {
			t.Errorf("old gate %d: %v", n, err)
		}
	}
	over.Store(true)
	wg.Wait()
	close(fails)
	for err := range fails {
		t.Error(err)
	}
	for i, c := range callers {
		if got := c.moves.Load(); got != handoffs {
			t.Errorf("client %d was asked to leave %d times, want %d", i, got, handoffs)
		}
	}
	t.Logf("%d clients entered, and %d questions were answered", entered, asked)
}

// A slowPolicy is a policy that waits with its answer about the client with the token "slow".
type slowPolicy struct {
	rules
	asked  chan struct{}
	answer chan struct{}
}

func (p *slowPolicy) Authenticate(ctx context.Context, c policy.Credentials) (policy.Principal, error) {
	if c.Token == "slow" {
		p.asked <- struct{}{}
		<-p.answer
		c.Token = ""
	}
	return p.rules.Authenticate(ctx, c)
}

// The successor answers a question that the old gate has received before the handoff and not answered yet, because the
// hosts have left the old gate.
func TestQuestionDuringHandoff(t *testing.T) {
	p := &slowPolicy{asked: make(chan struct{}), answer: make(chan struct{})}
	b := &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t), options: Options{Policy: p}}
	b.start()
	h := b.join("x")
	conn := b.dial()
	testkit.Must(t, gate.Write(conn, gate.Hosts{Token: b.client.Secret, UserToken: "slow"}))
	testkit.Within(t, limit, "the policy is asked", p.asked)
	b.handOver()
	testkit.Eventually(t, limit, func() bool { return h.links.Load() > 1 && b.info("x").IsReachable }, "the host is connected with the successor")
	close(p.answer)
	m, err := gate.Read(conn, gate.MaxAnswer)
	if list, ok := m.(*gate.HostList); err != nil || !ok || len(list.Hosts) != 1 || !list.Hosts[0].IsReachable {
		t.Errorf("the answer is %+v, %v", m, err)
	}
	_ = conn.Close() // otherwise the old gate waits for further questions
}

// If a successor fails, dies, does not answer or does not serve, the old gate continues.
func TestHandoffFails(t *testing.T) {
	b := newBench(t)
	go b.join("x").serve(b)
	var over atomic.Bool
	c := &caller{}
	ended := make(chan error, 1)
	go func() { ended <- c.run(b, "x", &over) }()
	type message map[string]any
	takeWithin := func(limit time.Duration) message {
		return message{"do": "take", "versions": protocol.VersionRange{Min: 1, Max: 99}, "records": records, "timeout_ms": limit.Milliseconds()}
	}
	take := takeWithin(limit)
	for _, tt := range []struct {
		name string
		says []message // one after the answer to the one before
		dies bool      // otherwise it stops, until the old gate has given up
	}{
		{"dies after the offer", []message{take}, true},
		{"stops after the offer", []message{takeWithin(2 * time.Second)}, false}, // the test has to wait so long
		{"dies after it was prepared", []message{take, {"do": "prepared"}}, true},
		{"stops after it was prepared", []message{take, {"do": "prepared"}}, false},
		{"fails", []message{take, {"do": "error", "error": protocol.Errorf(protocol.CodeInternal, "broken")}}, true},
		{"does not serve", []message{take, {"do": "look", "body": trial{"127.0.0.1:1"}}}, false},
	} {
		conn, _, err := socket.Dial(testkit.Soon(t), filepath.Join(b.dir, HandoffSocket))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() }) // the old gate kills the process of a refused successor that does not end the conversation
		_ = conn.SetDeadline(time.Now().Add(limit))
		answer := func() (m message) {
			buf := make([]byte, socket.MaxPayload)
			n, files, err := socket.RecvFiles(conn, buf, -1)
			for _, f := range files {
				_ = f.Close()
			}
			if err == nil {
				err = json.Unmarshal(buf[:n], &m)
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			return m
		}
		for _, m := range tt.says {
			text, err := json.Marshal(m)
			if err == nil {
				err = socket.SendFiles(conn, text, nil)
			}
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if m["do"] != "error" && m["do"] != "look" {
				if got := answer(); got["do"] == "error" {
					t.Fatalf("%s: the old gate answers %v to %v", tt.name, got, m["do"])
				}
			}
		}
		if !tt.dies {
			if m := answer(); m["do"] != "error" {
				t.Errorf("%s: the old gate answers %v", tt.name, m)
			}
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if got, err := b.open("x"); err != nil {
			t.Errorf("a successor %s: %v", tt.name, err)
		} else {
			_ = got.Close()
		}
		before := c.count.Load()
		testkit.Eventually(t, limit, func() bool { return len(ended) > 0 || c.count.Load() > before }, "calls are answered after a successor that "+tt.name)
		if _, err := io.Copy(io.Discard, conn); err != nil { // the old gate refuses the next successor until it has closed this conversation
			t.Fatalf("%s: the end of the conversation: %v", tt.name, err)
		}
	}
	if err := testkit.Within(t, limit, "the old gate ends", b.handOver()); err != nil { // it can still be replaced
		t.Error(err)
	}
	over.Store(true)
	if err := testkit.Within(t, limit, "the client ends", ended); err != nil {
		t.Error(err)
	}
	if got := c.moves.Load(); got != 1 {
		t.Errorf("the client was asked to leave %d times", got)
	}
}

// A client that stays at the old gate loses its connection before a revocation returns. Until then, another
// handoff is refused.
func TestHandoffRecall(t *testing.T) {
	b := newBench(t)
	go b.join("x").serve(b)
	stays, err := b.open("x")
	testkit.Must(t, err)
	oldEnds := b.handOver()
	if got, err := gate.ReadFrame(stays, frame.Max); err != nil || !strings.Contains(string(got), `"goaway"`) {
		t.Fatalf("the client is told %q, %v", got, err)
	}
	store, err := credential.Open(filepath.Join(b.dir, "gate"))
	testkit.Must(t, err)
	err = Takeover{ControlPath: b.control, HandoffPath: filepath.Join(b.dir, HandoffSocket), Timeout: limit}.Run(t.Context(), store, zerolog.Nop(), Options{})
	if err == nil || !strings.Contains(err.Error(), "still moves its clients") {
		t.Errorf("another handoff: %v", err)
	}
	if isKnown, err := Revoke(testkit.Soon(t), store, b.control, "x"); err != nil || !isKnown {
		t.Errorf("revoke: %v, %v", isKnown, err)
	}
	_ = stays.SetReadDeadline(time.Now().Add(limit))
	if n, err := io.Copy(io.Discard, stays); n > 0 {
		t.Errorf("after the revocation %d bytes come, %v", n, err)
	}
	if err := testkit.Within(t, limit, "the old gate ends", oldEnds); err != nil {
		t.Error(err)
	}
}

// A gate that is added while a successor stands its trial is connected with the successor, too. Its hosts could not be
// entered through the successor otherwise.
func TestGateAddedDuringHandoff(t *testing.T) {
	b := newBench(t)
	_, state := joinedHouse(b, "x")
	pair, key := pairOf(t, state)
	var links, seq atomic.Uint64
	var isHandedOver atomic.Bool
	other := b.enlisted() // before the handoff, because a trial takes at most 5 s
	add := sync.OnceFunc(func() {
		other.start()
		b.expect("of the old gate", map[string]any{"gate_peers": 1})
	})
	say := make(chan struct{}, 16)
	h, err := bus.Connect(testkit.Soon(t), bus.HostOptions{Key: key, LinkOptions: bus.LinkOptions{
		Dial: func(context.Context) (net.Conn, string, error) {
			links.Add(1)
			return b.prove(key, pair)
		},
		Connected: func() { say <- struct{}{} }, Lost: func(error) {}, Failed: func(error) {},
	}, Receive: func(kind string, _ []byte) {
		if kind == record.KindHello {
			if isHandedOver.Load() {
				add() // the successor has read the members, and waits for the record of this host
			}
			say <- struct{}{}
		}
	}})
	testkit.Must(t, err)
	t.Cleanup(h.Close)
	go func() {
		for {
			select {
			case <-say:
				_ = h.Publish(record.KindHost, record.Encode(record.Host{ // if it is lost, the gate asks again
					Stamp: record.Stamp{Epoch: 1, Seq: seq.Add(1)}, Link: links.Load(), Sum: record.Sum{}.String(),
				}))
			case <-t.Context().Done():
				return
			}
		}
	}()
	testkit.Eventually(t, limit, func() bool { return b.info("x").IsReachable }, "the host is reachable")
	isHandedOver.Store(true)
	if err := testkit.Within(t, limit, "the old gate ends", b.handOver()); err != nil {
		t.Error(err)
	}
	b.expect("of the successor", map[string]any{"gate_peers": 1, "gate_peers_connected": 1})
	other.join("y")
	testkit.Eventually(t, limit, func() bool { return b.info("y").IsReachable }, "the host of the other gate is reachable")
}

// A successor tells the other gates the sum of the members that the old gate has left. With the sum of those that it has
// read first, a gate that does not know the last ones would not ask for them.
func TestSumAfterHandoff(t *testing.T) {
	dir := filepath.Join(testkit.Dir(t), "gate")
	old, err := credential.Open(dir)
	testkit.Must(t, err)
	testkit.Must(t, old.SetAddress("127.0.0.1:1", time.Now()))
	store, err := credential.Open(dir)
	testkit.Must(t, err)
	g, err := newGate(t.Context(), store, zerolog.Nop(), Options{})
	testkit.Must(t, err)
	defer g.close()
	if _, err := g.memberSum(); err != nil {
		t.Fatal(err)
	}
	if _, err := old.AddGate("127.0.0.1:2", time.Now()); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, g.learnAgain())
	members, err := old.Members()
	testkit.Must(t, err)
	if sum, err := g.memberSum(); err != nil || sum != members.Sum() {
		t.Errorf("the sum is %s, want %s: %v", sum, members.Sum(), err)
	}
}

// A command that has reached a gate whose successor serves already is sent again, to the successor.
func TestCommandDuringHandoff(t *testing.T) {
	path := filepath.Join(testkit.Dir(t), ControlSocket)
	ln, err := net.Listen("unix", path)
	testkit.Must(t, err)
	defer func() { _ = ln.Close() }()
	go func() {
		for _, answer := range []string{"error " + errMoved.Error(), "ok", "error no such thing"} {
			conn, err := ln.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, err = bufio.NewReader(conn).ReadString('\n')
			if _, failed := fmt.Fprintln(conn, answer); err != nil || failed != nil {
				t.Error(err, failed)
			}
			_ = conn.Close()
		}
	}()
	if isKnown, err := Revoke(testkit.Soon(t), nil, path, "x"); err != nil || !isKnown {
		t.Errorf("revoke: %v, %v", isKnown, err)
	}
	if _, err := Revoke(testkit.Soon(t), nil, path, "x"); err == nil || err.Error() != "no such thing" {
		t.Errorf("another error: %v", err)
	}
}

// A gate that is ended while a successor takes over completes that first. Its end would remove the paths of the sockets,
// which the successor has by then.
func TestEndsDuringHandoff(t *testing.T) {
	b := newBench(t)
	take, err := handoff.Begin(testkit.Soon(t), filepath.Join(b.dir, HandoffSocket), handoff.Hello{Build: "test", Records: records, Timeout: limit})
	testkit.Must(t, err)
	if _, _, err := take.Prepared(func([]handoff.Conn, []byte, <-chan struct{}) error {
		return errors.New("a gate passes on no connections")
	}); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b.stop()
	}()
	isGone := func() bool {
		_, err := os.Stat(b.control)
		return err != nil
	}
	if testkit.Poll(300*time.Millisecond, isGone) {
		t.Error("the gate has removed the path of a socket that its successor has")
	}
	if err := take.Serving(); err != nil {
		t.Errorf("the old gate does not confirm: %v", err)
	}
	testkit.Within(t, limit, "the old gate ends", stopped)
	if isGone() {
		t.Error("the path of a socket is gone")
	}
}

// A gate without hosts is handed over only if the successor is connected with its bus. The successor could not recall it
// otherwise, and would later take itself for the gate before, because it listens at the same path then.
func TestHandoffWithoutHosts(t *testing.T) {
	silent := filepath.Join(testkit.Dir(t), ControlSocket)
	ln, err := net.Listen("unix", silent)
	testkit.Must(t, err)
	defer func() { _ = ln.Close() }()
	for _, path := range []string{silent, filepath.Join(testkit.Dir(t), "none.sock")} {
		b := newBench(t)
		for range 3 {
			if err := testkit.Within(t, limit, "the old gate ends", b.handOver()); err != nil {
				t.Error(err)
			}
		}
		store, err := credential.Open(filepath.Join(b.dir, "gate"))
		testkit.Must(t, err)
		err = runOnceAlone(testkit.Soon(t), store, Takeover{
			ControlPath: path, HandoffPath: filepath.Join(b.dir, HandoffSocket), Timeout: 3 * time.Second, Serving: func(int) { t.Error("the successor serves") },
		})
		if err == nil || !strings.Contains(err.Error(), "not connected with the bus of the gate before") || !strings.Contains(err.Error(), "continues to serve") {
			t.Errorf("handoff with the control socket %s: %v", path, err)
		}
		if b.info("x").Name != "" {
			t.Error("the old gate does not continue to serve")
		}
	}
}
