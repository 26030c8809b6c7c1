package tidy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// systems are the systems for which the programs are built. An import counts if a file of any of them has it.
var systems = []string{"linux", "darwin", "windows"}

// A pkg is the output of go list for a package of this module.
type pkg struct {
	ImportPath, Name, Dir, Doc string

	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// TestArchitecture compares the code with ARCHITECTURE.md.
func TestArchitecture(t *testing.T) {
	root := filepath.Join("..", "..")
	document, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(string(document))
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}
	own, outside, err := modules(root)
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := listAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range check(r, own, outside, pkgs) {
		t.Error(complaint)
	}
}

// check returns the violations of the rules.
func check(r rules, own string, outside []string, pkgs map[string]*pkg) (complaints []string) {
	say := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	seen := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(pkgs)) {
		p, name := pkgs[path], strings.TrimPrefix(path, own+"/")
		seen[name] = true
		allowed, ok := r.row(name)
		if !ok {
			say("%s has no row in the table of packages", name)
		}
		if !p.hasComment() {
			say("%s has no comment that begins with \"Package %s\" or, for a program, \"Command\"", name, p.Name)
		}
		for _, i := range p.imports() {
			ours, isOurs := strings.CutPrefix(i, own+"/")
			switch m := module(outside, i); {
			case isOurs && ok && !anyMatches(allowed, ours):
				say("%s imports %s, which its row does not allow", name, ours)
			case !isOurs && m != "" && !anyMatches(r.homes[m], name):
				say("%s imports %s, and is no home of %s", name, i, m)
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(r.layers)) {
		if !strings.HasSuffix(row, "/...") && !seen[row] {
			say("there is no package %s, but a row for it", row)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(r.homes)) {
		if !slices.Contains(outside, m) {
			say("there is no module %s in go.mod, but a row for it", m)
		}
	}
	return complaints
}

// imports returns the imports that the rules restrict: the imports of the package, or, if it consists of
// tests alone, the imports of its tests.
func (p *pkg) imports() []string {
	list := slices.Clone(p.Imports)
	if len(p.GoFiles) == 0 {
		list = slices.Concat(p.TestImports, p.XTestImports)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// hasComment reports whether the package has a package comment. If the package consists of tests alone, go
// list has no Doc, so hasComment reads the files.
func (p *pkg) hasComment() bool {
	if p.Name == "main" {
		return strings.HasPrefix(p.Doc, "Command ")
	}
	begin := "Package " + p.Name + " "
	if len(p.GoFiles) > 0 {
		return strings.HasPrefix(p.Doc, begin)
	}
	return slices.ContainsFunc(slices.Concat(p.TestGoFiles, p.XTestGoFiles), func(f string) bool {
		text, err := os.ReadFile(filepath.Join(p.Dir, f))
		return err == nil && bytes.Contains(text, []byte("// "+begin))
	})
}

// modules returns the path of this module, and the modules that go.mod requires.
func modules(root string) (own string, outside []string, err error) {
	out, err := run(root, nil, "mod", "edit", "-json")
	if err != nil {
		return "", nil, err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", nil, err
	}
	for _, r := range mod.Require {
		outside = append(outside, r.Path)
	}
	return mod.Module.Path, outside, nil
}

// listAll lists the module's packages as they are on all systems. It does so once, because the go
// command takes a second or two for each system.
var listAll = sync.OnceValues(func() (map[string]*pkg, error) {
	all := map[string]*pkg{}
	for _, goos := range systems {
		out, err := run(filepath.Join("..", ".."), []string{"GOOS=" + goos}, "list", "-e", "-json", "./...")
		if err != nil {
			return nil, err
		}
		if err := merge(all, out); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// merge adds the list of one system to all.
func merge(all map[string]*pkg, list []byte) error {
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		p := new(pkg)
		err := dec.Decode(p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		old := all[p.ImportPath]
		if old == nil {
			all[p.ImportPath] = p
			continue
		}
		old.Name, old.Doc = cmp.Or(old.Name, p.Name), cmp.Or(old.Doc, p.Doc)
		old.GoFiles = append(old.GoFiles, p.GoFiles...)
		old.TestGoFiles = append(old.TestGoFiles, p.TestGoFiles...)
		old.XTestGoFiles = append(old.XTestGoFiles, p.XTestGoFiles...)
		old.Imports = append(old.Imports, p.Imports...)
		old.TestImports = append(old.TestImports, p.TestImports...)
		old.XTestImports = append(old.XTestImports, p.XTestImports...)
	}
}

// run runs the go command in dir.
func run(dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out, nil
}
