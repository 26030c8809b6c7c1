//go:build linux

package cli

import (
	"os"
	"strings"
	"testing"
)

// A command that looks at what exists starts nothing and makes no directory.
func TestLookingStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.path("typo")
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"status"}, {"info", "x"}, {"why", "x"}, {"away", "x"}, {"history", "x"}, {"screen", "x"}, {"search", "x", "y"},
		{"export", "x"}, {"events"}, {"wait", "x"}, {"mark", "x"}, {"env", "x"}, {"attach", "x"}, {"send", "x", "y"}, {"kill", "x"}, {"reopen", "x"}, {"--handoff"},
	} {
		w.fails(69, "nothing runs here", append([]string{"--dir", dir}, args...)...)
	}
	if out := w.must("__complete", "--dir", dir, "attach", ""); !strings.HasPrefix(out, ":") {
		t.Errorf("completion of what is not there: %q", out)
	}
	w.fails(69, "nothing runs here", "stop", "--all", "--dir", dir)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("looking has made %s", dir)
	}
	if all := w.running(""); len(all) > 0 {
		t.Errorf("looking has started %v", all)
	}

	// Where a supervisor holds sessions, a proxy is started to see them.
	w.spawn("s", "sleep", "1000")
	w.must("stop")
	if out := w.must("ls"); !strings.Contains(out, "sleep 1000") {
		t.Errorf("ls beside a supervisor alone: %s", out)
	}
}

func TestStopAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "sleep", "1000")
	w.must("start", "--proxy", "blue")
	if r := w.fails(75, "1", "stop", "--all"); strings.Count(r.out, "stopped") != 2 {
		t.Errorf("stop --all beside a session: %v", r)
	}
	held := w.only("supervisor")
	w.must("kill", "s") // its record is no session that runs
	if out := w.must("stop", "--all"); strings.Count(out, "stopped") != 2 {
		t.Errorf("stop --all: %s", out)
	}
	if !eventually(func() bool { return len(w.running("")) == 0 }) {
		t.Errorf("%v are left, the supervisor was %v", w.running(""), held)
	}
	w.fails(69, "nothing runs here", "stop", "--all")
}

// A supervisor without a session and a proxy ends by itself, and its keeper with it.
func TestEmptySupervisorEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_EMPTY_TIMEOUT=40ms")
	w.must("start")
	w.only("keeper")
	w.must("stop")
	if !eventually(func() bool { return len(w.running("")) == 0 }) {
		t.Errorf("%v are left", w.running(""))
	}
	if log := w.read("supervisor.log"); strings.Count(log, "supervisor ends: it had no session") != 1 || strings.Contains(log, "another") {
		t.Errorf("the log says %s", log)
	}
}
