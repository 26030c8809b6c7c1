package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// python is the Python of the system, because scripts/check.sh installs pip for that one.
const python = "/usr/bin/python3"

// TestPythonVersion demands that the order of versions stays.
func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-alpha": "1.2.3a0", "1.2.3-beta12": "1.2.3b12", "1.2.3+5.gabcdef": "1.2.3+5.gabcdef",
		"1.2.3-rc.1+5.gabc.dirty": "1.2.3rc1+5.gabc.dirty", "1.2.3-next.4": "1.2.3.dev0+next.4", "1.2.3-next+B.4": "1.2.3.dev0+next.b.4",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}

// checkWheels installs the wheels of two releases into two empty environments, as two versions of an app, without a
// network. The first version starts the programs. The second version replaces them while the first one types into a
// shell, which loses nothing. Then the first one starts again, and uses the newer programs.
// demand: S9
func checkWheels(t *testing.T, first, next string) {
	if err := exec.Command(python, "-m", "pip", "--version").Run(); err != nil {
		t.Skipf("%s has no pip: %v", python, err)
	}
	dir := testkit.Dir(t)
	install := func(release, version string) string {
		env := filepath.Join(t.TempDir(), "env")
		output(t, "", python, "-m", "venv", "--without-pip", env)
		exe := filepath.Join(env, "bin", "python")
		// pip itself chooses between the wheel with the programs and the one without.
		output(t, "", python, "-m", "pip", "--python", exe, "install", "--quiet", "--no-index", "--no-cache-dir", "--disable-pip-version-check", "--no-compile",
			"--find-links", release, "holdfast=="+pythonVersion(strings.TrimPrefix(version, "v")))
		return exe
	}
	one, two := install(first, version), install(next, newer)
	t.Cleanup(func() {
		bin, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(two)), "lib", "python3*", "site-packages", "holdfast", "bin"))
		if err != nil || len(bin) != 1 {
			t.Fatalf("programs are in %v, %v", bin, err)
		}
		for program, args := range map[string][]string{"proxy": {"stop", "--dir", dir}, "supervisor": {"stop", "--sessions=end", "--dir", dir}} {
			if out, err := exec.Command(filepath.Join(bin[0], program), args...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	app, err := filepath.Abs(filepath.Join("testdata", "app.py"))
	testkit.Must(t, err)
	t.Log(output(t, "", one, app, dir, version, newer, two))
	t.Log(output(t, "", one, filepath.Join(filepath.Dir(app), "old.py"), dir, newer, os.TempDir()))
	wheels, err := filepath.Glob(filepath.Join(first, "holdfast-*.whl"))
	if err != nil || len(wheels) != 2 {
		t.Fatalf("the wheels are %q, %v", wheels, err)
	}
	for _, wheel := range wheels {
		output(t, "", python, filepath.Join("testdata", "record.py"), wheel)
		list := output(t, "", python, "-m", "zipfile", "-l", wheel)
		if !strings.Contains(list, "holdfast/py.typed") {
			t.Errorf("%s does not say that it has types:\n%s", wheel, list)
		}
		hasPrograms := strings.Contains(list, "holdfast/bin/proxy")
		if isForAll := strings.HasSuffix(wheel, "-py3-none-any.whl"); hasPrograms == isForAll {
			t.Errorf("%s: it has programs: %v", wheel, hasPrograms)
		}
	}
}
