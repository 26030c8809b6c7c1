package gate

import (
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/metrics"
)

// counts are the numbers of events since the gate began.
type counts struct {
	dials, handoffs    atomic.Uint64
	toClients, toHosts atomic.Uint64 // bytes
	splices            atomic.Int64  // that exist now
	hasTakenOver       atomic.Bool   // from the gate before this one

	mu           sync.Mutex
	refusals     map[string]uint64
	dialFailures map[string]uint64
}

// refused counts a refusal by its code, which is one of a fixed set.
func (c *counts) refused(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[code]++
}

func (c *counts) refusedWeb(code protocol.Code) { c.refused(string(code)) }

// dialed counts a dial. isFailed tells that no connection of the host has come.
func (c *counts) dialed(isFailed bool, code gate.Refusal) {
	c.dials.Add(1)
	if isFailed {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dialFailures[string(code)]++
	}
}

// A countingWriter adds the number of bytes that were written to count.
type countingWriter struct {
	io.Writer
	count *atomic.Uint64
}

// Write implements io.Writer.
func (w countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.count.Add(uint64(n))
	return n, err
}

// A countingReader adds the number of bytes that were read to count.
type countingReader struct {
	io.Reader
	count *atomic.Uint64
}

// Read implements io.Reader.
func (r countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.count.Add(uint64(n))
	return n, err
}

// byRefusal returns a copy of counts in which each refusal of a gate has a value, because a monitor does not see the
// first event of a counter that was missing before. The mutex of the counts must be held.
func byRefusal(counts map[string]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for _, code := range gate.Refusals() {
		all[string(code)] = 0
	}
	maps.Copy(all, counts)
	return all
}

// metrics returns the present statistics.
func (g *Gate) metrics() metrics.Gate {
	about := g.dir.Summary(time.Now())
	m := metrics.Gate{
		Hosts: map[string]int{}, Sessions: about.Sessions, OldestRecord: about.OldestRecord,
		Connections: map[string]int{"client": 0, "host": 0, "gate": 0, "unknown": 0},
		Splices:     int(g.counts.splices.Load()), ToClients: g.counts.toClients.Load(), ToHosts: g.counts.toHosts.Load(),
		Dials: g.counts.dials.Load(), HandoffAttempts: g.counts.handoffs.Load(),
		HasTakenOver: g.counts.hasTakenOver.Load(),
	}
	c := g.crowds.Stats()
	m.Crowds, m.CrowdViewers, m.CrowdReceived, m.CrowdSent, m.CrowdSlow = c.Crowds, c.Viewers, c.Received, c.Sent, c.Slow
	for state, n := range about.Hosts {
		m.Hosts[string(state)] = n
	}
	if g.o.NATS.URL != "" {
		c := g.cluster.conn.Load()
		isUp := c != nil && c.IsConnected()
		m.IsClusterUp = &isUp
	}
	g.counts.mu.Lock()
	m.DialFailures, m.Refusals = byRefusal(g.counts.dialFailures), byRefusal(g.counts.refusals)
	g.counts.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, owner := range g.conns {
		switch owner {
		case "":
			m.Connections["unknown"]++
		case ofClient:
			m.Connections["client"]++
		case ofGate:
			m.Connections["gate"]++
		default:
			m.Connections["host"]++
		}
	}
	for address := range g.peers {
		if address == predecessor {
			continue
		}
		m.Peers++
		if g.dir.IsGateReachable(address) {
			m.ConnectedPeers++
		}
	}
	return m
}
