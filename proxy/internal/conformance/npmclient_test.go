package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The npm client passes. It must be built; scripts/check.sh does that before the tests.
func TestNPMClient(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "web", "client")
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "dist", "index.js"))
	}
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v; npm run build in %s builds it", err, dir)
	}
	passes(t, Options{Start: Program("node", filepath.Join(dir, "test", "harness.mjs")), Patience: patience, Jobs: 4})
}
