//go:build linux

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// If other users can replace the directory, because they may write to a directory above it, no daemon may
// start and nothing may be created.
func TestWeakParents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	weak := w.mkdir("weak")
	if err := os.Chmod(weak, 0o777); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(weak, "own")
	run := func(argv ...string) result {
		cmd := exec.Command(filepath.Join(w.Bin, argv[0]), append(argv[1:], "--dir", dir)...)
		cmd.WaitDelay = time.Second // if a supervisor starts, it outlives its keeper
		return w.run(cmd, nil)
	}
	for _, argv := range [][]string{{"proxy", "start"}, {"proxy", "new", "-d"}, {"proxy", "serve"}, {"supervisor"}, {"supervisor", "--background"}} {
		if r := run(argv...); r.Code == 0 || !strings.Contains(r.Errout, weak) || !strings.Contains(r.Errout, "other users can replace") {
			t.Errorf("%v: %v", argv, r)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Fatalf("%v has made %s", argv, dir)
		}
	}
}
