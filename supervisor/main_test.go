//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"holdfast/protocol"
)

// A command about a running supervisor does not make a directory, even if --dir is mistyped.
func TestMistypedDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mistyped")
	o := &options{dir: dir}
	for name, command := range map[string]func() error{
		"stop":              func() error { return stop(t.Context(), o, "keep") },
		"upgrade":           func() error { return askUpgrade(t.Context(), o, false, false) },
		"upgrade --dry-run": func() error { return askUpgrade(t.Context(), o, true, false) },
	} {
		if err := command(); protocol.CodeOf(err) != protocol.CodeSupervisorUnreachable {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s has made the directory: %v", name, err)
		}
	}
}
