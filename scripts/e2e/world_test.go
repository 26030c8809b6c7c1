package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"holdfast/shared/testkit"
	programs "holdfast/shared/testkit/world"
)

const limit = programs.Limit

// isLong is true in the long mode.
var isLong = os.Getenv("HOLDFAST_LONG") != ""

type (
	process = programs.Process
	result  = programs.Result
	daemon  = programs.Daemon
)

var (
	lookup     = programs.Lookup
	eventually = programs.Eventually
)

// A world runs the programs in a directory of their own, with the clients and terminals of these tests.
type world struct{ *programs.World }

// newWorld returns a world in which no process runs. All programs get env.
func newWorld(t testing.TB, env ...string) *world {
	t.Helper()
	bin := testkit.Build(t, testkit.Programs...)
	w := &world{programs.New(t, testkit.Dir(t), "", bin, append([]string{
		"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=" + os.Getenv("GOMAXPROCS"),
	}, env...)...)}
	t.Cleanup(w.End)
	return w
}

// number returns the value of an environment variable that says how often a test repeats its work, or
// everyDay if the variable is not set.
func number(t testing.TB, name string, everyDay int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return everyDay
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// runFrom runs a program of the directory bin until it ends.
func (w *world) runFrom(bin, program string, args ...string) result {
	w.T.Helper()
	cmd := w.Command(program, args...)
	cmd.Path = filepath.Join(bin, program)
	cmd.Args[0] = cmd.Path
	return w.RunCommand(cmd)
}

// last returns the last n bytes of s.
func last(s string, n int) string { return s[max(0, len(s)-n):] }
