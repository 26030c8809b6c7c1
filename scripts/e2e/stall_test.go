package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The claim: in 99 of 100 cases a handoff stalls a client for at most 10 ms if there is 1 client, 30 ms if
// there are 100, and 100 ms if there are 1,000.
//
// Each round makes stallHandoffs handoffs. Before each, a quiet span as long as a handoff is measured.
const stallHandoffs = 5

// BenchmarkHandoffStall has connections, every other one a WebSocket, each of which types into its own
// session and waits for the echo. A connection's stall is its longest round trip that overlaps a handoff.
// "quiet" is the same measurement without a handoff.
func BenchmarkHandoffStall(b *testing.B) {
	for _, tt := range []struct {
		connections int
		every       time.Duration // chosen so that two cores are half idle
	}{{1, 10 * time.Millisecond}, {100, 100 * time.Millisecond}, {1000, time.Second}} {
		b.Run(fmt.Sprint(tt.connections), func(b *testing.B) {
			w := newWorld(b)
			d := w.doors()
			proxy := w.Only("proxy")
			p := probes{every: tt.every}
			for i := range tt.connections {
				id := fmt.Sprint("echo-", i)
				d.echoSlowly(id)
				s, err := d.terminal(anyWay(i), id, protocol.ModeShared)
				testkit.Must(b, err)
				b.Cleanup(func() { _ = s.Close() })
				p.conns = append(p.conns, s)
			}
			p.start(b)
			var stalls, quiet []span
			took := 200 * time.Millisecond
			for b.Loop() {
				for range stallHandoffs {
					end := beginSpan()
					time.Sleep(took) // the duration of the quiet span
					quiet = append(quiet, end())
					end = beginSpan()
					proxy = w.replaceProxy(proxy)
					stalls = append(stalls, end())
					took = stalls[len(stalls)-1].took()
				}
			}
			p.stop()
			p.report(b, stalls, quiet)
			b.ReportMetric(millis(took), "handoff-ms")
		})
	}
}

// echoSlowly is like echoAlone, for more sessions than may be started at once.
func (d *doors) echoSlowly(id string) { d.T.Helper(); d.spawnSlowly(id, echoing) }

// spawnSlowly starts a session and waits until it prints "ready". If the rate of starts is exceeded, it waits
// and tries again.
func (d *doors) spawnSlowly(id string, spec protocol.SpawnSpec) {
	d.T.Helper()
	for {
		_, err := d.c.Spawn(d.T.Context(), client.SpawnRequest{ID: protocol.SessionID(id), SpawnSpec: spec, EarlyExit: none})
		if err == nil {
			break
		}
		e := protocol.AsError(err)
		if !e.Retryable {
			d.T.Fatalf("spawn %s: %v", id, err)
		}
		time.Sleep(time.Duration(e.RetryAfterMS) * time.Millisecond) // the error says how long to wait
	}
	v := d.attach(d.c, id, client.AttachOptions{})
	v.until("ready\n")
	testkit.Must(d.T, v.Detach())
}

// A span is the time between two moments.
type span struct {
	begin, end time.Time
	stolen     time.Duration // processor time taken by other virtual machines during the span, or 0 if it was not measured
}

func (s span) took() time.Duration { return s.end.Sub(s.begin) }

// beginSpan returns a function that ends the span.
func beginSpan() (end func() span) {
	begin, stolen := time.Now(), stolenTime()
	return func() span { return span{begin, time.Now(), stolenTime() - stolen} }
}

// stolenTime returns how long the host's other virtual machines have used our processors since the start of
// the machine: "steal" of proc_stat(5), which counts in hundredths of a second. If the kernel does not report
// it, stolenTime returns 0.
func stolenTime() time.Duration {
	data, _ := os.ReadFile("/proc/stat")
	fields := strings.Fields(string(data))
	if len(fields) < 9 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[8], 10, 64)
	return time.Duration(n) * time.Second / 100
}

// probes are connections that type and wait for the echo, all the time.
type probes struct {
	every   time.Duration
	conns   []terminal
	stopped atomic.Bool
	wg      sync.WaitGroup
	trips   [][]span // by connection, in order; owned by the connection's goroutine until stop
}

// start returns when each connection has made a round trip.
func (p *probes) start(t testing.TB) {
	t.Cleanup(p.stop) // runs before the connections are closed
	p.trips = make([][]span, len(p.conns))
	var begun sync.WaitGroup
	for i, s := range p.conns {
		begun.Add(1)
		p.wg.Go(func() {
			turn := p.every * time.Duration(i) / time.Duration(len(p.conns)) // otherwise all would probe at the same time
			if err := p.probe(s, &p.trips[i], sync.OnceFunc(begun.Done), turn); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	begun.Wait()
}

func (p *probes) probe(s terminal, trips *[]span, begun func(), turn time.Duration) error {
	defer begun()
	if err := s.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := begins(s); err != nil {
		return err
	}
	begun()
	time.Sleep(turn)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for n := 0; !p.stopped.Load(); n++ {
		<-tick.C
		if err := s.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		text := fmt.Appendf(nil, "<%d>", n)
		trip := span{begin: time.Now()}
		if _, err := s.Write(text); err != nil {
			return err
		}
		if err := readsLarge(s, text); err != nil {
			return err
		}
		trip.end = time.Now()
		*trips = append(*trips, trip)
	}
	return nil
}

// stop ends the goroutines and waits for them.
func (p *probes) stop() {
	p.stopped.Store(true)
	p.wg.Wait()
}

// mostStolen is the largest share of processor time that other virtual machines may take during a span that
// still measures Holdfast.
const mostStolen = 0.02

// report reports the longest trips within stalls and within quiet: of all spans, and of the spans without
// much stolen time ("own").
func (p *probes) report(b *testing.B, stalls, quiet []span) {
	var own []span
	for _, s := range stalls {
		if float64(s.stolen) <= mostStolen*float64(s.took())*float64(runtime.NumCPU()) {
			own = append(own, s)
		}
	}
	b.ReportMetric(100*float64(len(own))/float64(len(stalls)), "own-%")
	for _, m := range []struct {
		name string
		in   []span
	}{{"stall", stalls}, {"own", own}, {"quiet", quiet}} {
		if trips := p.longest(m.in); len(trips) > 0 {
			b.ReportMetric(millis(median(trips)), m.name+"-p50-ms")
			b.ReportMetric(millis(trips[len(trips)*99/100]), m.name+"-p99-ms")
			b.ReportMetric(millis(trips[len(trips)-1]), m.name+"-max-ms")
		}
	}
	b.ReportMetric(0, "ns/op")
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// longest returns the longest trip of each connection within each span, sorted.
func (p *probes) longest(within []span) []time.Duration {
	var all []time.Duration
	for _, s := range within {
		for _, trips := range p.trips {
			most := time.Duration(0)
			for _, trip := range trips {
				if trip.begin.Before(s.end) && trip.end.After(s.begin) {
					most = max(most, trip.took())
				}
			}
			all = append(all, most)
		}
	}
	slices.Sort(all)
	return all
}
