//go:build linux

package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// A supervisor that was stopped by a signal does not answer. Commands that wait for it must report this, with
// its pid and the remedy, and must continue when it continues. status must print what it knows without the
// supervisor. A command with --timeout must end nevertheless, and the detach keys must end attach.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "exec sleep 1000")
	supervisor := w.object("status", "--json")["supervisor"].(map[string]any)
	pid := int(supervisor["pid"].(float64))
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goesOn := func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // the process may have ended
	defer goesOn()
	says := fmt.Sprintf("let it continue: kill -CONT %d", pid)

	late := map[string]*background{}
	for _, c := range []string{"wait s --timeout 0.1", "wait s --text x --timeout 0.1", "send s x --wait-text x --timeout 0.1"} {
		late[c] = w.begin(strings.Fields(c)...)
	}
	upgrade := w.begin("upgrade")
	ls, attach := w.open("ls"), w.open("attach", "s")
	ls.expect(says)
	attach.expect(says)
	attach.typ("\x1cd") // the terminal makes SIGQUIT of the first key, because it is not in raw mode yet
	attach.ends(131, "")
	if r := w.proxy("status"); r.Code != 69 || !strings.HasPrefix(r.Out, "proxy ") || strings.Count(r.Errout, says) != 1 {
		t.Errorf("status: %v, want 69, the status of the proxy, and %q", r, says)
	}
	for c, b := range late {
		if r := w.wait(b); r.Code != 124 || !strings.Contains(r.Errout, "timeout: ") {
			t.Errorf("%s: %v, want 124", c, r)
		}
	}
	if r := w.wait(upgrade); r.Code != 69 || !strings.Contains(r.Errout, says) {
		t.Errorf("upgrade: %v, want 69 and %q", r, says)
	}
	goesOn()
	ls.expect("sleep 1000")
	ls.ends(0, "")
}
