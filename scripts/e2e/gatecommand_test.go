//go:build linux

package e2e

import (
	"os"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// Commands about the host itself must run through the gate, even if no proxy runs on the host, and must end
// with their own exit codes. A host with a policy must refuse them.
func TestGateCommands(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red")
	f.Env = append(f.Env, "HOLDFAST_SSH_COMMAND=false")
	says := func(code int, text string, args ...string) {
		t.Helper()
		if r := f.Run("proxy", append([]string{"--on", "red"}, args...)...); r.Code != code || !strings.Contains(r.Out+r.Errout, text) {
			t.Errorf("%v: %v, want %d and %q", args, r, code, text)
		}
	}
	says(69, "no proxy runs here", "stop")
	says(0, "proxy", "start")
	f.spawn(f.enter("red"), "s", shell("exec sleep 1000"))
	says(0, "sessions    1 running", "status")
	says(0, `"proxy":`, "status", "--json")
	if r := f.Run("proxy", "--on", "red", "doctor"); !strings.Contains(r.Out, "the agent of red is connected") || strings.Contains(r.Out, "error") {
		t.Errorf("doctor: %v", r)
	}
	before := f.hosts["red"].Holder("proxy.sock")
	says(0, "could take over", "handoff", "--dry-run")
	says(0, "could take over", "--handoff", "--dry-run")
	says(0, "took over", "handoff")
	if f.hosts["red"].Holder("proxy.sock") == before {
		t.Error("the handoff did not replace the proxy")
	}
	says(64, "--foreground", "handoff", "--foreground")
	says(64, "--dir and --proxy", "ls", "--dir", "/other")
	says(64, "--dir", "stop", "--dir", "/other")
	says(64, "only_this_host: web", "web")
	says(0, "the sessions continue", "stop")
	says(0, "running since", "why", "s") // why starts a proxy

	red := f.hosts["red"]
	testkit.Must(t, os.WriteFile(red.Path("holdfast.json"), []byte(`{"policy": "/no/such/policy"}`), 0o600))
	says(77, "the host has a policy", "stop")
	red.Must("proxy", "info", "s")
	log := ""
	testkit.Eventually(t, limit, func() bool {
		b, err := os.ReadFile(red.Path("join.log"))
		log = string(b)
		return err == nil && strings.Contains(log, `"security":true`)
	}, "the refusal is in the log")
	if !strings.Contains(log, "request of a client to the agent refused") {
		t.Errorf("the log has no refusal: %s", log)
	}
}
