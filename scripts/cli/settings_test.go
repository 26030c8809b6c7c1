//go:build linux

package cli

import (
	"os"
	"strings"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A mistake in holdfast.json must not cost a session, whatever program dies: keeper and supervisor must
// continue with the settings of their last start.
func TestSettingsBroken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("holdfast.json", `{"max_sessions": 1, "crash_limit": 100}`)
	w.shell("s", "echo ready; read x; echo got $x; read x")
	w.shows("s", "ready")
	c, err := client.Dial(t.Context(), client.Options{Dir: w.Dir, Name: "test"})
	testkit.Must(t, err)
	defer func() { _ = c.Close() }()
	life, err := c.SessionInfo(t.Context(), "s")
	testkit.Must(t, err)
	lives := func(what string) {
		t.Helper()
		if !eventually(func() bool {
			now, err := c.SessionInfo(t.Context(), "s")
			return err == nil && now.Instance == life.Instance && now.PID == life.PID && now.ExitCode == nil
		}) {
			t.Fatalf("%s: the session cannot be reached", what)
		}
	}
	for _, broken := range []string{`{"max_sessions": `, `{"max_sessions": -5}`} {
		w.write("holdfast.json", broken)
		w.Kill(w.Only("supervisor"))
		lives("the supervisor was killed")
		w.Kill(w.Only("keeper"))
		w.Only("keeper") // the supervisor has become the keeper
		lives("the keeper was killed")
	}
	w.fails(78, "max_sessions", "ls")
	if r := w.proxy("doctor"); r.Code != 2 || !strings.Contains(r.Out, "holdfast.json") {
		t.Errorf("doctor: %v", r)
	}
	if log := w.read("supervisor.log"); !strings.Contains(log, "the supervisor continues with those of its last start") {
		t.Errorf("the log lacks the message about the settings: %s", log)
	}
	w.write("holdfast.json", `{"crash_limit": 100}`)
	w.fails(75, "limit_exceeded", "new", "-d", "--", "sleep", "1000") // max_sessions of the last valid settings is in force
	w.Kill(w.Only("supervisor"))
	w.must("new", "-d", "--", "sleep", "1000")
	w.must("send", "s", "--enter", "x")
	w.shows("s", "got x")
}

// A supervisor that cannot start must be reported as soon as it has ended, with the place of the cause.
func TestSupervisorDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	testkit.Must(t, os.Mkdir(w.Path("keeping.lock"), 0o700))
	w.fails(69, "the supervisor that was started has ended", "new", "-d", "--", "cat")
	if log := w.read("supervisor.log"); !strings.Contains(log, "keeping.lock: is a directory") {
		t.Errorf("the log does not tell the cause: %s", log)
	}
	testkit.Must(t, os.Remove(w.Path("keeping.lock")))
	w.must("new", "-d", "--", "cat")
}
