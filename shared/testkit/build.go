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

// A builder builds programs once per test process.
type builder struct {
	mu   sync.Mutex
	root string            // removed by Run
	dirs map[string]string // by what was built
}

var built builder

// Build returns a directory with the programs of the packages, such as
// "holdfast/supervisor", built once per test process and with -race if
// HOLDFAST_E2E_RACE is 1. A package that calls it has a TestMain that calls
// Run, or what was built stays.
func Build(t testing.TB, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs)
}

// BuildVersion is Build for programs that say they are of the given version,
// for tests of upgrades.
func BuildVersion(t testing.TB, version string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-ldflags=-X holdfast/shared/version.version="+version)
}

// BuildOther is BuildVersion with a build tag, for programs that differ in more than
// what they say.
func BuildOther(t testing.TB, version, tag string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-tags="+tag, "-ldflags=-X holdfast/shared/version.version="+version)
}

// BuildTagged is Build with a build tag.
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

// Run runs the tests and removes what Build has built.
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
	if os.Getenv("HOLDFAST_E2E_RACE") == "1" {
		args = slices.Insert(args, 1, "-race")
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
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
		_ = os.RemoveAll(b.root) // a leftover in the system's temporary directory
	}
	b.root, b.dirs = "", nil
}
