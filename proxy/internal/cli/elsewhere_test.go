//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/proxy/internal/doctor"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// A supervisor in the place without a runtime directory is named, with a command
// that reaches it, if the environment chooses another place.
func TestElsewhere(t *testing.T) {
	dir := testkit.Dir(t)
	t.Setenv("HOLDFAST_DIR", "")
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("HOME", dir)
	run := filepath.Join(dir, ".local/state/holdfast/run")
	testkit.Must(t, os.MkdirAll(run, 0o700))
	ln, err := socket.Listen(filepath.Join(run, config.SupervisorSocket), socket.Options{})
	testkit.Must(t, err)
	defer func() { _ = ln.Close() }()
	dirs, err := config.Resolve("", os.Getenv)
	testkit.Must(t, err)
	want := doctor.Place{Dir: run, Runs: "daemons of yours run", Command: "proxy ls --dir " + run}
	if got := (&App{}).elsewhere(t.Context(), dirs, ""); !slices.Contains(got, want) { // the machine may have others
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := reach("/run/user/1000/holdfast"), "XDG_RUNTIME_DIR=/run/user/1000 proxy ls"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
