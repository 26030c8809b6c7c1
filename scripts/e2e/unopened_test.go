//go:build linux

package e2e

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// If the keeper is killed, the supervisor executes itself as the keeper, and from then on that process alone
// has the terminals. A directory or file that it cannot use must not end it, nor the supervisor that it starts.
func TestKeeperDiesBesideUnusableFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		spoil, repair func(*world) error
		warns         string // a line of the log
	}{
		{
			"directory is open to others",
			func(w *world) error { return os.Chmod(w.Dir, 0o755) },
			func(w *world) error { return os.Chmod(w.Dir, 0o700) },
			"has mode 0755",
		},
		{"crash file of the keeper", spoiled("keeper.crash"), repaired("keeper.crash"), "crash file not opened"},
		{"crash file of the supervisor", spoiled("supervisor.crash"), repaired("supervisor.crash"), "crash file not opened"},
		{"log", spoiled("supervisor.log"), repaired("supervisor.log"), ""}, // the warning is on standard error, which a background process has not
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			shell := w.cat()
			held := w.Only("supervisor")
			testkit.Must(t, tt.spoil(w))
			w.Kill(w.Only("keeper"))
			testkit.Eventually(t, limit, func() bool {
				all := w.Running("supervisor")
				return len(all) == 1 && all[0] != held && w.Holder("supervisor.sock") == all[0].PID
			}, "another supervisor serves")
			testkit.Must(t, tt.repair(w))
			w.sameCat(shell)
			if now := w.Only("keeper"); now != held {
				t.Errorf("the keeper is %v, want the former supervisor %v", now, held)
			}
			if logs := w.Logs(); !strings.Contains(logs, tt.warns) {
				t.Errorf("the log lacks %q:\n%s", tt.warns, logs)
			}
		})
	}
}

// A supervisor that can read neither its settings nor those of its last start must wait for them instead of ending, because the
// keeper would soon start only one each minute.
func TestSupervisorWaitsForSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_CRASH_LIMIT=2")
	shell := w.cat()
	testkit.Must(t, errors.Join(os.Chmod(w.Path("supervisor.settings.json"), 0o755), os.WriteFile(w.Path("holdfast.json"), []byte("{"), 0o600)))
	w.Kill(w.Only("supervisor"))
	testkit.Eventually(t, limit, func() bool { return w.lines("supervisor.log", "supervisor cannot serve") == 1 }, "the next supervisor has tried to read its settings")
	testkit.Must(t, os.Remove(w.Path("holdfast.json")))
	w.sameCat(shell)
}

// A program that takes over the sessions by an upgrade must serve although its crash file or its log cannot be
// opened.
func TestUpgradeBesideUnusableFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"supervisor.crash", "supervisor.log"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			shell := w.cat()
			held := w.Only("supervisor")
			testkit.Must(t, spoiled(name)(w))
			w.Must("supervisor", "--upgrade", "--dry-run")
			w.Must("supervisor", "--upgrade")
			if now := w.Only("supervisor"); now != held {
				t.Errorf("the supervisor is %v, want %v, which executes the new program", now, held)
			}
			w.sameCat(shell)
			testkit.Must(t, repaired(name)(w))
		})
	}
}

// A keeper without sessions must fail if its files cannot be opened, because the user should correct that first.
func TestStartBesideUnusableFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"keeper.crash", "supervisor.crash", "supervisor.log"} {
		w := newWorld(t)
		testkit.Must(t, os.Mkdir(w.Path(name), 0o700))
		if r := w.Run("supervisor", "--background"); r.Code == 0 {
			t.Errorf("a supervisor whose %s is a directory: %v", name, r)
		}
		testkit.Must(t, os.Remove(w.Path(name)))
	}
}

// spoiled returns a function that puts a directory in the place of a file.
func spoiled(name string) func(*world) error {
	return func(w *world) error {
		if err := os.Rename(w.Path(name), w.Path(name+".aside")); err != nil {
			return err
		}
		return os.Mkdir(w.Path(name), 0o700)
	}
}

// repaired returns a function that undoes spoiled.
func repaired(name string) func(*world) error {
	return func(w *world) error {
		if err := syscall.Rmdir(w.Path(name)); err != nil {
			return err
		}
		return os.Rename(w.Path(name+".aside"), w.Path(name))
	}
}

// cat starts a session "s" with cat, and returns its process.
func (w *world) cat() process {
	w.T.Helper()
	w.Must("proxy", "new", "-d", "--id", "s", "--", "cat")
	return lookup(w.info("s").PID)
}

// sameCat fails the test unless the session of cat has the same process as before and echoes input.
func (w *world) sameCat(shell process) {
	w.T.Helper()
	if now := lookup(w.info("s").PID); now != shell || !now.Running() {
		w.T.Errorf("the session's child was %v; now it is %v", shell, now)
	}
	w.Must("proxy", "send", "s", "--enter", "still here")
	testkit.Eventually(w.T, limit, func() bool { return strings.Contains(w.Must("proxy", "screen", "s"), "still here\nstill here") }, "cat echoes the input")
}
