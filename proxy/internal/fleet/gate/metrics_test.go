//go:build unix

package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// metrics reads the metrics of the gate: NAME{LABEL="VALUE"} and the number as text.
func (b *bench) metrics() map[string]string {
	b.t.Helper()
	r, _, conn := b.request(http.MethodGet, "/metrics", "Authorization: Bearer "+b.client.Secret)
	defer func() { _ = conn.Close() }()
	if r.StatusCode != http.StatusOK {
		b.t.Fatalf("/metrics: %d", r.StatusCode)
	}
	all := map[string]string{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "holdfast_") {
			all[strings.TrimPrefix(name, "holdfast_")] = value
		}
	}
	return all
}

// expect waits until the metrics have these values.
func (b *bench) expect(when string, want map[string]any) {
	b.t.Helper()
	wrong := ""
	isRight := testkit.Poll(limit, func() bool {
		all := b.metrics()
		wrong = ""
		for name, value := range want {
			if all[name] != fmt.Sprint(value) {
				wrong += fmt.Sprintf("%s is %q, want %v\n", name, all[name], value)
			}
		}
		return wrong == ""
	})
	if !isRight {
		b.t.Fatalf("%s, the metrics are not right within %v:\n%s", when, limit, wrong)
	}
}

// The metrics of a gate agree with what its clients and hosts have done.
func TestMetrics(t *testing.T) {
	b := newBench(t)
	h := b.join("h")
	for n := range 3 {
		h.set(t, protocol.SessionID(fmt.Sprintf("s%d", n)), protocol.StateRunning)
	}
	b.expect("with a host", map[string]any{
		`gate_hosts{state="ready"}`: 1, `gate_hosts{state="idle"}`: 0, `gate_hosts{state="unreachable"}`: 0, "gate_sessions": 3,
		`gate_connections{peer="host"}`: 1, "gate_splices": 0, "gate_dials_total": 0, "gate_peers": 0, `gate_refusals_total{code="unauthorized"}`: 0,
		"gate_takeover": 0, "gate_handoff_attempts_total": 0,
	})

	client, arrived, _ := b.enter(h, "h")
	request, answer := frame.Append(nil, frame.Input, make([]byte, 1000)), frame.Append(nil, frame.Output, make([]byte, 50_000))
	for _, w := range []struct {
		to, from interface {
			io.Reader
			io.Writer
		}
		bytes []byte
	}{{arrived, client, request}, {client, arrived, answer}} {
		if _, err := w.from.Write(w.bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(w.to, make([]byte, len(w.bytes))); err != nil {
			t.Fatal(err)
		}
	}
	b.expect("with a client", map[string]any{
		`gate_connections{peer="client"}`: 1, `gate_connections{peer="host"}`: 2, "gate_splices": 1, "gate_dials_total": 1,
		`gate_dial_failures_total{code="host_unreachable"}`: 0,
		`gate_copied_bytes_total{direction="to_host"}`:      len(request), `gate_copied_bytes_total{direction="to_client"}`: len(answer),
	})

	_ = client.Close()
	failed := b.dial()
	testkit.Must(t, gate.Write(failed, gate.Enter{Token: b.client.Secret, Host: "h"}))
	m := testkit.Within(t, limit, "the dial", h.dials)
	if _, _, err := b.ask(gate.Arrive{Ticket: m.Ticket, Reason: "no proxy"}); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Fatal(err)
	}
	for _, m := range []gate.Enter{{Token: "wrong", Host: "h"}, {Token: b.client.Secret, Host: "other"}} {
		if _, _, err := b.ask(m); err == nil {
			t.Errorf("%+v is not refused", m)
		}
	}
	if r, _, _ := b.request(http.MethodGet, "/metrics", "Authorization: Bearer wrong"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token reads the metrics: %d", r.StatusCode)
	}
	b.expect("after refusals", map[string]any{
		"gate_splices": 0, "gate_dials_total": 2, `gate_dial_failures_total{code="host_unreachable"}`: 1,
		`gate_refusals_total{code="unauthorized"}`: 2, `gate_refusals_total{code="unknown_host"}`: 1, `gate_refusals_total{code="host_unreachable"}`: 1,
	})

	h.bus.Close()
	b.expect("without the host", map[string]any{`gate_hosts{state="ready"}`: 0, `gate_hosts{state="unreachable"}`: 1, "gate_sessions": 3})
	if age := b.metrics()["gate_oldest_record_age_seconds"]; age == "" || age == "0" {
		t.Errorf("the oldest record has the age %q", age)
	}
}

// A gate serves its health without a token, and tells a stranger nothing else.
func TestHealth(t *testing.T) {
	b := newBench(t)
	r, _, _ := b.request(http.MethodGet, "/healthz")
	if body, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("/healthz: %d, %q, %v", r.StatusCode, body, err)
	}
	for _, headers := range [][]string{nil, {"Cookie: holdfast=x"}, {"Authorization: Basic " + b.client.Secret}} {
		if r, _, _ := b.request(http.MethodGet, "/metrics", headers...); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("/metrics with %q: %d", headers, r.StatusCode)
		}
	}
}

// The metrics show which gates are connected, and whether the cluster is.
func TestMetricsOfSeveralGates(t *testing.T) {
	a := newBench(t)
	b := a.another()
	for _, x := range []*bench{a, b} {
		x.expect("of two gates", map[string]any{"gate_peers": 1, "gate_peers_connected": 1, `gate_connections{peer="gate"}`: 1})
		if _, isThere := x.metrics()["gate_cluster_up"]; isThere {
			t.Error("a gate without a cluster tells whether it is connected")
		}
	}
	b.stop()
	a.expect("of one of two gates", map[string]any{"gate_peers": 1, "gate_peers_connected": 0})

	c := &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t), options: Options{NATS: bus.ClusterOptions{URL: "nats://127.0.0.1:1"}}}
	c.start()
	c.expect("of a gate whose cluster is gone", map[string]any{"gate_cluster_up": 0})
}

// A gate that has taken over tells so, and counts the attempts to take over from it.
func TestMetricsOfHandoff(t *testing.T) {
	b := newBench(t)
	if err := testkit.Within(t, limit, "the old gate ends", b.handOver()); err != nil {
		t.Error(err)
	}
	b.expect("after the handoff", map[string]any{"gate_handoff_attempts_total": 0, "gate_takeover": 1})
	conn, _, err := socket.Dial(testkit.Soon(t), filepath.Join(b.dir, HandoffSocket))
	testkit.Must(t, err)
	defer func() { _ = conn.Close() }()
	take, err := json.Marshal(map[string]any{"do": "take", "versions": protocol.VersionRange{Min: 1, Max: 99}, "records": records, "timeout_ms": 500})
	if err == nil {
		err = socket.SendFiles(conn, take, nil)
	}
	testkit.Must(t, err)
	b.expect("after another attempt", map[string]any{"gate_handoff_attempts_total": 1, "gate_takeover": 1})
}

// The user of the gate learns its state without a token, and whether it serves.
func TestStatus(t *testing.T) {
	b := newBench(t)
	b.join("h")
	got, err := Status(testkit.Soon(t), b.control)
	if err != nil || got.Hosts["ready"] != 1 || got.Connections["host"] != 1 {
		t.Errorf("the status is %+v, %v", got, err)
	}
	b.stop()
	if _, err := Status(testkit.Soon(t), b.control); !socket.IsAbsent(err) {
		t.Errorf("the status of a gate that has ended: %v", err)
	}
}
