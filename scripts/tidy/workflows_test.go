package tidy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	uses   = regexp.MustCompile(`(?m)^.*\buses["']?\s*:.*$`)
	pinned = regexp.MustCompile(`^\s*(- )?uses: [\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	local  = regexp.MustCompile(`^\s*(- )?uses: \./[\w./-]+$`)
)

// unpinned returns a complaint for each action of a workflow that its author could replace, because it is
// not named by a commit.
func unpinned(workflow string) (complaints []string) {
	for _, line := range uses.FindAllString(workflow, -1) {
		if !pinned.MatchString(line) && !local.MatchString(line) {
			complaints = append(complaints, fmt.Sprintf("%q: want the commit of the action, and its version in a comment", strings.TrimSpace(line)))
		}
	}
	return complaints
}

// Each action is pinned, and a job has only the permissions that it names.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", ".github", "workflows", "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, complaint := range unpinned(string(text)) {
			t.Errorf("%s: %s", name, complaint)
		}
		if !bytes.Contains(text, []byte("\npermissions: {}\n")) {
			t.Errorf("%s gives permissions to jobs that name none: want \"permissions: {}\" at the top", name)
		}
	}
}

func TestUnpinned(t *testing.T) {
	const sha = "de0fac2e4500dabe0009e67214ff5f5447ce83dd"
	for line, good := range map[string]bool{
		"      - uses: actions/checkout@" + sha + " # v6.0.2":         true,
		"        uses: a/b/sub@" + sha + " # v1.0.0":                  true,
		"    uses: ./.github/workflows/ci.yml":                        true,
		"      - uses: actions/checkout@v6":                           false,
		"      - uses: actions/checkout@v6.0.2 # " + sha:              false,
		"      - uses: actions/checkout@" + sha:                       false,
		"      - uses: actions/checkout@" + sha[:12] + " # v6.0.2":    false,
		"      - {uses: actions/checkout@main}":                       false,
		`      - "uses": actions/checkout@main`:                       false,
		"      - uses: docker://alpine:3":                             false,
		"      # the text: this line has no action, and is a comment": true,
	} {
		if got := unpinned(line + "\n"); (len(got) == 0) != good {
			t.Errorf("%s: %q", line, got)
		}
	}
}

var directory = regexp.MustCompile(`(?m)^      - (/.*)$`)

// Dependabot looks at each directory with modules or packages, and at no other.
func TestDependabot(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	for _, part := range strings.Split(string(text), "package-ecosystem: ")[1:] {
		ecosystem, _, _ := strings.Cut(part, "\n")
		for _, m := range directory.FindAllStringSubmatch(part, -1) {
			listed[ecosystem] = append(listed[ecosystem], m[1])
		}
	}
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("the files are those of git: %v", err)
	}
	found := map[string][]string{"github-actions": {"/"}}
	for name := range strings.FieldsSeq(string(out)) {
		switch path.Base(name) {
		case "go.mod":
			found["gomod"] = append(found["gomod"], path.Join("/", path.Dir(name)))
		case "package-lock.json":
			found["npm"] = append(found["npm"], path.Join("/", path.Dir(name)))
		}
	}
	for _, ecosystem := range []string{"gomod", "npm", "github-actions"} {
		slices.Sort(found[ecosystem])
		if !slices.Equal(listed[ecosystem], found[ecosystem]) {
			t.Errorf("%s: dependabot.yml has %q, and the tree %q", ecosystem, listed[ecosystem], found[ecosystem])
		}
	}
}
