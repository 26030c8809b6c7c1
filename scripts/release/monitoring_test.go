package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A dashboard has the fields of a Grafana dashboard that the tests read.
type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	testkit.Must(t, json.Unmarshal([]byte(read(t, "monitoring", "dashboard.json")), &d))
	return d
}

// The panels of the dashboard have ids of their own, ask for something, and lie beside each other.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("the panel %d, %q, has no id of its own, no title or no query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if cells[cell] != "" || cell[0] >= 24 {
					t.Errorf("%q lies on %q or outside", p.Title, cells[cell])
				}
				cells[cell] = p.Title
			}
		}
	}
	if len(d.Panels) < 20 {
		t.Errorf("there are %d panels", len(d.Panels))
	}
}

// Prometheus accepts the rules and the queries of the dashboard, and each alert fires when it must.
func TestPrometheus(t *testing.T) {
	program(t, "promtool")
	output(t, "monitoring", "promtool", "check", "rules", "alerts.yaml")
	output(t, "monitoring", "promtool", "test", "rules", "alerts_test.yaml")

	// promtool reads no dashboards, so each query becomes a rule. Grafana replaces its variables.
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*").Replace(target.Expr)
			rules += fmt.Sprintf("  - record: panel_%d_%d\n    expr: %q\n", p.ID, i, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	testkit.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	output(t, "", "promtool", "check", "rules", file)
}

// Each alert has a case that fires it.
func TestAlerts(t *testing.T) {
	rules, cases := read(t, "monitoring", "alerts.yaml"), read(t, "monitoring", "alerts_test.yaml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 15 {
		t.Errorf("found but %d alerts", len(alerts))
	}
	for _, alert := range alerts {
		if !strings.Contains(cases, `alertname="`+alert[1]+`", `) {
			t.Errorf("no case fires %s", alert[1])
		}
	}
}
