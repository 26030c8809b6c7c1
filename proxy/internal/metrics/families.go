package metrics

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/archive"
	"holdfast/proxy/internal/policyhost"
)

// A family is a metric: one value, or a value for each value of its label.
type family struct {
	name, help string
	kind       prometheus.ValueType
	label      string
	values     map[string]float64
}

func (f family) desc() *prometheus.Desc {
	var labels []string
	if f.label != "" {
		labels = []string{f.label}
	}
	return prometheus.NewDesc("holdfast_"+f.name, f.help, labels, nil)
}

func gauge[N number](name, help string, n N) family {
	return family{name: name, help: help, kind: prometheus.GaugeValue, values: map[string]float64{"": float64(n)}}
}

func counter[N number](name, help string, n N) family {
	f := gauge(name, help, n)
	f.kind = prometheus.CounterValue
	return f
}

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// by returns f with one value for each value of the label.
func by[K ~string, N number](f family, label string, values map[K]N) family {
	f.label, f.values = label, make(map[string]float64, len(values))
	for v, n := range values {
		f.values[string(v)] = float64(n)
	}
	return f
}

// A snapshot is a collector of values that were read before.
type snapshot []family

// Describe implements prometheus.Collector.
func (s snapshot) Describe(to chan<- *prometheus.Desc) {
	for _, f := range s {
		to <- f.desc()
	}
}

// Collect implements prometheus.Collector.
func (s snapshot) Collect(to chan<- prometheus.Metric) {
	for _, f := range s {
		desc := f.desc()
		for v, n := range f.values {
			if f.label == "" {
				to <- prometheus.MustNewConstMetric(desc, f.kind, n)
			} else {
				to <- prometheus.MustNewConstMetric(desc, f.kind, n, v)
			}
		}
	}
}

func boolValue(b bool) int {
	if b {
		return 1
	}
	return 0
}

// proxy returns the metrics of the proxy, and whether the supervisor answers.
func (m *Maker) proxy(answers bool) snapshot {
	p := m.cfg.Proxy()
	conns := make(map[string]int, len(p.Connections)+1)
	for transport, n := range p.Connections {
		conns[transport] = n
	}
	conns[apiserver.TransportHTTP] = p.Asking
	s := snapshot{
		build(m.cfg.Version),
		gauge("supervisor_up", "Whether the supervisor answers within a second.", boolValue(answers)),
		gauge("proxy_link_up", "Whether the proxy is linked to the supervisor.", boolValue(p.Linked)),
		by(gauge("proxy_connections", "Clients' connections, by transport; http: the request has not arrived completely.", 0), "transport", conns),
		gauge("proxy_attachments", "Attachments of clients.", p.Attachments),
		by(counter("proxy_requests_total", "Clients' control messages behind their hello, by type.", 0), "type", p.Requests),
		by(counter("proxy_refusals_total", "Errors sent to clients, by code.", 0), "code", p.Refusals),
	}
	if v := p.SupervisorVersion; v != "" {
		s = append(s, by(gauge("supervisor_info", "The supervisor's version, by its last hello; always 1.", 1), "version", map[string]int{v: 1}))
	}
	if t := p.Takeover; t != nil {
		s = append(s,
			gauge("proxy_takeover_connections", "Connections taken over live from the proxy before.", t.Connections),
			gauge("proxy_takeover_stall_seconds", "Longest time for which no proxy read from one of these connections.", t.Worst.Seconds()),
			gauge("proxy_takeover_stall_median_seconds", "Median time for which no proxy read from one of these connections.", t.Median.Seconds()),
		)
	}
	return slices.Concat(s, rules(p.Policy), recordings(p.Recordings))
}

func build(version string) family {
	return by(gauge("build_info", "The version of the proxy or the gate; always 1.", 1), "version", map[string]int{version: 1})
}

// recordings returns the metrics of the recorder, or nil if nothing is recorded.
func recordings(r *archive.Stats) snapshot {
	if r == nil {
		return nil
	}
	return snapshot{
		gauge("recordings_up", "Whether the last attempt to store a recording succeeded.", boolValue(r.IsUp)),
		gauge("recordings_sessions", "Sessions that this proxy records.", r.Sessions),
		counter("recordings_bytes_total", "Bytes of output that were recorded.", r.Bytes),
		counter("recordings_missed_bytes_total", "Bytes of output that could not be recorded.", r.Missed),
		counter("recordings_failures_total", "Failed attempts to store a part of a recording.", r.Failures),
	}
}

// rules returns the metrics of the policy's program, or nil if there is none.
func rules(p *policyhost.Stats) snapshot {
	if p == nil {
		return nil
	}
	calls, failures, timeouts := map[string]uint64{}, map[string]uint64{}, map[string]uint64{}
	for method, n := range p.Methods {
		calls[method], failures[method], timeouts[method] = n.Calls, n.Failures, n.Timeouts
	}
	return snapshot{
		gauge("policy_up", "Whether the policy's program runs.", boolValue(p.Running)),
		counter("policy_starts_total", "Starts of the policy's program.", p.Starts),
		counter("policy_crashes_total", "Unrequested ends and hangs of the policy's program, and failed restarts.", p.Crashes),
		by(counter("policy_calls_total", "Questions to the policy's program, by method.", 0), "method", calls),
		by(counter("policy_failures_total", "Questions without an answer, by method; a refusal is an answer.", 0), "method", failures),
		by(counter("policy_timeouts_total", "Questions without an answer in time, by method.", 0), "method", timeouts),
		counter("policy_events_dropped_total", "Events that were dropped and not sent to the policy's program.", p.EventsDropped),
	}
}

// maxWorkspaces is how many workspaces have values of their own, in the order of their names. The
// values of all others are added up.
const maxWorkspaces = 100

// workspaces returns the resources that the sessions use by the kernel's counts. If a policy
// decides about workspaces, there is a value for each workspace. Without a policy there is one
// value for all, because any client may choose a label.
func (m *Maker) workspaces(ctx context.Context, answers bool) snapshot {
	if m.cfg.Sessions == nil || !answers {
		return nil
	}
	all, err := m.cfg.Sessions(ctx)
	if err != nil {
		return nil
	}
	hasPolicy := m.cfg.Proxy().Policy != nil
	names := map[string]bool{}
	for _, s := range all {
		if s.Cage != nil && hasPolicy {
			names[s.Labels[protocol.LabelWorkspace]] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	named := sorted[:min(len(sorted), maxWorkspaces)]
	memory, pids, cpu, sessions := map[string]uint64{}, map[string]uint64{}, map[string]float64{}, map[string]int{}
	for _, s := range all {
		if s.Cage == nil {
			continue
		}
		workspace := ""
		if hasPolicy {
			if workspace = s.Labels[protocol.LabelWorkspace]; !slices.Contains(named, workspace) {
				workspace = "(others)"
			}
		}
		sessions[workspace]++
		memory[workspace] += s.Cage.MemoryBytes
		pids[workspace] += s.Cage.PIDs
		cpu[workspace] += float64(s.Cage.UserMS+s.Cage.SystemMS) / 1000
	}
	if len(sessions) == 0 {
		return nil
	}
	const label = "workspace"
	return snapshot{
		by(gauge("workspace_sessions", "Running sessions with a control group of their own, by workspace.", 0), label, sessions),
		by(gauge("workspace_memory_bytes", "Memory that all of those sessions use, with cached files.", 0), label, memory),
		by(gauge("workspace_pids", "Processes and threads of those sessions.", 0), label, pids),
		by(gauge("workspace_cpu_seconds", "Processor time of those sessions since their start; ended sessions are not counted.", 0), label, cpu),
	}
}

// supervisor returns the metrics of the supervisor, or nil if it has not reported any.
func supervisor(r *link.StatsReport) snapshot {
	if r == nil {
		return nil
	}
	s := snapshot{
		gauge("supervisor_start_time_seconds", "When the supervisor began, in Unix time.", float64(r.StartedAt.UnixMilli())/1000),
		gauge("supervisor_links", "Proxies that are linked.", r.Links),
		by(gauge("supervisor_sessions", "Sessions, by state.", 0), "state", map[protocol.State]int{
			protocol.StateStarting: r.Starting, protocol.StateRunning: r.Running, protocol.StateDraining: r.Draining, protocol.StateExited: r.Exited,
		}),
		gauge("supervisor_attachments", "Attachments of all proxies, those that compare during a handoff included.", r.Attachments),
		counter("supervisor_printed_bytes_total", "Bytes of output of all sessions.", r.BytesPrinted),
		counter("supervisor_typed_bytes_total", "Bytes of input that all sessions accepted.", r.BytesTyped),
		counter("supervisor_spawns_total", "Started sessions.", r.Spawns),
		counter("supervisor_spawn_failures_total", "Children that could not be started.", r.SpawnsFailed),
		by(counter("supervisor_exits_total", "Ends of sessions, by outcome.", 0), "outcome", map[protocol.Outcome]uint64{
			protocol.OutcomeNatural: r.ExitsNatural, protocol.OutcomeSoft: r.ExitsSoft, protocol.OutcomeHard: r.ExitsHard,
		}),
		counter("supervisor_resyncs_total", "Snapshots for viewers that lagged too far behind.", r.Resyncs),
		counter("supervisor_missed_bytes_total", "Bytes that those viewers missed.", r.BytesMissed),
		gauge("supervisor_recordings_failing", "Sessions that cannot be stored on disk.", r.RecordingsFailing),
		counter("supervisor_recording_failures_total", "How often a session could no longer be stored on disk.", r.RecordingFailures),
		counter("supervisor_stored_bytes_total", "Bytes that were written to disk for stored sessions.", r.BytesStored),
		counter("supervisor_unstored_bytes_total", "Bytes of output that are not stored, or are stored only as a screen.", r.BytesUnstored),
		gauge("supervisor_goroutines", "Goroutines of the supervisor.", r.Goroutines),
		gauge("supervisor_heap_bytes", "Bytes of the supervisor's objects.", r.HeapBytes),
	}
	for _, optional := range []family{
		gauge("supervisor_resident_memory_bytes", "Resident memory of the supervisor.", r.RSSBytes),
		gauge("supervisor_open_fds", "Descriptors that the supervisor has open.", r.Files),
		gauge("supervisor_max_fds", "Largest number of descriptors that the supervisor may have open.", r.MaxFiles),
	} {
		if optional.values[""] > 0 {
			s = append(s, optional)
		}
	}
	if cmp.Or(r.MaxPTYs, r.PTYs) > 0 { // there may be a limit although no terminal is in use
		s = append(s,
			gauge("system_ptys", "Terminals in use, of the whole system.", r.PTYs),
			gauge("system_max_ptys", "Terminals that the system can have.", r.MaxPTYs),
		)
	}
	return s
}
