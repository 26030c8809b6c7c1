package machine

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"holdfast/shared/testkit"
)

// A file is replaced whole, or stays as it is and leaves no temporary file behind.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	check := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("the file has %q, %v, want %q", b, err, want)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("the directory has %v, %v, want the file alone", files, err)
		}
	}
	testkit.Must(t, CreateFile(path, strings.NewReader("first"), 0o600))
	check("first")
	if err := CreateFile(path, strings.NewReader("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	check("first")
	full := errors.New("disk full")
	if err := ReplaceFile(path, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(full)), 0o600); !errors.Is(err, full) {
		t.Errorf("a write that fails: %v", err)
	}
	check("first")
	testkit.Must(t, ReplaceFile(path, strings.NewReader("second"), 0o640))
	check("second")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for range 2 {
		if err := RemoveFile(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}
