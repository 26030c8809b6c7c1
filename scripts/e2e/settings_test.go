package e2e

import (
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The supervisor must use the settings that its proxy received as flags, and so must the next proxy after a
// handoff.
func TestSettingsOfFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(w.Command("proxy", "serve", "--background", "--scrollback-lines=77", "--idle-timeout=2s"))
	testkit.Eventually(t, limit, func() bool { return w.Holder("proxy.sock") != 0 }, "the proxy serves")
	c := w.dial(client.Options{})
	if s := w.spawn(c, "s", shell("exec sleep 1000")); s.Session.ScrollbackLines != 77 {
		t.Errorf("a session has %d lines of history, want 77", s.Session.ScrollbackLines)
	}
	w.handOff()
	testkit.Eventually(t, limit, func() bool {
		info, err := c.SessionInfo(w.ctx(), "s")
		return err == nil && info.State == protocol.StateExited && info.Exit.TimedOut
	}, "the idle session has ended")
}
