//go:build linux

package cli

import (
	"io/fs"
	"os"
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

// A shell whose umask keeps files from their owner must start programs that can use their files.
func TestUmaskOfOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run(exec.Command("sh", "-c", `umask 0777; exec "$0" new -d --id s --durable full -- sh -c 'umask; exec sleep 1000'`, w.Program("proxy")), nil)
	if r.Code != 0 {
		t.Fatalf("new: %v", r)
	}
	if !eventually(func() bool { // also what is made later
		found, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", "s@*", "meta.json"))
		return len(found) == 1
	}) {
		t.Fatal("the session is not stored")
	}
	for _, path := range tree(t, w.Dir) {
		info, err := os.Lstat(path)
		if err != nil {
			continue // a temporary file
		}
		if want := fs.FileMode(0o600); info.Mode()&want != want || info.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
	}
	if out := w.must("screen", "s"); !strings.HasPrefix(out, "0077\n") {
		t.Errorf("the umask of the session is %s", out)
	}
}
