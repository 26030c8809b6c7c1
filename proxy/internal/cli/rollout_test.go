package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/rollout"
)

func TestSelectHosts(t *testing.T) {
	red := map[string]string{"team": "red"}
	list := []gate.HostInfo{{Name: "db1"}, {Name: "web-1", Labels: red}, {Name: "web-2"}}
	for _, tt := range []struct {
		names  string
		labels map[string]string
		want   string
	}{
		{"*", nil, "db1 web-1 web-2"},
		{"web-*", nil, "web-1 web-2"},
		{"db1, web-?", nil, "db1 web-1 web-2"},
		{"*", red, "web-1"},
		{"db1", red, ""},
		{"x-*", nil, ""},
		{"web-1,none", nil, "error"},
		{"[", nil, "error"},
	} {
		hosts, err := selectHosts(list, tt.names, tt.labels)
		var names []string
		for _, h := range hosts {
			names = append(names, h.Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s with %v: %q, %v, want %q", tt.names, tt.labels, got, err, tt.want)
		}
	}
}

func TestRolloutFlags(t *testing.T) {
	good := rolloutFlags{to: "/opt/new", waves: "1,10%", parallel: 1, limit: time.Minute}
	if sizes, err := good.check(); err != nil || len(sizes) != 2 {
		t.Errorf("%v, %v", sizes, err)
	}
	for name, change := range map[string]func(*rolloutFlags){
		"an address":      func(o *rolloutFlags) { o.to = "https://example.org/v2" },
		"a relative path": func(o *rolloutFlags) { o.to = "new" },
		"no directory":    func(o *rolloutFlags) { o.to = "" },
		"a size":          func(o *rolloutFlags) { o.waves = "0" },
		"parallel":        func(o *rolloutFlags) { o.parallel = 0 },
		"a short limit":   func(o *rolloutFlags) { o.limit = 0 },
		"a long limit":    func(o *rolloutFlags) { o.limit = 2 * time.Hour },
		"a pause":         func(o *rolloutFlags) { o.maxStall = -1 },
	} {
		bad := good
		change(&bad)
		if _, err := bad.check(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestRolloutEnds(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	host := func(state rollout.State) []rollout.HostResult { return []rollout.HostResult{{Host: "a", State: state}} }
	for _, tt := range []struct {
		result rollout.Result
		ctx    context.Context
		code   int
	}{
		{rollout.Result{Outcome: rollout.Done, Hosts: host("upgraded")}, t.Context(), 0},
		{rollout.Result{Outcome: rollout.Done, Hosts: host(rollout.Unreachable)}, t.Context(), 75},
		{rollout.Result{Outcome: rollout.Possible, Hosts: host("ready")}, t.Context(), 0},
		{rollout.Result{Outcome: rollout.NotBegun, Hosts: host(rollout.Refused)}, t.Context(), 77},
		{rollout.Result{Outcome: rollout.NotBegun, Hosts: host("failed")}, t.Context(), 70},
		{rollout.Result{Outcome: rollout.Returned, Hosts: host("returned")}, t.Context(), 70},
		{rollout.Result{Outcome: rollout.Failed, Hosts: host("failed")}, t.Context(), 70},
	} {
		if got := exitcode.Of(rolloutError(tt.ctx, tt.result)); got != tt.code {
			t.Errorf("%+v ends with %d, want %d", tt.result, got, tt.code)
		}
	}
	if err := rolloutError(cancelled, rollout.Result{Outcome: rollout.Interrupted}); err == nil {
		t.Error("an interrupted rollout has no error")
	}
}

func TestTellEvent(t *testing.T) {
	var out bytes.Buffer
	for _, e := range []rollout.Event{
		{Kind: "plan", Waves: [][]string{{"a"}, {"b", "c"}}},
		{Kind: "wave", Wave: 1, Waves: [][]string{{"a"}}},
		{Kind: "step", Host: "a", Text: "one\x1b[2J"},
		{Kind: "host", State: &rollout.HostResult{Host: "a", State: "upgraded", Proxy: "v2", Sessions: 1, Clients: 2, StallMS: 3}},
		{Kind: "host", State: &rollout.HostResult{Host: "a", State: "ready"}},
		{Kind: "return", Waves: [][]string{{"a"}}},
		{Kind: "end", Result: &rollout.Result{Hosts: []rollout.HostResult{{Host: "a", State: "returned", Proxy: "v1", Error: "broken"}}}},
	} {
		tellEvent(&out, e)
	}
	want := "3 hosts to upgrade, in 2 waves\nwave 1: a\n  a: one"
	if got := out.String(); !strings.HasPrefix(got, want) || strings.Contains(got, "\x1b") ||
		!strings.Contains(got, "a: upgraded to v2 with 1 session, 2 connections moved, longest pause 3.0 ms\nreturning: a\nHOST") || !strings.Contains(got, "broken") {
		t.Errorf("the output is %q", got)
	}
}
