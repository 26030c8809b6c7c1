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

// A file is a file of an archive or a package.
type file struct {
	path string // separated by slashes
	data []byte
	mode fs.FileMode
}

// A fileList collects files, and the errors of reading them.
type fileList struct {
	files []file
	err   error
}

// read adds a file with the content of another one.
func (l *fileList) read(path, from string, mode fs.FileMode) {
	data, err := os.ReadFile(from)
	l.err = errors.Join(l.err, err)
	l.files = append(l.files, file{path, data, mode})
}

// texts are the paths of the files of the tree that each archive contains.
var texts = []string{"LICENSE", "README.md", "CHANGELOG.md", "ARCHITECTURE.md", "protocol/SPEC.md", "protocol/api/schema.json", "protocol/link/schema.json", "protocol/testdata/client-v1.json", "proxy/policy/policypb/policy.proto", "proxy/policy/policy.go",
	".github/CONTRIBUTING.md", ".github/SECURITY.md", ".github/demo.svg", ".github/page.png", ".github/past.png", "proxy/internal/web/client/README.md", "proxy/client/python/README.md", "proxy/internal/conformance/README.md", "proxy/internal/conformance/goclient_test.go", "proxy/internal/conformance/testdata/example_harness.py", "proxy/internal/web/client/test/harness.mjs",
	"supervisor/internal/vt/README.md", "supervisor/internal/session/README.md", "supervisor/internal/keeper/README.md", "supervisor/internal/past/README.md",
	"proxy/internal/handoff/README.md", "proxy/internal/apiserver/README.md", dockerfile}

// monitored are the dashboard of Grafana and the alert rules of Prometheus.
var monitored = []string{"dashboard.json", "alerts.yaml"}

// dockerfile is the path of the Dockerfile of a gate. In an archive it is at the top, because the archive is its context.
const dockerfile = "scripts/release/Dockerfile"

// layout returns the files of a target's archive: bin, share, and texts. The tree can be unpacked
// into /usr/local, and Homebrew uses it unchanged.
func (r *release) layout(t target, notices []byte) ([]file, error) {
	l := fileList{files: []file{{"NOTICES.txt", notices, 0o644}}}
	for _, name := range programs {
		exe := r.program(t, name)
		l.read("bin/"+filepath.Base(exe), exe, 0o755)
		l.read("share/bash-completion/completions/"+name, r.completion(name, "bash"), 0o644)
		l.read("share/zsh/site-functions/_"+name, r.completion(name, "zsh"), 0o644)
		l.read("share/fish/vendor_completions.d/"+name+".fish", r.completion(name, "fish"), 0o644)
	}
	pages, err := r.pages()
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		l.read("share/man/man1/"+filepath.Base(page), page, 0o644)
	}
	for _, name := range monitored {
		l.read("share/holdfast/"+name, filepath.Join(r.root, "scripts", "release", "monitoring", name), 0o644)
	}
	guides, err := r.guides()
	if err != nil {
		return nil, err
	}
	for _, text := range append(slices.Clone(texts), guides...) {
		l.read(text, filepath.Join(r.root, filepath.FromSlash(text)), 0o644)
		f := &l.files[len(l.files)-1]
		f.path, f.data = shown(text, f.data)
	}
	slices.SortFunc(l.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return l.files, l.err
}

func (r *release) completion(program, shell string) string {
	return filepath.Join(r.work, program+"."+shell)
}

func (r *release) pages() ([]string, error) {
	return filepath.Glob(filepath.Join(r.work, "man", "*.1"))
}

// guides returns the paths of the files in .github/docs: the guides, and the programs that they show.
func (r *release) guides() (all []string, err error) {
	err = fs.WalkDir(os.DirFS(r.root), ".github/docs", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all = append(all, name)
		}
		return err
	})
	return all, err
}

// shown returns the path that a text has in an archive, and the text with its links adapted. Files
// of .github, such as the guides, are in docs, because a name with a dot would hide them.
func shown(path string, data []byte) (string, []byte) {
	if path == dockerfile {
		return "Dockerfile", data
	}
	if name, ok := strings.CutPrefix(path, ".github/docs/"); ok {
		const top = "](\x00" // stands for the top of the tree while links to .github change
		for _, pair := range [][2]string{{"](../../", top}, {"](../", "]("}, {top, "](../"}} {
			data = bytes.ReplaceAll(data, []byte(pair[0]), []byte(pair[1]))
		}
		return "docs/" + name, data
	}
	if strings.HasPrefix(path, ".github/") {
		data = bytes.ReplaceAll(data, []byte("](docs/"), []byte("]("))
	}
	for _, pair := range [][2]string{{"](.github/docs/", "](docs/"}, {"](.github/", "](docs/"}, {"/../.github/docs/", "/../docs/"}} {
		data = bytes.ReplaceAll(data, []byte(pair[0]), []byte(pair[1]))
	}
	if name, ok := strings.CutPrefix(path, ".github/"); ok {
		return "docs/" + name, data
	}
	return path, data
}
