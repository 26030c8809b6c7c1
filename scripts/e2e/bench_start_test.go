package e2e

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// starts is the number of times each program is started.
const starts = 50

// BenchmarkStart starts the users' command, the other programs and tmux in turns, and reports the median of the times
// until they have ended.
func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	bin := testkit.Build(b, testkit.Programs...)
	w.Must("proxy", "start")
	commands := []struct {
		name string
		argv []string
	}{
		{"holdfast-version", []string{bin + "/holdfast", "--version"}},
		{"holdfast-ls", []string{bin + "/holdfast", "ls"}},
		{"proxy-version", []string{bin + "/proxy", "--version"}},
		{"proxy-ls", []string{bin + "/proxy", "ls"}},
		{"supervisor-version", []string{bin + "/supervisor", "--version"}},
		{"tmux-version", []string{"tmux", "-V"}},
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for range starts {
			for _, c := range commands {
				cmd := exec.Command(c.argv[0], c.argv[1:]...)
				cmd.Env = append(os.Environ(), w.Env...)
				begun := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatalf("%q: %v", c.argv, err)
				}
				took[c.name] = append(took[c.name], time.Since(begun))
			}
		}
	}
	tmux := median(took["tmux-version"])
	for _, c := range commands {
		b.ReportMetric(float64(median(took[c.name]).Microseconds()), c.name+"-µs")
		b.ReportMetric(float64(median(took[c.name]))/float64(tmux), c.name+"/tmux")
	}
	b.ReportMetric(0, "ns/op")
}
