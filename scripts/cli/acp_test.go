//go:build linux

package cli

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The command ends with its agent, even if a process that the agent has started holds the pipe to the editor.
func TestAgentLeavesProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Cleanup(func() {
		if pid, err := strconv.Atoi(strings.TrimSpace(w.read("pid"))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	r := w.proxy("acp", "--", "/bin/sh", "-c", "sleep 1000 2>/dev/null & echo $! >pid; echo '{}'; exit 3")
	if r.Code != 3 || r.Out != "{}\n" {
		t.Errorf("the command ended with %v", r)
	}
}
