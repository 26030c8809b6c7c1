// Package metrics converts the statistics of both processes, or of a gate, to Prometheus' text format. The
// supervisor reports numbers; this package gives them names.
//
// Invariant: the value of a label is one of a fixed set, a version of this product, or a
// workspace that a policy has named. It is never a session's id, a label of a session, the name of a host, a path or
// input, because the metrics must not reveal the users' work.
//
// Not here: counting (packages apiserver and gate and, in the supervisor, session), the permission to read
// the metrics (package web).
package metrics

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/archive"
	"holdfast/proxy/internal/policyhost"
)

// Config holds the sources of a Maker.
type Config struct {
	Version    string
	Proxy      func() Proxy
	Supervisor func(context.Context) (*link.StatsReport, error)
	// Sessions returns all sessions with the resources that they use; nil omits these metrics.
	Sessions func(context.Context) ([]protocol.SessionInfo, error)
}

// Proxy holds the proxy's statistics.
type Proxy struct {
	apiserver.Counts
	Asking            int // HTTP connections with a request that is not answered yet
	Linked            bool
	SupervisorVersion string            // "" if it is not known
	Takeover          *Takeover         // nil if this proxy did not take over from another one
	Policy            *policyhost.Stats // nil if there is no policy's program
	Recordings        *archive.Stats    // nil if nothing is recorded
}

// A Takeover describes how this proxy took over from the one before.
type Takeover struct {
	Connections   int
	Median, Worst time.Duration // of the time for which no proxy read from a client
}

// A Maker converts statistics to text.
type Maker struct {
	cfg  Config
	read func(context.Context) snapshot
	own  *prometheus.Registry // collectors of client_golang for this process
}

// New returns a Maker of the metrics of a proxy and its supervisor.
func New(cfg Config) *Maker {
	m := newMaker(nil)
	m.cfg, m.read = cfg, m.processes
	return m
}

func newMaker(read func(context.Context) snapshot) *Maker {
	m := &Maker{read: read, own: prometheus.NewRegistry()}
	m.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Text returns the present metrics and their content type.
func (m *Maker) Text(ctx context.Context) (text []byte, contentType string, err error) {
	families, err := m.gatherer(ctx).Gather()
	if err != nil {
		return nil, "", fmt.Errorf("gather: %w", err)
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return nil, "", fmt.Errorf("encode %s: %w", f.GetName(), err)
		}
	}
	return b.Bytes(), string(format), nil
}

// gatherer returns a gatherer of the present metrics. It reads the numbers at once, because a
// collector does not receive ctx.
func (m *Maker) gatherer(ctx context.Context) prometheus.Gatherer {
	now := prometheus.NewRegistry()
	now.MustRegister(m.read(ctx))
	return prometheus.Gatherers{m.own, now}
}

// processes returns the metrics of the proxy and of the supervisor.
func (m *Maker) processes(ctx context.Context) snapshot {
	stats, err := m.cfg.Supervisor(ctx)
	answers := err == nil
	return slices.Concat(m.proxy(answers), supervisor(stats), m.workspaces(ctx, answers))
}
