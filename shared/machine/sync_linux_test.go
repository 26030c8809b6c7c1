package machine

import (
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
)

// On a read-only file system, a file that does not exist is removed already.
func TestRemoveFileReadOnly(t *testing.T) {
	dir := t.TempDir()
	testkit.ReadOnly(t, dir, func() {
		if err := RemoveFile(filepath.Join(dir, "file")); err != nil {
			t.Error(err)
		}
	})
}
