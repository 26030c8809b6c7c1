package main

import (
	"errors"
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
		testkit.Must(t, os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"private": true}`), 0o600))
		version = strings.TrimPrefix(version, "v")
		output(t, project, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", t.TempDir(),
			filepath.Join(release, "holdfast-"+version+".tgz"), filepath.Join(release, "holdfast-"+system.platform+"-"+system.arch+"-"+version+".tgz"))
		testkit.Must(t, copyFiles("testdata", project, "app.mjs", "old.cjs"))
		return project
	}
	one, two := install(first, version), install(next, newer)
	for _, name := range []string{"holdfast", system.name()} { // npm compares it with the attestation
		if text := read(t, filepath.Join(one, "node_modules", name), "package.json"); !strings.Contains(text, `"url": "git+`+repository+`.git"`) {
			t.Errorf("%s does not name its repository:\n%s", name, text)
		}
	}
	t.Cleanup(func() { stopPrograms(t, two, dir) })
	t.Log(output(t, one, "node", "app.mjs", dir, version, newer, two))
	t.Log(output(t, one, "node", "old.cjs", dir, newer))
	t.Run("sample", func(t *testing.T) { checkSample(t, one, two) })
}

// sample is the directory of the sample app for Electron.
var sample = filepath.Join("..", "..", ".github", "docs", "electron-sample")

// checkSample runs the sample app of both releases: as a person uses it, with Chromium and a stand-in for Electron, and
// its test for CI, which must fail if the npm client forgets an offset.
// demand: S9
func checkSample(t *testing.T, one, two string) {
	program(t, "vim")
	program(t, "chromium-headless-shell")
	chromium, err := exec.LookPath("chromium-headless-shell")
	testkit.Must(t, err)
	page, err := filepath.Abs(filepath.Join("..", "..", "proxy", "internal", "web", "page", "node_modules"))
	testkit.Must(t, err)
	playwright := filepath.Join(page, "playwright-core")
	if !isThere(playwright) {
		t.Skip("the tools of the web page are not installed")
	}
	for _, project := range []string{one, two} {
		err := errors.Join(
			copyFiles(sample, project, "package.json", "main.js", "terminals.js", "preload.js", "page.html", "page.js", "chaos.js"),
			copyFiles(filepath.Join("testdata", "electron"), filepath.Join(project, "node_modules", "electron"), "package.json", "index.js"),
			os.Symlink(filepath.Join(page, "@xterm"), filepath.Join(project, "node_modules", "@xterm")))
		testkit.Must(t, err)
	}
	dir, home := testkit.Dir(t), testkit.Dir(t)
	t.Cleanup(func() { stopPrograms(t, two, filepath.Join(dir, "terminals")) })
	t.Setenv("HOME", home)
	t.Setenv("SHELL", "/bin/sh")
	t.Setenv("ENV", "")
	t.Setenv("TMPDIR", testkit.Dir(t)) // short enough for sockets
	t.Log(output(t, "", "node", filepath.Join("testdata", "sample.mjs"), one, two, dir, chromium, playwright))

	t.Log(output(t, two, "node", "chaos.js", "--for", "1s"))
	forget, err := filepath.Abs(filepath.Join("testdata", "forget.cjs"))
	testkit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "--require", forget, "chaos.js", "--for", "1s", "--faults", "cut", "--sessions", "1")
	cmd.Dir = two
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), `"errors": [
    "chaos-`) {
		t.Errorf("an app whose client forgets its offset ended with %v, and printed %s", err, out)
	}
}

// copyFiles copies files of a directory.
func copyFiles(from, to string, names ...string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stopPrograms ends the programs of a directory, with their sessions.
func stopPrograms(t *testing.T, project, dir string) {
	bin := filepath.Join(project, "node_modules", npmSystems[target{runtime.GOOS, runtime.GOARCH}].name(), "bin")
	for _, args := range [][]string{{"proxy", "stop"}, {"supervisor", "stop", "--sessions=end"}} {
		if out, err := exec.Command(filepath.Join(bin, args[0]), append(args[1:], "--dir", dir)...).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
