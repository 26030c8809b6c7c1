// Package metrics makes Prometheus' text of the numbers of both processes: the
// supervisor gives numbers, and here they get names.
//
// Invariant: a label's value is one of a set that we know, a version of ours, or a
// workspace that a policy tells apart.
// A session's id, its labels, a path or what was typed is never one: who may read
// the numbers shall not learn from them what is done here.
//
// Not here: counting (packages apiserver and, in the supervisor, session), who
// may read it (package web).
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
	"holdfast/proxy/internal/policyhost"
)

// Config is what a Maker needs.
type Config struct {
	Version    string
	Proxy      func() Proxy
	Supervisor func(context.Context) (*link.StatsReport, error)
	// Sessions returns all sessions with what they use; nil tells nothing of that.
	Sessions func(context.Context) ([]protocol.SessionInfo, error)
}

// Proxy is the proxy's own numbers.
type Proxy struct {
	apiserver.Counts
	Asking            int // HTTP connections whose request is not answered yet
	Linked            bool
	SupervisorVersion string            // "" where that is not known
	Takeover          *Takeover         // nil if no other proxy was taken over from
	Policy            *policyhost.Stats // nil without a policy's program
}

// Takeover is how this proxy took over from the one before.
type Takeover struct {
	Connections   int
	Median, Worst time.Duration // how long their clients were not read
}

// A Maker makes text of numbers.
type Maker struct {
	cfg Config
	own *prometheus.Registry // what client_golang collects of this process
}

// New returns a Maker.
func New(cfg Config) *Maker {
	m := &Maker{cfg: cfg, own: prometheus.NewRegistry()}
	m.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Text returns the numbers of now, and what kind of text it is.
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

// gatherer gathers one moment's numbers: collectors are not told of a ctx, so the
// supervisor is asked before.
func (m *Maker) gatherer(ctx context.Context) prometheus.Gatherer {
	stats, err := m.cfg.Supervisor(ctx)
	answers := err == nil || protocol.CodeOf(err) == protocol.CodeUnsupported // by one that is older
	now := prometheus.NewRegistry()
	now.MustRegister(slices.Concat(m.proxy(answers), supervisor(stats), m.workspaces(ctx, answers)))
	return prometheus.Gatherers{m.own, now}
}
