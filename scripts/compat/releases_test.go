//go:build linux

package compat

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// root is the root directory of the repository.
var root = filepath.Join("..", "..")

// minors is the number of minor versions that the tests try, counted from the newest.
const minors = 2

// A release is a version that users run.
type release struct{ name, commit string }

// parse parses the contents of the file releases.
func parse(text string) (all []release, err error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] != "#" {
			all = append(all, release{f[0], f[1]})
		} else if len(f) > 0 && f[0] != "#" {
			return nil, fmt.Errorf("invalid line in the file releases: %q", line)
		}
	}
	return all, nil
}

// number returns the parts of the version. A name that is not vN.N.N precedes all others.
func (r release) number() (n [3]int) {
	_, _ = fmt.Sscanf(r.name, "v%d.%d.%d", &n[0], &n[1], &n[2])
	return n
}

// newest returns the last release of each of the newest minor versions, newest first.
func newest(all []release) []release {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b release) int {
		m, n := a.number(), b.number()
		return slices.Compare(n[:], m[:])
	})
	all = slices.CompactFunc(all, func(a, b release) bool {
		m, n := a.number(), b.number()
		return slices.Equal(m[:2], n[:2])
	})
	return all[:min(minors, len(all))]
}

func TestNewest(t *testing.T) {
	for _, tt := range []struct{ all, want string }{
		{"", ""},
		{"v0.1.0", "v0.1.0"},
		{"v0.1.0 v0.1.1 v0.2.0 v0.9.0 v0.10.0 v0.9.1", "v0.10.0 v0.9.1"},
		{"v0.9.0 v1.0.0 v1.0.1", "v1.0.1 v0.9.0"},
	} {
		var all []release
		for _, name := range strings.Fields(tt.all) {
			all = append(all, release{name: name})
		}
		var got []string
		for _, r := range newest(all) {
			got = append(got, r.name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("newest of %s: got %v, want %s", tt.all, got, tt.want)
		}
	}
}

// The file releases must contain each tag of a release before this commit.
func TestReleases(t *testing.T) {
	all := releases(t)
	tags, err := git("tag", "--merged", "HEAD", "--no-contains", "HEAD", "--list", "v*")
	if err != nil {
		t.Skip(err)
	}
	for _, name := range strings.Fields(tags) {
		commit, err := git("rev-list", "-n", "1", name)
		testkit.Must(t, err)
		if r := (release{name, commit}); !slices.Contains(all, r) {
			t.Errorf("%s, %s, is not in the file releases", r.name, r.commit)
		}
	}
}

func releases(t *testing.T) []release {
	t.Helper()
	text, err := os.ReadFile("releases")
	testkit.Must(t, err)
	all, err := parse(string(text))
	testkit.Must(t, err)
	return all
}

// previous returns the releases under test. If the checkout lacks their history, it skips the test. If
// HOLDFAST_REQUIRE_HISTORY is 1, it fails the test instead.
func previous(t *testing.T) []release {
	t.Helper()
	tried := newest(releases(t))
	for _, r := range tried {
		_, err := git("merge-base", "--is-ancestor", r.commit, "HEAD")
		switch {
		case err == nil:
		case os.Getenv("HOLDFAST_REQUIRE_HISTORY") == "1":
			t.Fatalf("%s is not in this repository's history: %v", r.name, err)
		default:
			t.Skipf("%s is not in this repository's history: %v", r.name, err)
		}
	}
	return tried
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("git %s: %w %s", args[0], err, text)
	}
	return text, err
}

// build builds both programs of the release, as testkit.Build does, and returns their directory.
func (r release) build(t *testing.T) string {
	t.Helper()
	src, bin := t.TempDir(), t.TempDir()
	archive := exec.Command("git", "-C", root, "archive", "--format=tar", r.commit)
	extract := exec.Command("tar", "x", "-C", src)
	var err error
	if extract.Stdin, err = archive.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, extract.Start())
	if err := errors.Join(archive.Run(), extract.Wait()); err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	module, err := exec.Command("go", "-C", src, "list", "-m").Output() // the release may have another path than this tree
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	args := []string{"build", "-C", src, "-o", bin + "/", "-ldflags=-s -w -X " + strings.TrimSpace(string(module)) + "/shared/version.version=" + r.name}
	env := os.Environ()
	if os.Getenv("HOLDFAST_E2E_RACE") == "1" {
		args = append(args, "-race")
	} else {
		env = append(env, "CGO_ENABLED=0") // as for a release
	}
	cmd := exec.Command("go", append(args, "./proxy", "./supervisor")...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", r.name, err, out)
	}
	return bin
}
