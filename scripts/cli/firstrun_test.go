//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A new user's first five minutes must be as the script first-run describes.
func TestFirstRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command("bash", filepath.Join("..", "first-run"), w.Bin)
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = dir
	r := w.run(cmd, nil)
	if r.Code != 0 || !strings.Contains(r.Out, "That was all.") {
		t.Errorf("%v", r)
	}
}
