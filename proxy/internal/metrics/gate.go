package metrics

import (
	"context"
	"time"
)

// Gate holds the statistics of a gate. Counts begin at zero with its process.
type Gate struct {
	Hosts        map[string]int // hosts that have joined, by state
	Sessions     int            // sessions of all hosts that the gate knows
	OldestRecord time.Duration  // age of the oldest record that is the last one of its host; 0 if there is no record

	Connections        map[string]int // by the peer: client, host, gate or unknown
	Splices            int            // clients that are connected with a host through the gate
	ToClients, ToHosts uint64         // bytes that were copied between clients and hosts

	Crowds, CrowdViewers     int    // copies of the output of sessions that viewers share, and these viewers
	CrowdReceived, CrowdSent uint64 // bytes that came for the copies, and that went to the viewers
	CrowdSlow                uint64 // times that a viewer was too slow for its copy

	Dials        uint64            // connections that the gate has asked of a host for a client
	DialFailures map[string]uint64 // dials without a connection, by the code of the refusal
	Refusals     map[string]uint64 // by code

	Peers          int   // other gates of the same hosts
	ConnectedPeers int   // those that are connected with this gate
	IsClusterUp    *bool // the NATS cluster is connected; nil without a cluster

	HandoffAttempts uint64 // of successors, each of which failed, unless the gate is ending
	HasTakenOver    bool   // from the gate before
}

// NewGate returns a Maker of the metrics of a gate.
func NewGate(version string, read func() Gate) *Maker {
	return newMaker(func(context.Context) snapshot { return gate(version, read()) })
}

func gate(version string, g Gate) snapshot {
	s := snapshot{
		build(version),
		by(gauge("gate_hosts", "Hosts that have joined, by state.", 0), "state", g.Hosts),
		gauge("gate_sessions", "Sessions of all hosts that the gate knows.", g.Sessions),
		gauge("gate_oldest_record_age_seconds", "Age of the last record of the host that has been silent for the longest time.", g.OldestRecord.Seconds()),
		by(gauge("gate_connections", "Connections, by peer; unknown: the peer has not shown yet who it is.", 0), "peer", g.Connections),
		gauge("gate_splices", "Clients that are connected with a host.", g.Splices),
		by(counter("gate_copied_bytes_total", "Bytes copied between clients and hosts, by direction.", 0), "direction", map[string]uint64{
			"to_client": g.ToClients, "to_host": g.ToHosts,
		}),
		gauge("gate_crowds", "Sessions whose output viewers share.", g.Crowds),
		gauge("gate_crowd_viewers", "Viewers that share the output of a session.", g.CrowdViewers),
		by(counter("gate_crowd_bytes_total", "Bytes of shared output, by direction: from_host counts each byte once, to_client once for each viewer.", 0), "direction", map[string]uint64{
			"from_host": g.CrowdReceived, "to_client": g.CrowdSent,
		}),
		counter("gate_crowd_slow_total", "Times that a viewer was too slow to share output, and was given a connection of its own.", g.CrowdSlow),
		counter("gate_dials_total", "Connections that the gate has asked of a host for a client.", g.Dials),
		by(counter("gate_dial_failures_total", "Dials without a connection, by code.", 0), "code", g.DialFailures),
		by(counter("gate_refusals_total", "Connections and requests that were refused, by code.", 0), "code", g.Refusals),
		gauge("gate_peers", "Other gates of the same hosts.", g.Peers),
		gauge("gate_peers_connected", "Other gates that are connected with this one.", g.ConnectedPeers),
		counter("gate_handoff_attempts_total", "Attempts of a successor to take over; the gate ends after one that succeeds.", g.HandoffAttempts),
		gauge("gate_takeover", "Whether this gate has taken over from the one before.", boolValue(g.HasTakenOver)),
	}
	if g.IsClusterUp != nil {
		s = append(s, gauge("gate_cluster_up", "Whether the NATS cluster is connected.", boolValue(*g.IsClusterUp)))
	}
	return s
}
