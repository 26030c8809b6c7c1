//go:build linux

package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A handoff must pass on the policy and the users of clients, whichever of two versions follows the other.
func TestPolicyIsKept(t *testing.T) {
	for _, release := range previous(t) {
		t.Run(release.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor", "holdfast/proxy/policy/examples/file"),
				release.name: release.build(t),
			})
			config := fmt.Sprintf(`{"users": [{"user": "me", "uid": %d, "roles": ["some"], "all": true}], "rules": {"some": ["list", "spawn"]}}`, os.Getuid())
			testkit.Must(t, os.WriteFile(w.Path("policy.json"), []byte(config), 0o600))
			w.daemon(w.command(here, "proxy", "serve", "--background",
				"--policy", filepath.Join(w.bins[here], "file"), "--policy-config", w.Path("policy.json")))
			testkit.Eventually(t, limit, func() bool {
				_, err := os.Lstat(w.Path("proxy.policy"))
				return err == nil
			}, "the proxy serves")
			w.proxy(here, "new", "--detach", "--early-exit", "0", "--id", "a", "--", "sleep", "1000")
			c := w.connect()
			for _, next := range []string{release.name, here} {
				w.proxy(next, "--handoff")
				if got := w.status(here).Proxy.Version; got != next {
					t.Errorf("version %s serves, want %s", got, next)
				}
				if _, err := c.SessionInfo(w.ctx(), "a"); err != nil {
					t.Errorf("%s: info on a connection that was moved: %v", next, err)
				}
				if err := c.Type(w.ctx(), "a", []byte("x")); protocol.CodeOf(err) != protocol.CodePermissionDenied {
					t.Errorf("%s: input on a connection that was moved: %v, want permission_denied", next, err)
				}
				if r := w.run(nil, here, "proxy", "send", "a", "x"); r.Code != 77 {
					t.Errorf("%s: send without the permission to type: %v", next, r)
				}
			}
		})
	}
}
