package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A directory on a read-only file system is private, but no process can start there.
func TestReadOnlyDirectory(t *testing.T) {
	m := healthy(t)
	dir := filepath.Join(m.dir, "read-only")
	m.must(os.Mkdir(dir, 0o700))
	m.Dirs.State = dir
	testkit.ReadOnly(t, dir, func() {
		got := (&inspection{Facts: m.Facts}).directories()
		if len(got) != 1 || got[0].Severity != Error || !strings.Contains(got[0].Finding, dir+" cannot be written: read-only file system") {
			t.Errorf("got %+v", got)
		}
	})
}
