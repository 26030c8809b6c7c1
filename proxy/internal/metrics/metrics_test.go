package metrics

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/policyhost"
	"holdfast/shared/testkit"
)

func maker(report *link.StatsReport, err error) *Maker {
	return New(Config{
		Version: "1.2.3",
		Proxy: func() Proxy {
			return Proxy{
				Counts: apiserver.Counts{
					Connections: map[string]int{"unix": 3, "websocket": 2, "raw": 0}, Attachments: 4,
					Requests: map[string]uint64{"spawn": 5, "other": 1}, Refusals: map[string]uint64{"session_exists": 6},
				},
				Asking: 1, Linked: true, SupervisorVersion: "1.2.2",
				Takeover: &Takeover{Connections: 2, Median: time.Millisecond, Worst: 5 * time.Millisecond},
				Policy: &policyhost.Stats{Running: true, Starts: 7, Crashes: 8, EventsDropped: 9, Methods: map[string]policyhost.MethodStats{
					"authorize": {Calls: 10, Failures: 11, Timeouts: 12},
				}},
			}
		},
		Supervisor: func(context.Context) (*link.StatsReport, error) { return report, err },
	})
}

var full = &link.StatsReport{
	StartedAt: time.Unix(1700000000, 5e8), Links: 1, Starting: 11, Running: 12, Draining: 13, Exited: 14, Attachments: 15,
	BytesPrinted: 16, BytesTyped: 17, Spawns: 18, SpawnsFailed: 19, ExitsNatural: 20, ExitsSoft: 21, ExitsHard: 22,
	Resyncs: 23, BytesMissed: 24, PTYs: 25, MaxPTYs: 26, Files: 27, MaxFiles: 28, Goroutines: 29, HeapBytes: 30, RSSBytes: 31,
	RecordingsFailing: 32, RecordingFailures: 33, BytesStored: 34, BytesUnstored: 35,
}

// lines parses the text as Prometheus does, and returns the numbers.
func lines(t *testing.T, m *Maker) map[string]float64 {
	t.Helper()
	text, contentType, err := m.Text(t.Context())
	if err != nil || !strings.HasPrefix(contentType, "text/plain; version=0.0.4") {
		t.Fatalf("%q, %v", contentType, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	got := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			got[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() // a metric has only one of the two
		}
	}
	return got
}

// Each number has its name, and the numbers of the Go runtime are present, too.
func TestText(t *testing.T) {
	got := lines(t, maker(full, nil))
	for name, want := range map[string]float64{
		"build_info version=1.2.3": 1, "supervisor_info version=1.2.2": 1, "supervisor_up": 1, "proxy_link_up": 1,
		"proxy_connections transport=unix": 3, "proxy_connections transport=websocket": 2, "proxy_connections transport=raw": 0,
		"proxy_connections transport=http": 1, "proxy_attachments": 4,
		"proxy_requests_total type=spawn": 5, "proxy_requests_total type=other": 1, "proxy_refusals_total code=session_exists": 6,
		"policy_up": 1, "policy_starts_total": 7, "policy_crashes_total": 8, "policy_events_dropped_total": 9, "policy_calls_total method=authorize": 10,
		"policy_failures_total method=authorize": 11, "policy_timeouts_total method=authorize": 12,
		"proxy_takeover_connections": 2, "proxy_takeover_stall_seconds": 0.005, "proxy_takeover_stall_median_seconds": 0.001,
		"supervisor_start_time_seconds": 1700000000.5, "supervisor_links": 1, "supervisor_attachments": 15,
		"supervisor_sessions state=starting": 11, "supervisor_sessions state=running": 12,
		"supervisor_sessions state=draining": 13, "supervisor_sessions state=exited": 14,
		"supervisor_printed_bytes_total": 16, "supervisor_typed_bytes_total": 17, "supervisor_spawns_total": 18, "supervisor_spawn_failures_total": 19,
		"supervisor_exits_total outcome=natural": 20, "supervisor_exits_total outcome=soft": 21, "supervisor_exits_total outcome=hard": 22,
		"supervisor_resyncs_total": 23, "supervisor_missed_bytes_total": 24, "system_ptys": 25, "system_max_ptys": 26,
		"supervisor_recordings_failing": 32, "supervisor_recording_failures_total": 33, "supervisor_stored_bytes_total": 34, "supervisor_unstored_bytes_total": 35,
		"supervisor_open_fds": 27, "supervisor_max_fds": 28, "supervisor_goroutines": 29, "supervisor_heap_bytes": 30, "supervisor_resident_memory_bytes": 31,
	} {
		if n, ok := got["holdfast_"+name]; !ok || n != want {
			t.Errorf("%s: %v (present %v), want %v", name, n, ok, want)
		}
		delete(got, "holdfast_"+name)
	}
	for name := range got {
		if strings.HasPrefix(name, "holdfast_") {
			t.Errorf("%s is not in the list", name)
		}
	}
	if got["go_goroutines"] == 0 {
		t.Error("the numbers of the Go runtime are missing")
	}
}

// Without the supervisor's report its numbers are missing, except for supervisor_up.
func TestWithoutSupervisor(t *testing.T) {
	for _, code := range []protocol.Code{protocol.CodeSupervisorUnreachable, protocol.CodeInternal} {
		got := lines(t, maker(nil, protocol.Errorf(code, "no")))
		if up, ok := got["holdfast_supervisor_up"]; up != 0 || !ok {
			t.Errorf("%s: up is %v", code, up)
		}
		for name := range got {
			if strings.HasPrefix(name, "holdfast_supervisor_sessions") || strings.HasPrefix(name, "holdfast_system") {
				t.Errorf("%s: %s is present", code, name)
			}
		}
	}
	if got := lines(t, maker(&link.StatsReport{}, nil)); len(got) == 0 {
		t.Error("an empty report has no numbers")
	} else if _, there := got["holdfast_system_max_ptys"]; there {
		t.Error("an unknown number is present")
	}
}

// Names and units follow the rules of Prometheus.
func TestLint(t *testing.T) {
	for _, m := range []*Maker{maker(full, nil), gateMaker()} {
		problems, err := testutil.GatherAndLint(m.gatherer(t.Context()))
		testkit.Must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func gateMaker() *Maker {
	isUp := true
	return NewGate("1.2.3", func() Gate {
		return Gate{
			Hosts: map[string]int{"ready": 1}, Sessions: 2, OldestRecord: 1500 * time.Millisecond, Connections: map[string]int{"client": 3},
			Splices: 4, ToClients: 5, ToHosts: 6, Dials: 7, DialFailures: map[string]uint64{"busy": 8}, Refusals: map[string]uint64{"invalid": 9},
			Peers: 10, ConnectedPeers: 11, IsClusterUp: &isUp, HandoffAttempts: 12, HasTakenOver: true,
			Crowds: 13, CrowdViewers: 14, CrowdReceived: 15, CrowdSent: 16, CrowdSlow: 17,
		}
	})
}

// Each number of a gate arrives under its name.
func TestGate(t *testing.T) {
	got := lines(t, gateMaker())
	for name, want := range map[string]float64{
		"build_info version=1.2.3": 1, "gate_hosts state=ready": 1, "gate_sessions": 2, "gate_oldest_record_age_seconds": 1.5,
		"gate_connections peer=client": 3, "gate_splices": 4, "gate_copied_bytes_total direction=to_client": 5,
		"gate_copied_bytes_total direction=to_host": 6, "gate_dials_total": 7, "gate_dial_failures_total code=busy": 8,
		"gate_refusals_total code=invalid": 9, "gate_peers": 10, "gate_peers_connected": 11, "gate_cluster_up": 1,
		"gate_handoff_attempts_total": 12, "gate_takeover": 1, "gate_crowds": 13, "gate_crowd_viewers": 14,
		"gate_crowd_bytes_total direction=from_host": 15, "gate_crowd_bytes_total direction=to_client": 16, "gate_crowd_slow_total": 17,
	} {
		if n, ok := got["holdfast_"+name]; !ok || n != want {
			t.Errorf("%s: %v (present %v), want %v", name, n, ok, want)
		}
		delete(got, "holdfast_"+name)
	}
	for name := range got {
		if strings.HasPrefix(name, "holdfast_") {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// The usage of sessions is reported by workspace if a policy distinguishes workspaces, for a limited number of them.
func TestWorkspaces(t *testing.T) {
	m := maker(full, nil)
	caged := func(workspace string, n uint64) protocol.SessionInfo {
		return protocol.SessionInfo{
			ID: "secret", Labels: map[string]string{protocol.LabelWorkspace: workspace},
			Cage: &protocol.Cage{MemoryBytes: n, PIDs: 2 * n, UserMS: 1000, SystemMS: 500},
		}
	}
	all := []protocol.SessionInfo{caged("a", 1), caged("a", 2), caged("b", 4), {ID: "without"}}
	m.cfg.Sessions = func(context.Context) ([]protocol.SessionInfo, error) { return all, nil }
	got := lines(t, m)
	for name, want := range map[string]float64{
		"holdfast_workspace_memory_bytes workspace=a": 3, "holdfast_workspace_memory_bytes workspace=b": 4,
		"holdfast_workspace_pids workspace=a": 6, "holdfast_workspace_cpu_seconds workspace=a": 3, "holdfast_workspace_sessions workspace=a": 2,
	} {
		if n, ok := got[name]; n != want || !ok {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}
	for i := range maxWorkspaces {
		all = append(all, caged(fmt.Sprintf("b%03d", i), 8))
	}
	if got := lines(t, m)["holdfast_workspace_memory_bytes workspace=(others)"]; got != 16 {
		t.Errorf("the last two workspaces use %v, want 16", got)
	}
	proxy := m.cfg.Proxy
	m.cfg.Proxy = func() Proxy { p := proxy(); p.Policy = nil; return p }
	if got := lines(t, m)["holdfast_workspace_memory_bytes workspace="]; got != 7+8*maxWorkspaces {
		t.Errorf("without a policy all use %v", got)
	}
}

// No label has a value that a client can choose.
func TestLabels(t *testing.T) {
	families, err := maker(full, nil).gatherer(t.Context()).Gather()
	testkit.Must(t, err)
	known := map[string][]string{
		"version": {"1.2.3", "1.2.2"}, "transport": {"unix", "websocket", "raw", "http"}, "type": append(api.Messages.Types(), "other"),
		"state": {"starting", "running", "draining", "exited"}, "outcome": {"natural", "soft", "hard"}, "method": {"authenticate", "resolve_task", "authorize", "observe"},
	}
	for _, c := range protocol.Codes() {
		known["code"] = append(known["code"], string(c))
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "holdfast_") {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(known[l.GetName()], l.GetValue()) {
					t.Errorf("%s has %s=%q", f.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
}
