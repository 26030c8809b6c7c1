package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// Tests the page in a real browser. Each file of tests runs in its own world, and documents what it checks.
// HOLDFAST_SCREENSHOTS names a directory for pictures of the page.
// demand: B6 B9
func TestWebPage(t *testing.T) {
	t.Parallel()
	dir := webPage(t)
	// These programs have a version of their own, because the programs of the other tests may have been built
	// before the page.
	bin := testkit.BuildVersion(t, "page", "holdfast/proxy", "holdfast/supervisor")
	tests, err := filepath.Glob(filepath.Join(dir, "test", "browser", "*.test.mjs"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests of the page: %v", err)
	}
	for _, path := range tests {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			var env []string
			if filepath.Base(path) == "past.test.mjs" {
				env = append(env, "HOLDFAST_DURABLE=full")
			}
			w := newWorld(t, env...)
			w.Bin = bin
			w.webProxy()
			w.browse(path)
		})
	}
}

// webPage builds the page if a source is newer, and returns its directory. It skips the test if Node, npm, a
// browser or playwright-core is not installed. If HOLDFAST_REQUIRE_ORACLE is 1, it fails the test instead.
func webPage(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "proxy", "internal", "web", "page"))
	testkit.Must(t, err)
	for _, p := range []string{"node", "npm", chromium} {
		if err == nil {
			_, err = exec.LookPath(p)
		}
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", "playwright-core"))
	}
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v; scripts/web installs and builds the page", err)
	}
	cmd := exec.Command(filepath.Join("..", "web"), "--if-older")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of the page: %v\n%s", err, out)
	}
	return dir
}

// browse runs one file of the page's tests in this world.
func (w *world) browse(path string) {
	w.T.Helper()
	browser, err := exec.LookPath(chromium)
	testkit.Must(w.T, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test-reporter", "spec", path)
	cmd.Dir = w.Dir
	cmd.Env = append(w.Env, "HOLDFAST_BIN="+w.Bin, "CHROMIUM="+browser, "SCREENSHOTS="+os.Getenv("HOLDFAST_SCREENSHOTS"), "HOLDFAST_SEED="+os.Getenv("HOLDFAST_SEED"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if out, err := cmd.CombinedOutput(); err != nil {
		w.T.Errorf("%v\n%s", err, last(string(out), 16<<10))
	}
}
