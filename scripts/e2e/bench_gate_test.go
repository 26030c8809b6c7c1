//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/sshhost"
)

const attachRounds = 50

// A route is a way in which a client reaches a host.
type route struct {
	name    string
	options client.Options
}

// BenchmarkGate compares the routes to a host on the same machine in turns: its socket, a gate, and ssh. "echo" is the
// time between a key and its echo, "attach" that between the start of a connection and the first screen of a session,
// "drain" the output that a viewer reads per second.
func BenchmarkGate(b *testing.B) {
	w := newWorld(b)
	g := &gatehouse{world: newWorld(b), listen: testkit.FreeAddress(b)}
	g.serve()
	w.Must("proxy", "join", g.token(), "--name", "away")
	token := strings.TrimSpace(g.Must("proxy", "gate", "client-token"))
	o, err := client.ParseGate(token)
	testkit.Must(b, err)
	g.Env = append(g.Env, "HOLDFAST_GATE="+token)
	o.Host, o.Start = "away", true
	ssh := sshhost.Start(b, "away", w.Path("ssh"), w.Env)
	local := w.dial(client.Options{})
	w.spawn(local, "screen", protocol.SpawnSpec{Argv: []string{"sh", "-c", "seq 20; sleep 1000000"}})
	testkit.Eventually(b, limit, func() bool { return strings.Contains(g.Must("proxy", "hosts"), " ready ") }, "the host is ready")
	routes := []route{
		{"local", client.Options{}},
		{"gate", client.Options{Gate: &o}},
		{"ssh", client.Options{SSH: &client.SSHOptions{Host: ssh.Name, Command: ssh.Command, Program: w.Program("proxy")}}},
	}
	report := func(b *testing.B, took map[string][]time.Duration) {
		micros := func(name string, d time.Duration) {
			b.ReportMetric(float64(d.Nanoseconds())/1000, name+"-µs")
		}
		for _, r := range routes {
			all := took[r.name]
			micros(r.name+"-p50", median(all))
			micros(r.name+"-p99", all[len(all)*99/100])
		}
		b.ReportMetric(0, "ns/op")
	}
	b.Run("echo", func(b *testing.B) {
		took, views, key := map[string][]time.Duration{}, map[string]*view{}, make([]byte, 1)
		for _, r := range routes {
			views[r.name] = w.echo(w.connect(r.options), "echo-"+r.name)
		}
		for b.Loop() {
			for range echoRounds {
				for _, r := range routes {
					took[r.name] = append(took[r.name], roundTrips(b, views[r.name].Attachment, key)...)
				}
			}
		}
		report(b, took)
	})
	b.Run("attach", func(b *testing.B) {
		took := map[string][]time.Duration{}
		for b.Loop() {
			for _, some := range [][]route{routes[:2], routes[2:]} { // the end of an ssh occupies the machine for longer than an attach takes
				for range attachRounds {
					for _, r := range some {
						took[r.name] = append(took[r.name], w.attachOnce(r.options))
					}
				}
			}
		}
		report(b, took)
	})
	b.Run("drain", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "text")
		testkit.Must(b, os.WriteFile(file, text(drainBytes), 0o600))
		rates := map[string][]float64{}
		for b.Loop() {
			for range drainRounds {
				for _, r := range routes {
					c := w.connect(r.options)
					rates[r.name] = append(rates[r.name], rate(func() { w.drain(c, file, true, "") }))
					_ = c.Close() // it is not used any more
				}
			}
		}
		for _, r := range routes {
			b.ReportMetric(median(rates[r.name]), r.name+"-MB/s")
			b.ReportMetric(median(rates[r.name])/median(rates["local"]), r.name+"/local")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// attachOnce returns the time that a new client needs until it has the screen of the session named screen.
func (w *world) attachOnce(o client.Options) time.Duration {
	w.T.Helper()
	begun := time.Now()
	c := w.connect(o)
	a, err := c.Attach(w.T.Context(), "screen", client.AttachOptions{TakeOver: true})
	testkit.Must(w.T, err)
	for {
		m, err := a.Receive(limit)
		testkit.Must(w.T, err)
		if m.Kind == client.Snapshot {
			break
		}
	}
	took := time.Since(begun)
	testkit.Must(w.T, a.Detach())
	_ = c.Close() // the connection is not used any more
	return took
}
