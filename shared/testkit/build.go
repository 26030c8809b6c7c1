package testkit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// buildsEnv names a directory in which several test processes share the programs that they build. The
// caller of the tests removes it. If the variable is not set, each test process builds for itself.
const buildsEnv = "HOLDFAST_BUILDS"

// A builder builds programs, each combination of flags and packages once per test process, or once in
// the directory that buildsEnv names.
type builder struct {
	mu   sync.Mutex
	root string            // directory of the programs that are not shared; Run removes it
	dirs map[string]string // directory of the programs by flags and packages
}

var built builder

// Programs are the packages of the programs that a release has. Tests that build all of them share the
// result, even if they need only some.
var Programs = []string{"holdfast/proxy", "holdfast/proxy/holdfast", "holdfast/supervisor"}

// Build returns a directory with the programs of the packages, such as "holdfast/supervisor".
// It builds them once per test process, or once in $HOLDFAST_BUILDS, and with -race if
// HOLDFAST_E2E_RACE is 1. A package that calls Build must have a TestMain that calls Run, which
// removes the programs unless they are in $HOLDFAST_BUILDS.
func Build(t testing.TB, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs)
}

// BuildVersion returns a directory with programs that report the given version. It builds them
// like Build. Tests of upgrades use it.
func BuildVersion(t testing.TB, version string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, reports(version))
}

// BuildOther returns a directory with programs that report the given version and are built with
// a build tag, so that they differ from the other programs in their behaviour as well.
func BuildOther(t testing.TB, version, tag string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-tags="+tag, reports(version))
}

// BuildTagged returns a directory with programs that are built with a build tag.
func BuildTagged(t testing.TB, tag string, pkgs ...string) string {
	t.Helper()
	return build(t, pkgs, "-tags="+tag)
}

// small makes the linker leave out the parts that only debuggers read, as in a release. Without it, linking takes
// twice as long.
const small = "-ldflags=-s -w"

// reports is the flag of a program that reports the given version. It contains small, because the last
// flag of this name counts.
func reports(version string) string { return small + " -X holdfast/shared/version.version=" + version }

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
	if b.dirs == nil {
		b.dirs = map[string]string{}
	}
	dir, err := b.newDir(args)
	if err == nil {
		b.dirs[key] = dir
	}
	return dir, err
}

// newDir returns a directory with the programs of go build's arguments.
func (b *builder) newDir(args []string) (string, error) {
	if shared := os.Getenv(buildsEnv); shared != "" {
		return buildShared(shared, args)
	}
	if b.root == "" {
		root, err := os.MkdirTemp("", "holdfast-build-")
		if err != nil {
			return "", err
		}
		b.root = root
	}
	dir, err := os.MkdirTemp(b.root, "")
	if err != nil {
		return "", err
	}
	return dir, goBuild(dir, args)
}

// buildShared returns the directory below shared that has the programs of go build's arguments. The
// first process builds them, and all others wait for it.
func buildShared(shared string, args []string) (string, error) {
	dir := filepath.Join(shared, fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(args, " ")+os.Getenv(raceEnv))))[:16])
	if err := os.MkdirAll(shared, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unfinished, err := os.MkdirTemp(shared, "unfinished-")
	if err != nil {
		return "", err
	}
	if err := goBuild(unfinished, args); err != nil {
		return "", errors.Join(err, os.RemoveAll(unfinished))
	}
	return dir, os.Rename(unfinished, dir)
}

// raceEnv is 1 if the programs are built with the race detector.
const raceEnv = "HOLDFAST_E2E_RACE"

// goBuild runs go build with these arguments, and puts the programs into dir.
func goBuild(dir string, args []string) error {
	cmd := exec.Command("go", append([]string{"build", small, "-o", dir + "/"}, args...)...)
	if os.Getenv(raceEnv) == "1" {
		cmd.Args = slices.Insert(cmd.Args, 2, "-race")
	} else {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // releases are built without cgo, too
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	return nil
}

func (b *builder) remove() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root != "" {
		_ = os.RemoveAll(b.root) // a failure leaves files in the temporary directory only
	}
	b.root, b.dirs = "", nil
}
