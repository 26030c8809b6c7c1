//go:build linux

package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// A supervisor that was stopped by a signal does not answer. Commands that wait for it say
// so, with its pid and what to do, and go on when it does; status tells what it knows. A
// creation that stands before is not undone.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "exec sleep 1000")
	supervisor := w.object("status", "--json")["supervisor"].(map[string]any)
	pid := int(supervisor["pid"].(float64))
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goesOn := func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // it may have ended
	defer goesOn()
	says := fmt.Sprintf("let it continue: kill -CONT %d", pid)

	ls := w.open("ls")
	ls.expect(says)
	if r := w.proxy("status"); r.Code != 69 || !strings.HasPrefix(r.Out, "proxy ") || strings.Count(r.Errout, says) != 1 {
		t.Errorf("status: %v, want 69, the proxy's half, and %q", r, says)
	}
	goesOn()
	ls.expect("sleep 1000")
	ls.ends(0, "")
}
