//go:build linux

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// gates are the gates of a fleet. The first one is the fleet's gate.
type gates struct {
	*fleet
	all []*gatehouse
}

// newGates starts gates. The hosts join them in turns.
func newGates(t *testing.T, count int, names ...string) *gates {
	t.Helper()
	var all []*gatehouse
	for range count {
		all = append(all, &gatehouse{world: newWorld(t), listen: testkit.FreeAddress(t)})
	}
	f := serveGates(t, all)
	for i, name := range names {
		f.join(name, f.all[(i+1)%count])
	}
	for _, name := range names {
		f.place(name)
	}
	return f
}

// serveGates starts gates, and returns when the first gate knows all gates.
func serveGates(t *testing.T, all []*gatehouse) *gates {
	t.Helper()
	f := &gates{&fleet{gatehouse: all[0], hosts: map[string]*world{}}, all}
	f.serve()
	for _, g := range all[1:] {
		g.serve("--peer", f.token("--for-gate"))
	}
	testkit.Eventually(t, limit, func() bool {
		f.useGate()
		return len(f.gate.Addresses) == len(all)
	}, "the first gate knows all gates")
	return f
}

// at returns one gate's entry of a host.
func (f *gates) at(g *gatehouse, name string) gate.HostInfo {
	f.T.Helper()
	o := f.gate
	o.Addresses = []string{g.listen}
	hosts, err := client.Hosts(f.ctx(), o)
	testkit.Must(f.T, err)
	i := slices.IndexFunc(hosts, func(h gate.HostInfo) bool { return h.Name == name })
	if i < 0 {
		return gate.HostInfo{}
	}
	return hosts[i]
}

// place waits until all gates know to which gate a host is connected, and returns its address. On a slow
// machine this may be another gate than the one that the host has joined.
func (f *gates) place(name string) (address string) {
	f.T.Helper()
	testkit.Eventually(f.T, limit, func() bool {
		address = f.at(f.all[0], name).Gate
		return address != "" && !slices.ContainsFunc(f.all, func(g *gatehouse) bool { return f.at(g, name).Gate != address })
	}, "all gates know where "+name+" is connected")
	return address
}

// A visit is a pair of attachments of one host: one reads numbered lines, and one types and reads the echo.
type visit struct {
	name string
	flow *lineReader
	echo *scribe
}

// visit enters a host through any gate.
func (f *gates) visit(name string) *visit {
	f.T.Helper()
	c := f.enter(name)
	f.spawn(c, "flow", flowing)
	return &visit{name, f.followLines(c, "flow"), newScribe(f.echo(c, "echo"))}
}

// continues waits until lines and echoes come again, and returns the longest wait for an echo within the
// span.
func (v *visit) continues(t *testing.T, end func() span) time.Duration {
	t.Helper()
	before := v.flow.lines.Load()
	if !eventually(func() bool { return t.Failed() || v.flow.lines.Load() > before+50 }) { // some lines may have arrived before
		t.Errorf("the output of %s stopped at line %d", v.name, v.flow.lines.Load())
	}
	return v.echo.longest(t, end())
}

func (v *visit) leave() {
	v.flow.over.Store(true)
	v.echo.stop()
	v.flow.wg.Wait()
}

// A host that joins at one of three gates must be known to all, entered through the others, and revoked at all. A
// gate that has ended must be forgotten. TestGatesChaos kills gates.
// demand: S9
func TestGates(t *testing.T) {
	f := newGates(t, 3)
	f.join("green", f.all[1])
	o, place := f.gate, f.place("green")
	o.Host, o.Start = "green", true
	o.Addresses = slices.DeleteFunc(slices.Clone(o.Addresses), func(address string) bool { return address == place })
	c := f.connect(client.Options{Gate: &o})
	f.spawn(c, "a", shell("exec sleep 1000"))
	v := f.attach(c, "a", client.AttachOptions{})
	f.Must("proxy", "gate", "revoke", "green")
	for {
		if _, err := v.Receive(limit); err != nil {
			break
		}
	}
	testkit.Eventually(t, limit, func() bool {
		return !slices.ContainsFunc(f.all, func(g *gatehouse) bool { return f.at(g, "green").Name != "" })
	}, "no gate knows the revoked host")
	f.hosts["green"].Must("proxy", "info", "a") // the session still runs
	f.all[2].die()
	f.Must("proxy", "gate", "forget", f.all[2].listen)
	if got := f.Must("proxy", "gate", "client-token"); strings.Contains(got, f.all[2].listen) {
		t.Errorf("the text for clients contains a forgotten gate: %s", got)
	}
}
