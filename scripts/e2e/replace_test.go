package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// bigRing is a ring that holds all output of a stream, so that it can be compared.
const bigRing = "HOLDFAST_RING_BYTES=67108864"

// demand: S8
func TestProxyKilled(t *testing.T) {
	t.Parallel()
	const kills = 50
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	w := newWorld(t, bigRing)
	s := newStream(t, w, "s")
	held := w.Only("supervisor")
	killed := map[process]bool{}
	for range kills {
		s.flow(t, 1+rnd.IntN(1000)) // these lines came through the current proxy
		p := lookup(w.Holder("proxy.sock"))
		if killed[p] || !p.Running() {
			t.Fatalf("process %d holds the socket, but it was killed before or has ended", p.PID)
		}
		killed[p] = true
		w.Kill(p)
	}
	s.flow(t, 1)
	s.finish(t)
	if now := w.Only("supervisor"); now != held {
		t.Errorf("the supervisor was %v; now it is %v", held, now)
	}
	w.Only("proxy")
}

// demand: S9
func TestHandoffs(t *testing.T) {
	t.Parallel()
	const handoffs = 20
	w := newWorld(t, bigRing)
	s := newStream(t, w, "s")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	sockets := []string{"proxy.sock", "proxy.web.sock", "proxy.control.sock", "supervisor.sock"}
	inodes := map[string]string{}
	for _, name := range sockets {
		inodes[name] = inode(w.Path(name))
	}
	hammers := w.hammers(2)
	for range handoffs {
		proxy = w.replaceProxy(proxy)
		if now := w.Only("proxy"); now != proxy {
			t.Fatalf("process %d serves, want %d", now.PID, proxy.PID)
		}
		s.flow(t, 1)
	}
	hammers.stop(t)
	s.finish(t)
	if now := w.Only("supervisor"); now != held {
		t.Errorf("the supervisor was %v; now it is %v", held, now)
	}
	for _, name := range sockets {
		if now := inode(w.Path(name)); now != inodes[name] {
			t.Errorf("the inode of %s was %s; now it is %s", name, inodes[name], now)
		}
	}
}

// hammers are goroutines that connect in a loop.
type hammers struct {
	stopped   atomic.Bool
	wg        sync.WaitGroup
	mu        sync.Mutex
	good, cut int
	refused   []error
}

func (w *world) hammers(n int) *hammers {
	h := &hammers{}
	for range n {
		h.wg.Go(func() {
			good, cut, refused := w.hammer(&h.stopped)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.good, h.cut = h.good+good, h.cut+cut
			if refused != nil {
				h.refused = append(h.refused, refused)
			}
		})
	}
	w.T.Cleanup(func() { h.stopped.Store(true); h.wg.Wait() })
	return h
}

// stop ends the goroutines. It fails the test if a connection was refused, or if no connection was answered.
func (h *hammers) stop(t testing.TB) {
	t.Helper()
	h.stopped.Store(true)
	h.wg.Wait()
	t.Logf("%d connections answered, %d closed before the answer", h.good, h.cut)
	if len(h.refused) > 0 {
		t.Errorf("connections were refused: %v", h.refused)
	}
	if h.good == 0 {
		t.Error("no connection was answered")
	}
}

// demand: S9, a handoff where no proxy runs
func TestHandoffFromNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.Run("proxy", "--handoff"); r.Code != 69 || !strings.Contains(r.Errout, "nothing runs here") {
		t.Errorf("handoff without a supervisor: %v", r)
	}
	w.Must("proxy", "start")
	w.Kill(w.Only("proxy"))
	if out := w.Must("proxy", "--handoff"); !strings.Contains(out, "no proxy ran before") {
		t.Errorf("the handoff printed %q", out)
	}
	w.Must("proxy", "ls")
	w.Only("proxy")
}

// If the new proxy fails, the old proxy must continue to serve without a change.
// demand: S9
func TestHandoffFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	proxy := w.Only("proxy")
	// A new proxy with an invalid setting does not begin the handoff.
	good := w.Env
	w.Env = append(w.Env, "HOLDFAST_LOG_LEVEL=loud")
	if r := w.Run("proxy", "serve", "--take-over"); r.Code == 0 || !strings.Contains(r.Errout, "log_level") {
		t.Errorf("start of a new proxy with an invalid setting: %v", r)
	}
	w.Env = good
	// A new proxy receives everything and ends before it serves.
	for range 5 {
		p, err := w.peer("proxy.control.sock")
		testkit.Must(t, err)
		if _, err := p.Write([]byte(`{"do":"take","versions":{"min":1,"max":1}}`)); err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
	}
	v.ask("still here")
	if now := w.Only("proxy"); now != proxy || c.ProxyPID() != proxy.PID {
		t.Errorf("the proxy was %v; now it is %v", proxy, now)
	}
	w.Must("proxy", "--handoff") // a handoff to a good proxy still works
	v.ask("and with the next")
}

// demand: S2
func TestTwoProxies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	red := w.dial(client.Options{})
	one := w.echo(red, "s")
	w.Start(w.Command("proxy", "serve", "--background", "--proxy", "blue"))
	testkit.Eventually(t, limit, func() bool { _, err := os.Stat(w.Path("blue.sock")); return err == nil }, "the second proxy serves")
	blue := w.connect(client.Options{Proxy: "blue", Name: "blue"})
	two := w.attach(blue, "s", client.AttachOptions{})
	two.until("ready\n")
	if red.ProxyPID() == blue.ProxyPID() || len(w.Running("proxy")) != 2 {
		t.Fatal("two proxies are expected")
	}
	held := w.Only("supervisor")

	one.say("from red\n")
	two.say("from blue\n")
	for _, v := range []*view{one, two} {
		v.until("from")
		v.until("from")
		v.until("\n")
		v.buf = nil // the end of the other line
	}
	one.ask("red is seen by red\n")
	two.until("red is seen by red\n")
	two.ask("blue is seen by blue\n")
	one.until("blue is seen by blue\n")

	dead, alive := lookup(red.ProxyPID()), lookup(blue.ProxyPID())
	w.Kill(dead)
	two.ask("blue goes on\n")
	one.until("blue goes on\n") // through the successor of red
	if blue.ProxyPID() != alive.PID || !alive.Running() || two.Missed() != 0 {
		t.Error("the death of red has disturbed blue or its attachment")
	}
	one.ask("red is back\n")
	two.until("red is back\n")
	if now := w.Only("supervisor"); now != held {
		t.Errorf("the supervisor was %v; now it is %v", held, now)
	}
}

// If a proxy dies before it serves, a waiting client must start another one.
// demand: S8
func TestProxyKilledWhileStarting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var starts atomic.Int32
	c := w.dial(client.Options{Start: func(ctx context.Context) error {
		if n := starts.Add(1); n == 2 || n == 3 {
			return nil // as if the proxy died at once
		}
		return w.startProxy(ctx)
	}})
	v := w.echo(c, "s")
	w.Kill(w.Only("proxy"))
	v.ask("through the third that was started\n")
	if n := starts.Load(); n < 4 {
		t.Errorf("the proxy was started %d times, want at least 4", n)
	}
}

// Requests and subscriptions must survive the death of proxies: each request must be executed once, and each
// event must be received once, in order.
// demand: S8
func TestRequestsSurvive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.Start(w.Command("proxy", "serve", "--background", "--proxy", "blue"))
	testkit.Eventually(t, limit, func() bool { _, err := os.Stat(w.Path("blue.sock")); return err == nil }, "the second proxy serves")
	blue := w.connect(client.Options{Proxy: "blue"})
	v := w.echo(blue, "echo")
	events, err := c.Events(w.ctx())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = events.Close() })
	w.spawn(blue, "s9", shell("stty -echo; read x; exit 3"))
	waited := make(chan error, 1)
	ctx := w.ctx()
	go func() {
		exit, err := c.Wait(ctx, "s9", -1)
		if err == nil && exit.ExitCode != 3 {
			err = fmt.Errorf("code %d", exit.ExitCode)
		}
		waited <- err
	}()

	const rounds = 20
	asked := make(chan error, 2)
	for i := range rounds {
		p := lookup(w.Holder("proxy.sock"))
		go func() { asked <- c.Type(ctx, "echo", fmt.Appendf(nil, "typed %d\n", i)) }()
		go func() {
			_, err := c.Spawn(ctx, client.SpawnRequest{ID: protocol.SessionID(fmt.Sprint("r", i)), SpawnSpec: shell("exec cat"), EarlyExit: none})
			asked <- err
		}()
		w.Kill(p)
		for range 2 {
			if err := <-asked; err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		}
		if before := v.until(fmt.Sprintf("typed %d\n", i)); before != "" {
			t.Errorf("round %d: unexpected output %q before the echo", i, before)
		}
		_, _ = c.List(ctx, "") // it starts a proxy for the next round
	}
	if err := c.Type(ctx, "s9", []byte("\n")); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("the request that waited for the exit: %v", err)
	}

	var created []string
	for seq := uint64(0); len(created) < rounds+1; {
		e, err := events.Next()
		testkit.Must(t, err)
		if seq != 0 && e.Seq != seq+1 {
			t.Fatalf("event %d came after event %d", e.Seq, seq)
		}
		if seq = e.Seq; e.Event == protocol.EventCreated {
			created = append(created, string(e.Session.ID))
		}
	}
	want := []string{"s9"}
	for i := range rounds {
		want = append(want, fmt.Sprint("r", i))
	}
	if !slices.Equal(created, want) {
		t.Errorf("the created sessions are %q, want %q", created, want)
	}
}
