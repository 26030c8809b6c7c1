package testkit

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A builder builds programs, each combination of flags and packages once per test process.
type builder struct {
	mu   sync.Mutex
	root string            // directory of all programs; Run removes it
	dirs map[string]string // directory of the programs by flags and packages
}

var built builder

// Build returns a directory with the programs of the packages, such as "holdfast/supervisor".
// It builds them once per test process, and with -race if HOLDFAST_E2E_RACE is 1. A package
// that calls Build must have a TestMain that calls Run, which removes the programs.
func Build(t testing.TB, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs)
}

// BuildVersion returns a directory with programs that report the given version. It builds them
// like Build. Tests of upgrades use it.
func BuildVersion(t testing.TB, version string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-ldflags=-X holdfast/shared/version.version="+version)
}

// BuildOther returns a directory with programs that report the given version and are built with
// a build tag, so that they differ from the other programs in their behaviour as well.
func BuildOther(t testing.TB, version, tag string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-tags="+tag, "-ldflags=-X holdfast/shared/version.version="+version)
}

// BuildTagged returns a directory with programs that are built with a build tag.
func BuildTagged(t testing.TB, tag string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-tags="+tag)
}

func build(t testing.TB, pkgs []string, flags ...string) string {
	t.Helper()
	dir, err := built.build(flags, pkgs)
	if err != nil {
		t.Fatalf("build %s: %v", strings.Join(pkgs, " "), err)
	}
	return dir
}

// Run runs the tests, removes the programs of Build, and returns the exit code.
//
//	func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }
func Run(m *testing.M) int {
	defer built.remove()
	return m.Run()
}

func (b *builder) build(flags, pkgs []string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	args := slices.Concat(flags, pkgs)
	key := strings.Join(args, " ")
	if dir := b.dirs[key]; dir != "" {
		return dir, nil
	}
	dir, err := b.newDir()
	if err != nil {
		return "", err
	}
	args = append([]string{"build", "-o", dir + "/"}, args...)
	cmd := exec.Command("go", args...)
	if os.Getenv("HOLDFAST_E2E_RACE") == "1" {
		cmd.Args = slices.Insert(cmd.Args, 2, "-race")
	} else {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // releases are built without cgo, too
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	b.dirs[key] = dir
	return dir, nil
}

func (b *builder) newDir() (string, error) {
	if b.root == "" {
		root, err := os.MkdirTemp("", "holdfast-build-")
		if err != nil {
			return "", err
		}
		b.root, b.dirs = root, map[string]string{}
	}
	return os.MkdirTemp(b.root, "")
}

func (b *builder) remove() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root != "" {
		_ = os.RemoveAll(b.root) // a failure leaves files in the temporary directory only
	}
	b.root, b.dirs = "", nil
}
