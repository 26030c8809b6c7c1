//go:build linux

package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// Where a policy decides, a release that knows of none does not take over: it
// would let everybody in.
func TestPolicyIsNotLost(t *testing.T) {
	for _, release := range previous(t) {
		t.Run(release.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor", "holdfast/proxy/policy/examples/file"),
				release.name: release.build(t),
			})
			config := fmt.Sprintf(`{"users": [{"user": "me", "uid": %d, "roles": ["all"], "all": true}], "rules": {"all": ["list", "spawn", "type"]}}`, os.Getuid())
			if err := os.WriteFile(w.Path("policy.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			pid := w.daemon(w.command(here, "proxy", "serve", "--background",
				"--policy", filepath.Join(w.bins[here], "file"), "--policy-config", w.Path("policy.json")))
			testkit.Eventually(t, limit, func() bool {
				_, err := os.Lstat(w.Path("proxy.policy"))
				return err == nil
			}, "the proxy serves")
			for _, by := range [][]string{{release.name, "--handoff"}, {here, "--handoff", "--from-dir", w.bins[release.name]}} {
				r := w.run(nil, by[0], "proxy", by[1:]...)
				if r.Code == 0 || !strings.Contains(r.Errout, "serves on") && !strings.Contains(r.Errout, "continues to serve") || !strings.Contains(r.Errout, "policy") {
					t.Errorf("%v: %v", by, r)
				}
			}
			if now := w.status(here).Proxy.PID; now != pid {
				t.Errorf("pid %d serves, and not %d", now, pid)
			}
		})
	}
}
