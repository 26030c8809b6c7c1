package examples

import (
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast/proxy/policy"
)

// checkAudit checks the audit that a policy has written, from the first event of the suite on.
func checkAudit(t *testing.T, p policy.Policy, path string) {
	t.Helper()
	at := time.Date(2026, 11, 2, 3, 4, 5, 678_000_000, time.UTC)
	for _, e := range []policy.Event{
		{At: at, Kind: policy.EventSpawned, Principal: ann, SessionID: "s", Labels: map[string]string{"a": "line\nbreak"}},
		{At: at, Kind: policy.EventExited, SessionID: "s", ExitCode: 0},
	} {
		if err := p.Observe(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range all {
		if !json.Valid([]byte(line)) {
			t.Fatalf("line %d of the audit: %.200s", i, line)
		}
	}
	wants := []string{
		`{"at":"2026-11-02T03:04:05.678Z","kind":"spawned","labels":{"a":"line\nbreak"},"session_id":"s","user":"ann","workspace":"shop"}`,
		`{"at":"2026-11-02T03:04:05.678Z","exit_code":0,"kind":"exited","session_id":"s"}`,
	}
	for i, want := range wants {
		var fields map[string]any
		if err := json.Unmarshal([]byte(all[len(all)-len(wants)+i]), &fields); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(fields); err != nil || string(got) != want {
			t.Errorf("got %s %v, want %s", got, err, want)
		}
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the audit: %v %v, want 0600", info.Mode(), err)
	}
}
