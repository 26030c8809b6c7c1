//go:build linux

package keeper

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// TestSmall: the keeper holds everything that must not be lost, so it must be small enough
// to be read at once and must import almost no package. Blank lines and comments do not
// count, so that no comment is shortened for the limit.
func TestSmall(t *testing.T) {
	for _, tt := range []struct {
		dir   string
		lines int // lines of code must be fewer
		ours  string
	}{{".", 800, "holdfast/supervisor/internal/keeper/message"}, {"message", 280, ""}} {
		files, err := filepath.Glob(filepath.Join(tt.dir, "*.go"))
		testkit.Must(t, err)
		lines := 0
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			testkit.Must(t, err)
			for line := range bytes.Lines(text) {
				if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
					lines++
				}
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
			testkit.Must(t, err)
			for _, spec := range file.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				testkit.Must(t, err)
				root, _, _ := strings.Cut(path, "/")
				standard := !strings.Contains(root, ".") && root != "holdfast"
				if !standard && path != "golang.org/x/sys/unix" && path != tt.ours {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
		if lines == 0 || lines >= tt.lines {
			t.Errorf("%s has %d lines of code, want fewer than %d", tt.dir, lines, tt.lines)
		}
	}
}
