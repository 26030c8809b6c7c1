package docs

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/config"
)

const operate = ".github/docs/operate.md"

// rows returns the rows of all tables of a page, by the words in backquotes in their first cells.
func rows(t *testing.T, page string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(read(t, page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || cells[0] != "" {
			continue
		}
		for _, name := range inline.FindAllString(cells[1], -1) {
			all[strings.Trim(name, "`")] += line // a setting and a check of doctor may have the same name
		}
	}
	return all
}

// Every setting must be in the table, with its default.
func TestSettings(t *testing.T) {
	all := rows(t, operate)
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	config.Flags(fs)
	std := regexp.MustCompile(`\(([^()]+)\)$`)
	fs.VisitAll(func(f *flag.Flag) {
		name := strings.ReplaceAll(f.Name, "-", "_")
		row, ok := all[name]
		if !ok {
			t.Errorf("%s has no row for the setting %s", operate, name)
		}
		cells := strings.Split(row, "|")
		if isUsed := strings.Contains(row, "| supervisor |") || strings.Contains(row, "| both |"); ok && isUsed != config.IsOfSupervisor(name) {
			t.Errorf("%s: the setting %s is used by%s, but the supervisor has a flag for it: %v", operate, name, cells[2], !isUsed)
		}
		if m := std.FindStringSubmatch(f.Usage); m != nil && !strings.Contains(row, " "+m[1]+" |") {
			t.Errorf("%s: the default of %s is %s, but the row is %s", operate, name, m[1], row)
		}
	})
}

// Every metric must be in the table, and the guide may mention no other metric.
func TestMetrics(t *testing.T) {
	all := rows(t, operate)
	made := map[string]bool{}
	for _, m := range regexp.MustCompile(`\b(?:gauge|counter)\("([a-z_]+)"`).FindAllStringSubmatch(metricsSource(t), -1) {
		name := "holdfast_" + m[1]
		made[name] = true
		if _, ok := all[name]; !ok {
			t.Errorf("%s has no row for the metric %s", operate, name)
		}
	}
	if len(made) < 30 {
		t.Errorf("the sources contain only %d metrics", len(made))
	}
	for _, page := range []string{operate, monitoring + "alerts.yaml", monitoring + "alerts_test.yaml", monitoring + "dashboard.json"} {
		for _, name := range regexp.MustCompile(`\bholdfast_[a-z_]*[a-z]`).FindAllString(read(t, page), -1) {
			if !made[name] {
				t.Errorf("%s mentions %s, which is not a metric", page, name)
			}
		}
	}
	alerts := read(t, monitoring+"alerts.yaml")
	for name, row := range all {
		if made[name] && strings.Contains(strings.ToLower(row), "**alert**") && !slices.ContainsFunc(inline.FindAllString(row, -1), func(name string) bool {
			return regexp.MustCompile(`\b` + strings.Trim(name, "`") + `\b`).MatchString(alerts)
		}) {
			t.Errorf("%s advises an alert that %salerts.yaml lacks: %s", operate, monitoring, row)
		}
	}
}

// monitoring is the directory of the dashboard and the alert rules.
const monitoring = "scripts/release/monitoring/"

func metricsSource(t *testing.T) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(source, "proxy", "internal", "metrics", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if !strings.HasSuffix(path, "_test.go") {
			text += read(t, "proxy/internal/metrics/"+filepath.Base(path))
		}
	}
	return text
}

// Every check of doctor must be in the table.
func TestDoctor(t *testing.T) {
	w := newWorld(t)
	out, _ := w.shell(w.path("home"), "proxy doctor --json") // the exit code depends on the machine
	var found []struct{ Check string }
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) < 10 {
		t.Fatalf("%v, %s", err, out)
	}
	all := rows(t, operate)
	for _, f := range found {
		if _, ok := all[f.Check]; !ok {
			t.Errorf("%s has no row for the check %s", operate, f.Check)
		}
	}
}

// Every exit code of the commands must be in the table.
func TestExitCodes(t *testing.T) {
	all := rows(t, operate)
	for _, m := range regexp.MustCompile(`(?m)^\t[A-Z]\w+ += (\d+)`).FindAllStringSubmatch(read(t, "shared/sysexits/sysexits.go"), -1) {
		if _, ok := all[m[1]]; !ok {
			t.Errorf("%s has no row for the exit code %s", operate, m[1])
		}
	}
}
