package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
)

var pythonClient = filepath.Join("..", "..", "proxy", "client", "python")

// python is the Python of the system, because scripts/check.sh installs the tools for that one.
const python = "/usr/bin/python3"

// TestPythonClient runs the tests of the Python client: with real programs, whose proxy is killed and replaced and whose
// supervisor is upgraded while a program types.
// demand: S9
func TestPythonClient(t *testing.T) {
	t.Parallel()
	if err := exec.Command(python, "-c", "import pytest").Run(); err != nil {
		t.Skipf("%s has no pytest: %v", python, err)
	}
	w := newWorld(t)
	newer := testkit.BuildVersion(t, "v1.0.0", "holdfast/proxy", "holdfast/supervisor")
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-q", "--durations=5")
	cmd.Dir, cmd.Env = pythonClient, append(w.Command("proxy").Env, "PYTHONDONTWRITEBYTECODE=1",
		"HOLDFAST_TEST_PROGRAMS="+w.Bin, "HOLDFAST_TEST_NEWER="+newer, "HOLDFAST_TEST_DIR="+w.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, last(string(out), 16<<10))
	}
	t.Logf("%s", out)
}

// TestPythonTypes checks the types of the Python client and of its tests.
func TestPythonTypes(t *testing.T) {
	if !isLong {
		t.Skip("mypy needs 11 s of CPU; long mode")
	}
	t.Parallel()
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Skip("there is no mypy")
	}
	cmd := exec.CommandContext(t.Context(), "mypy", "--cache-dir="+os.DevNull, "holdfast", "tests")
	cmd.Dir = pythonClient
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
