package tidy

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestAliases fails for an import alias that is the name of another package of this module, because a reader
// of alias.Name would look into the wrong package.
func TestAliases(t *testing.T) {
	own, _, err := modules("../..")
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := listAll()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]string) // from the name of a package to its path
	for p := range pkgs {
		names[path.Base(p)] = p
	}
	for p := range pkgs {
		dir := filepath.Join("../..", strings.TrimPrefix(p, own))
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("package %s: %d files, %v", p, len(files), err)
		}
		for _, file := range files {
			for _, complaint := range aliases(t, file, names) {
				t.Error(complaint)
			}
		}
	}
}

// TestAliasIsSeen checks that aliases finds such an alias, and permits others.
func TestAliasIsSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.go")
	const text = "package x\nimport (\nsocket \"holdfast/shared/link\"\nown \"holdfast/shared/pipe\"\n_ \"embed\"\n)\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := aliases(t, file, map[string]string{"socket": "holdfast/shared/socket", "link": "holdfast/shared/link"})
	if want := file + ": socket is an alias for holdfast/shared/link, and the name of holdfast/shared/socket"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// aliases returns a complaint for each import of a file whose alias is one of names.
func aliases(t *testing.T, file string, names map[string]string) (complaints []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, imported := range f.Imports {
		p, err := strconv.Unquote(imported.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if imported.Name == nil {
			continue
		}
		if other, ok := names[imported.Name.Name]; ok && other != p {
			complaints = append(complaints, file+": "+imported.Name.Name+" is an alias for "+p+", and the name of "+other)
		}
	}
	return complaints
}
