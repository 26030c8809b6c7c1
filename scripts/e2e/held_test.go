//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// TestHeld kills supervisors repeatedly. The keeper must not start another one and must hold all files. All commands
// must report this and how to continue, and that way must work.
func TestHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_CRASH_LIMIT=2", "HOLDFAST_CRASH_PAUSE=1ms")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "cat")
	shell := lookup(w.info("s").PID)
	keeper := w.Only("keeper")
	if out := w.Must("proxy", "status"); !strings.Contains(out, fmt.Sprintf("keeper      pid %-8d holds 1 session; supervisor started once\n", keeper.PID)) {
		t.Errorf("status: %s", out)
	}
	w.finds("keeper", "ok", fmt.Sprintf("process %d holds all sessions", keeper.PID), "", 0)

	keeper.Signal(syscall.SIGSTOP)
	w.finds("keeper", "error", "was stopped by a signal", fmt.Sprintf("kill -CONT %d", keeper.PID), 2)
	keeper.Signal(syscall.SIGCONT)

	w.loop()
	hup := fmt.Sprintf("kill -HUP %d", keeper.PID)
	for _, command := range []string{"ls", "status"} {
		if r := w.Run("proxy", command); !strings.Contains(r.Out+r.Errout, hup) {
			t.Errorf("proxy %s: %v", command, r)
		}
	}
	for _, args := range [][]string{{"--upgrade", "--dry-run"}, {"stop"}} {
		if r := w.Run("supervisor", args...); r.Code != 69 || !strings.Contains(r.Errout, hup) {
			t.Errorf("supervisor %v: %v", args, r)
		}
	}
	w.finds("supervisor", "error", "2 supervisors died within a minute", hup, 2)
	if logs := w.Logs(); !strings.Contains(logs, hup) {
		t.Error("the log does not say how to continue")
	}

	keeper.Signal(syscall.SIGHUP)
	w.serves()
	w.finds("keeper", "note", "started 3 times, and the one before ended: SIGKILL", "supervisor.log", 0)
	w.loop()
	if out := w.Must("supervisor", "--upgrade"); !strings.Contains(out, "will start") || !strings.Contains(out, "1 sessions continue") {
		t.Errorf("upgrade after a crash loop: %s", out)
	}
	w.Must("proxy", "send", "s", "--enter", "still here")
	testkit.Eventually(t, limit, func() bool { return strings.Contains(w.Must("proxy", "screen", "s"), "still here\nstill here") }, "cat echoes the input")
	if now := lookup(w.info("s").PID); now != shell || w.Only("keeper") != keeper {
		t.Errorf("the session's child was %v; now it is %v", shell, now)
	}
}

// A keeper that receives SIGTERM must end, even while its supervisor is about to serve.
func TestToldToEndAtTheStart(t *testing.T) {
	t.Parallel()
	for range 30 {
		w := newWorld(t)
		d := w.Start(w.Command("supervisor"))
		testkit.Eventually(t, limit, func() bool { _, err := os.Lstat(w.Path("supervisor.sock")); return err == nil }, "the socket exists")
		d.Signal(syscall.SIGTERM)
		d.Wait(t)
		// If the keeper holds no vault entry yet, it ends the supervisor at once.
		if log := d.Errout.String(); strings.Count(log, "vault entries are held") > 1 {
			t.Fatalf("a keeper that was ready did not end in order:\n%s", log)
		}
	}
}

// loop kills two supervisors, and waits until the keeper starts no more.
func (w *world) loop() {
	w.T.Helper()
	w.Kill(w.Only("supervisor"))
	w.serves()
	w.Kill(w.Only("supervisor"))
	testkit.Eventually(w.T, limit, func() bool { return strings.Contains(w.Run("proxy", "doctor").Out, "none is started any more") }, "the keeper starts no supervisor")
}

// serves waits until a supervisor answers.
func (w *world) serves() {
	w.T.Helper()
	testkit.Eventually(w.T, limit, func() bool {
		var s client.Status
		r := w.Run("proxy", "status", "--json")
		return r.Code == 0 && json.Unmarshal([]byte(r.Out), &s) == nil && s.Supervisor != nil
	}, "a supervisor serves")
}

// info returns the information about a session that the command line prints.
func (w *world) info(id string) (s protocol.SessionInfo) {
	w.T.Helper()
	if err := json.Unmarshal([]byte(w.Must("proxy", "info", id, "--json")), &s); err != nil {
		w.T.Fatal(err)
	}
	return s
}
