//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The first five minutes of somebody new are as the script says.
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
