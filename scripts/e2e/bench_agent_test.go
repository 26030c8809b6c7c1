package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// BenchmarkAgent plays a working day of a coding agent with real programs: with the tools of "proxy mcp", and by agents that poll
// the screen of tmux (scripts/oracle/day.mjs). It reports the tokens of all that the model writes and reads, in each task.
func BenchmarkAgent(b *testing.B) {
	dir := oracle(b, "gpt-tokenizer", "node", "tmux", "bash", "git", "make", "cc", "python3", "curl", "vim", "less", "top")
	w := newWorld(b, "SHELL=/bin/bash", "LANG=C.UTF-8", "TERM=xterm-256color")
	var day []struct {
		Task  string
		Usage map[string]struct{ Tokens, Bytes, Calls float64 } // by agent
	}
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), "node", "day.mjs", w.Program("proxy"), b.TempDir())
		cmd.Dir, cmd.Env, cmd.Stderr = dir, w.Command("proxy").Env, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		if err := json.Unmarshal(out, &day); err != nil {
			b.Fatalf("%v: %q", err, out)
		}
	}
	agents := []string{"holdfast", "tmux", "tmux5", "thrifty"}
	tokens, bytes := map[string]float64{}, map[string]float64{}
	for _, t := range day {
		b.Run(t.Task, func(b *testing.B) {
			for b.Loop() { // the day has been played
			}
			for _, a := range agents {
				b.ReportMetric(t.Usage[a].Tokens, a+"-tokens")
				b.ReportMetric(t.Usage[a].Calls, a+"-calls")
			}
			b.ReportMetric(0, "ns/op")
		})
		for _, a := range agents {
			tokens[a] += t.Usage[a].Tokens
			bytes[a] += t.Usage[a].Bytes
		}
	}
	b.Run("day", func(b *testing.B) {
		for b.Loop() { // the day has been played
		}
		for _, a := range agents {
			b.ReportMetric(tokens[a], a+"-tokens")
			b.ReportMetric(tokens["holdfast"]/tokens[a], a+"-share")
			b.ReportMetric(bytes["holdfast"]/bytes[a], a+"-share-bytes")
		}
		b.ReportMetric(0, "ns/op")
	})
}
