package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A file is one of an archive or a package.
type file struct {
	path string // with slashes
	data []byte
	mode fs.FileMode
}

// texts are the files of the tree that go along, where they are in the tree.
var texts = []string{"LICENSE", "README.md", "CHANGELOG.md", "ARCHITECTURE.md", "protocol/SPEC.md", "protocol/api/schema.json", "protocol/link/schema.json", "proxy/policy/policypb/policy.proto", "proxy/policy/policy.go",
	".github/CONTRIBUTING.md", ".github/demo.svg", ".github/page.png", "proxy/internal/web/client/README.md"}

// layout is what is in a target's archive: bin, share, and texts. Homebrew and
// a person with tar and /usr/local can use it as it is.
func (r *release) layout(t target, notices []byte) ([]file, error) {
	files := []file{{"NOTICES.txt", notices, 0o644}}
	var errs []error
	add := func(path, from string, mode fs.FileMode) {
		data, err := os.ReadFile(from)
		errs = append(errs, err)
		files = append(files, file{path, data, mode})
	}
	for _, name := range programs {
		exe := r.program(t, name)
		add("bin/"+filepath.Base(exe), exe, 0o755)
		add("share/bash-completion/completions/"+name, r.completion(name, "bash"), 0o644)
		add("share/zsh/site-functions/_"+name, r.completion(name, "zsh"), 0o644)
		add("share/fish/vendor_completions.d/"+name+".fish", r.completion(name, "fish"), 0o644)
	}
	pages, err := r.pages()
	errs = append(errs, err)
	for _, page := range pages {
		add("share/man/man1/"+filepath.Base(page), page, 0o644)
	}
	guides, err := r.guides()
	errs = append(errs, err)
	for _, text := range append(slices.Clone(texts), guides...) {
		add(text, filepath.Join(r.root, filepath.FromSlash(text)), 0o644)
		f := &files[len(files)-1]
		f.path, f.data = shown(text, f.data)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, errors.Join(errs...)
}

func (r *release) completion(program, shell string) string {
	return filepath.Join(r.work, program+"."+shell)
}

func (r *release) pages() ([]string, error) {
	return filepath.Glob(filepath.Join(r.work, "man", "*.1"))
}

// guides are the texts in .github/docs, and the programs that they show.
func (r *release) guides() (all []string, err error) {
	names, err := filepath.Glob(filepath.Join(r.root, ".github", "docs", "*.*"))
	for _, name := range names {
		all = append(all, ".github/docs/"+filepath.Base(name))
	}
	return all, err
}

// shown is a text where people find it: what lies in .github, the guides in particular, is
// in docs, which has no dot.
func shown(path string, data []byte) (string, []byte) {
	if name, ok := strings.CutPrefix(path, ".github/docs/"); ok {
		return "docs/" + name, bytes.ReplaceAll(data, []byte("](../../"), []byte("](../"))
	}
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("](.github/docs/"), []byte("](docs/")), []byte("](.github/"), []byte("](docs/"))
	if name, ok := strings.CutPrefix(path, ".github/"); ok {
		return "docs/" + name, data
	}
	return path, data
}
