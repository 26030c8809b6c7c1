package docs

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

var (
	demandID   = regexp.MustCompile(`^[A-Z]\d+$`)
	demandLine = regexp.MustCompile(`(?m)^\s*(?://|\*)?\s*demand: (.*)$`)
)

// A test must name each demand of the guide, and tests may name only demands of the guide. A Go test names
// them in the comment of its function, a JavaScript test in a line of its own.
func TestDemands(t *testing.T) {
	stated := map[string]bool{}
	for line := range strings.Lines(read(t, ".github/docs/demands.md")) {
		cells := strings.Split(line, "|")
		if len(cells) == 4 && demandID.MatchString(strings.TrimSpace(cells[1])) {
			stated[strings.TrimSpace(cells[1])] = true
		}
	}
	if len(stated) < 50 {
		t.Fatalf("the guide states %d demands", len(stated))
	}
	shown := map[string]bool{}
	err := filepath.WalkDir(source, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || e.Name() == ".git"):
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		for _, id := range named(t, path) {
			if shown[id] = true; !stated[id] {
				t.Errorf("%s names the demand %s, which the guide does not state", path, id)
			}
		}
		return nil
	})
	testkit.Must(t, err)
	for id := range stated {
		if !shown[id] {
			t.Errorf("no test names the demand %s", id)
		}
	}
}

// named returns the demands that the tests in a file name.
func named(t *testing.T, path string) (ids []string) {
	t.Helper()
	isGo := strings.HasSuffix(path, "_test.go")
	if !isGo && !strings.HasSuffix(path, ".test.mjs") {
		return nil
	}
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	if !isGo {
		return demandsIn(string(text))
	}
	if !bytes.Contains(text, []byte("demand: ")) {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
	testkit.Must(t, err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
			ids = append(ids, demandsIn(f.Doc.Text())...)
		}
	}
	return ids
}

func demandsIn(text string) (ids []string) {
	for _, m := range demandLine.FindAllStringSubmatch(text, -1) {
		for _, word := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(" ,:;.()", r) }) {
			if demandID.MatchString(word) {
				ids = append(ids, word)
			}
		}
	}
	return ids
}
