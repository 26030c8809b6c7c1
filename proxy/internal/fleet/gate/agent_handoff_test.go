//go:build unix

package gate

import (
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
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// An agentHouse has the real agent of a host, which is replaced by others in this process. The local proxy, which the
// test plays, sends each byte back.
type agentHouse struct {
	*bench
	dir   string
	ended chan error        // receives the result of the agent that runs
	leave chan<- chan error // to the first agent
}

// joinedHouse returns a house whose host has joined and has no agent yet.
func joinedHouse(b *bench, name string) (*agentHouse, member.State) {
	b.t.Helper()
	a := &agentHouse{bench: b, dir: testkit.Dir(b.t)}
	e, err := b.store.NewJoinEntry(gate.ForHosts, time.Minute, time.Now())
	testkit.Must(b.t, err)
	state, err := member.NewState(e, name, nil)
	if err == nil {
		err = state.Save(a.path())
	}
	if err == nil {
		err = member.Join(testkit.Soon(b.t), state, e.Secret)
	}
	testkit.Must(b.t, err)
	return a, state
}

func newAgentHouse(b *bench, name string) *agentHouse {
	b.t.Helper()
	a, _ := joinedHouse(b, name)
	commands, err := socket.Listen(filepath.Join(a.dir, "commands"), socket.Options{})
	testkit.Must(b.t, err)
	offers, err := socket.Listen(filepath.Join(a.dir, "handoff"), socket.Options{})
	testkit.Must(b.t, err)
	o, leave := a.options(), make(chan chan error)
	a.leave, o.Leave = leave, leave
	o.Sockets = &member.Sockets{Commands: commands, Handoff: offers}
	a.runs(func(ctx context.Context) (*member.Successor, error) { return member.Run(ctx, o) }, commands, offers)
	testkit.Eventually(b.t, limit, func() bool { return b.info(name).IsReachable }, name+" is reachable")
	return a
}

func (a *agentHouse) path() string { return filepath.Join(a.dir, "join.json") }

func (a *agentHouse) options() member.Options {
	return member.Options{
		Path: a.path(), Log: zerolog.Nop(), Leave: make(chan chan error),
		Connect: func(context.Context) (*client.Client, error) { return nil, errors.New("no proxy runs") },
		Ready:   func(context.Context, bool, bool) error { return nil },
		Serve: func(_ context.Context, stream net.Conn, _ *protocol.Principal) error {
			_, err := io.Copy(stream, stream)
			return err
		},
		Upgrade: func(_ context.Context, conn net.Conn, _ gate.Upgrade) error {
			return gate.Write(conn, gate.Refused{Code: gate.RefusedBusy, Message: "another upgrade of this host is in work"})
		},
	}
}

// runs runs an agent until it has a successor or the test ends.
func (a *agentHouse) runs(run func(context.Context) (*member.Successor, error), sockets ...io.Closer) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		next, err := run(ctx)
		if err == nil && next != nil && next.Program != "/next" {
			err = fmt.Errorf("the successor is %+v", *next)
		}
		ended <- err
	})
	a.ended = ended
	a.t.Cleanup(func() {
		cancel()
		for _, s := range sockets {
			_ = s.Close()
		}
		wg.Wait()
	})
}

// takeOver lets another agent take over, and returns the result if it fails.
func (a *agentHouse) takeOver(o member.Options, limit time.Duration) error {
	a.t.Helper()
	serving := make(chan error, 1)
	before := a.ended
	a.runs(func(ctx context.Context) (*member.Successor, error) {
		next, err := member.Takeover{
			CommandPath: filepath.Join(a.dir, "commands"), HandoffPath: filepath.Join(a.dir, "handoff"), Timeout: limit,
			Successor: member.Successor{Program: "/next"},
			Serving: func(s *member.Sockets, pid int) {
				if pid != os.Getpid() {
					a.t.Errorf("the agent before has the pid %d", pid)
				}
				a.t.Cleanup(func() { _, _ = s.Commands.Close(), s.Handoff.Close() })
				serving <- nil
			},
		}.Run(ctx, o)
		if err != nil {
			serving <- err
		}
		return next, err
	})
	err := testkit.Within(a.t, 2*time.Minute, "the successor serves or fails", serving)
	if err != nil {
		a.ended = before
		return err
	}
	if err := testkit.Within(a.t, 2*time.Minute, "the agent before ends", before); err != nil {
		a.t.Errorf("the agent before ends with %v", err)
	}
	return nil
}

// While clients call and enter, the agent of their host is replaced several times, and successors fail in between. No
// frame is lost, no client is refused, the clients come over once for each successor, and the host stays reachable.
// demand: S9
func TestAgentHandoff(t *testing.T) {
	b := newBench(t)
	a := newAgentHouse(b, "x")
	var over atomic.Bool
	var wg sync.WaitGroup
	var callers []*caller
	fails := make(chan error, 16)
	for range 3 {
		c := &caller{}
		callers = append(callers, c)
		wg.Go(func() {
			if err := c.run(b, "x", &over); err != nil {
				fails <- err
			}
		})
	}
	calls := func(after string) {
		t.Helper()
		for _, c := range callers {
			before := c.count.Load()
			testkit.Eventually(t, limit, func() bool { return len(fails) > 0 || c.count.Load() > before }, "calls are answered after "+after)
		}
	}
	calls("the start")
	const handoffs = 2
	for range handoffs {
		stranger, err := member.NewState(gate.Entry{Addresses: []string{b.address}, Fingerprint: b.fingerprint}, "x", nil)
		testkit.Must(t, err)
		refused := a.options()
		refused.Path = filepath.Join(a.dir, "stranger.json") // the gate does not know its key
		testkit.Must(t, stranger.Save(refused.Path))
		if err := a.takeOver(refused, 2*time.Second); err == nil {
			t.Error("a successor that the gate refuses has taken over")
		}
		calls("a successor that the gate refuses")
		testkit.Must(t, a.takeOver(a.options(), limit))
		calls("a handoff")
		if info := b.info("x"); !info.IsReachable {
			t.Errorf("after a handoff the host is %+v", info)
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
	if state, err := member.Load(a.path()); err != nil || state.Epoch < 2*handoffs { // an agent that comes back begins another epoch
		t.Errorf("the epoch is %d, %v", state.Epoch, err)
	}
}

// An agent makes its sockets again if they were removed, also after a handoff, so that commands and successors reach it.
func TestAgentSocketsRemoved(t *testing.T) {
	t.Parallel()
	a := newAgentHouse(newBench(t), "x")
	for range 2 {
		paths := []string{filepath.Join(a.dir, "commands"), filepath.Join(a.dir, "handoff")}
		for _, path := range paths {
			testkit.Must(t, os.Remove(path))
		}
		for _, path := range paths {
			testkit.Eventually(t, limit, func() bool { _, err := os.Stat(path); return err == nil }, path+" is there again")
		}
		testkit.Must(t, a.takeOver(a.options(), limit))
	}
}

// A host leaves also if its agent is asked before it has connected, and if the gate has revoked it.
func TestAgentLeaves(t *testing.T) {
	for _, isRevoked := range []bool{false, true} {
		b := newBench(t)
		a, _ := joinedHouse(b, "x")
		if isRevoked {
			if had, err := Revoke(testkit.Soon(t), b.store, b.control, "x"); !had || err != nil {
				t.Fatalf("revoke: %v, %v", had, err)
			}
		}
		leave, result := make(chan chan error, 1), make(chan error, 1)
		leave <- result
		o := a.options()
		o.Leave = leave
		if _, err := member.Run(testkit.Soon(t), o); err != nil {
			t.Fatal(err)
		}
		if err := testkit.Within(t, limit, "the leave has a result", result); err != nil {
			t.Errorf("the host was revoked %v: %v", isRevoked, err)
		}
		if b.info("x").Name != "" {
			t.Errorf("the host was revoked %v, and is not removed", isRevoked)
		}
	}
}

// If a host is to leave its gate while a successor takes over from the agent, the old agent does not answer, because the
// successor must be asked. If the successor fails instead, the old agent leaves.
func TestAgentLeavesDuringHandoff(t *testing.T) {
	for _, isHanded := range []bool{true, false} {
		b := newBench(t)
		a := newAgentHouse(b, "x")
		client, _, err := b.ask(gate.Enter{Token: b.client.Secret, Host: "x"}) // for which the old agent stays
		testkit.Must(t, err)
		take, err := handoff.Begin(t.Context(), filepath.Join(a.dir, "handoff"), handoff.Hello{Records: protocol.VersionRange{Min: 1, Max: 1}, Timeout: limit})
		if err == nil {
			_, err = take.Look(json.RawMessage(`{"program":"/next"}`))
		}
		if err == nil {
			_, _, err = take.Prepared(func([]handoff.Conn, []byte, <-chan struct{}) error { return errors.New("a connection") })
		}
		testkit.Must(t, err)
		results := []chan error{make(chan error, 1), make(chan error, 1)}
		a.leave <- results[0]
		if isHanded {
			testkit.Must(t, take.Serving())
			select { // the command had reached the old agent before
			case a.leave <- results[1]:
			case <-testkit.Soon(t).Done():
				t.Fatal("the old agent does not receive the second leave")
			}
		} else {
			take.GiveUp(errors.New("the successor has failed"))
			results = results[:1]
		}
		for _, result := range results {
			if err, isAnswered := <-result; isAnswered == isHanded || err != nil {
				t.Errorf("the successor serves: %v; the leave is answered: %v, %v", isHanded, isAnswered, err)
			}
		}
		_ = client.Close()
		if err := testkit.Within(t, limit, "the agent ends", a.ended); err != nil {
			t.Errorf("the successor serves: %v; the agent ends with %v", isHanded, err)
		}
		if isKnown := b.info("x").Name != ""; isKnown != isHanded {
			t.Errorf("the successor serves: %v; the gate knows the host: %v", isHanded, isKnown)
		}
	}
}

// An agent ends if all gates have removed its host and the file of the join is gone. Until then it serves, and does not
// write the file again.
func TestAgentWithoutFile(t *testing.T) {
	b := newBench(t)
	a := newAgentHouse(b, "x")
	testkit.Must(t, os.Remove(a.path()))
	other := b.another()
	testkit.Eventually(t, limit, func() bool {
		_, m, err := other.ask(gate.Enter{Token: b.client.Secret, Host: "x"}) // the agent has learned the address of the other gate
		_, isEntered := m.(*gate.Entered)
		return err == nil && isEntered
	}, "the host is entered at the other gate")
	if _, err := os.Stat(a.path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the join: %v", err)
	}
	if had, err := Revoke(testkit.Soon(t), b.store, b.control, "x"); !had || err != nil {
		t.Fatalf("revoke: %v, %v", had, err)
	}
	if err := testkit.Within(t, limit, "the agent ends", a.ended); err != nil {
		t.Error(err)
	}
}

// A host whose gate has died is connected soon after the gate is back, although another gate, which has not heard of the
// host yet, has refused it meanwhile.
func TestAgentRefusedByOneGate(t *testing.T) {
	b := newBench(t)
	other := b.another()
	other.stop()
	a, state := joinedHouse(b, "x")
	state.Gates = []string{b.address, other.address}
	testkit.Must(t, state.Save(a.path()))
	b.stop()
	other.start()
	o := a.options()
	o.Link = &member.Link{}
	a.runs(func(ctx context.Context) (*member.Successor, error) { return member.Run(ctx, o) })
	testkit.Eventually(t, limit, func() bool {
		_, reason := o.Link.Status()
		return strings.Contains(reason, "is unknown to the gate") && strings.Contains(reason, "connection refused")
	}, "one gate is gone and the other one refuses the host")
	b.start()
	testkit.Eventually(t, limit, func() bool { return b.info("x").IsReachable }, "the host is reachable")
}

// A client learns that an agent does the work of another rollout, and can tell this from a host that is not reached.
func TestUpgradeOfBusyHost(t *testing.T) {
	b := newBench(t)
	newAgentHouse(b, "x")
	o := client.GateOptions{Addresses: []string{b.address}, Fingerprint: b.fingerprint, Token: b.client.Secret, Host: "x"}
	_, err := client.UpgradeHost(testkit.Soon(t), o, gate.Upgrade{ID: "r", Action: gate.UpgradeCheck}, func(gate.UpgradeStep) {})
	if protocol.CodeOf(err) != protocol.CodeBusy {
		t.Errorf("the error is %v, want busy", err)
	}
}
