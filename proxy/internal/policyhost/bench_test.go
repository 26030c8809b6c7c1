//go:build unix

package policyhost

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

func benchConfig(b *testing.B) Config {
	dir := testkit.Dir(b)
	file := filepath.Join(dir, "role.json")
	testkit.Must(b, os.WriteFile(file, []byte(`{"Kind":"served"}`), 0o600))
	return Config{Path: programPath(b), ConfigFile: file, Dir: dir}
}

// BenchmarkAuthorize measures a question. It must not be felt by a client.
func BenchmarkAuthorize(b *testing.B) {
	h, err := Start(context.Background(), benchConfig(b))
	testkit.Must(b, err)
	defer h.Close()
	access := policy.Access{Verb: policy.VerbRead, SessionID: "s"}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		testkit.Must(b, h.Authorize(context.Background(), access))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkStart measures a start and an end. They must not delay a handoff.
func BenchmarkStart(b *testing.B) {
	cfg := benchConfig(b)
	var end time.Duration
	for b.Loop() {
		h, err := Start(context.Background(), cfg)
		testkit.Must(b, err)
		began := time.Now()
		_ = h.Close()
		end += time.Since(began)
	}
	b.ReportMetric(float64(end.Milliseconds())/float64(b.N), "ms-to-close")
}
