package tidy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/rename-module renames the module of a copy of the tree, and builds and vets all packages of the copy.
func TestRename(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") != "1" {
		t.Skip("compiles all packages again; set HOLDFAST_LONG=1")
	}
	const path = "git.example.org/ada/holdfast"
	dir := copyTree(t)
	in := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	in("bash", filepath.Join("scripts", "rename-module"), path)
	if got := strings.TrimSpace(in("go", "list", "-m")); got != path {
		t.Errorf("the module is %s", got)
	}
	for file, want := range map[string]string{
		"scripts/release/build.go":                         "-X " + path + "/shared/version.version=",
		"scripts/release/sbom.go":                          `purl("` + path + `"`,
		".github/docs/embed-go.md":                         "Package `" + path + "/proxy/client`",
		"proxy/policy/policypb/policy.proto":               `go_package = "` + path + `/proxy/policy/policypb"`,
		"shared/testkit/s3server/gateway/go.mod":           "module " + path + "/shared/testkit/s3server/gateway",
		"scripts/release/debian/postinst":                  "libexec/holdfast/proxy",
		"proxy/internal/fleet/hostupgrade/archive_test.go": `"holdfast/bin/proxy"`,
	} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s, %v", file, want, err)
		}
	}
	if left, _ := exec.Command("git", "-C", dir, "grep", "-nE", `"holdfast/(protocol|proxy|supervisor|shared|scripts)`, "--", "*.go").Output(); len(left) > 0 {
		t.Errorf("these still have the old path:\n%s", left)
	}
}

// copyTree copies the files of the tree that are in git, or could be, into a repository of its own.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `git ls-files -z -co --exclude-standard | while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
		tar c --null -T - | tar x -C "$0" && cd "$0" && git init -q && git add -A && git -c user.name=a -c user.email=a@example.org commit -qm copy`
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script, dir)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
