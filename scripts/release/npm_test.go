package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// checkNPM installs the npm packages of two releases in two empty projects, as two versions of an
// application, without a network and without scripts. The first version starts the programs. The second
// version replaces them while the first one types into a shell, and no byte may be lost. Then the first
// version starts again, and must use the newer programs.
// demand: S9
func checkNPM(t *testing.T, first, next string) {
	if !isThere(filepath.Join(first, "holdfast-"+strings.TrimPrefix(version, "v")+".tgz")) {
		if os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
			t.Fatal("the release has no npm packages")
		}
		t.Skip("the tools of the npm client are not installed")
	}
	system := npmSystems[target{runtime.GOOS, runtime.GOARCH}]
	dir := testkit.Dir(t)
	install := func(release, version string) string {
		project := t.TempDir()
		if err := os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"private": true}`), 0o600); err != nil {
			t.Fatal(err)
		}
		version = strings.TrimPrefix(version, "v")
		output(t, project, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", t.TempDir(),
			filepath.Join(release, "holdfast-"+version+".tgz"), filepath.Join(release, "holdfast-"+system.platform+"-"+system.arch+"-"+version+".tgz"))
		for _, name := range []string{"app.mjs", "old.cjs"} {
			text, err := os.ReadFile(filepath.Join("testdata", name))
			if err == nil {
				err = os.WriteFile(filepath.Join(project, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return project
	}
	one, two := install(first, version), install(next, newer)
	for _, name := range []string{"holdfast", system.name()} { // npm compares it with the attestation
		if text := read(t, filepath.Join(one, "node_modules", name), "package.json"); !strings.Contains(text, `"url": "git+`+repository+`.git"`) {
			t.Errorf("%s does not name its repository:\n%s", name, text)
		}
	}
	t.Cleanup(func() {
		for _, program := range []string{"proxy", "supervisor"} {
			args := map[string][]string{"proxy": {"stop", "--dir", dir}, "supervisor": {"stop", "--sessions=end", "--dir", dir}}[program]
			if out, err := exec.Command(filepath.Join(two, "node_modules", system.name(), "bin", program), args...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	t.Log(output(t, one, "node", "app.mjs", dir, version, newer, two))
	t.Log(output(t, one, "node", "old.cjs", dir, newer))
}
