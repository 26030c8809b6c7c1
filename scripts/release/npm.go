package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// clientDir is the directory of the npm client.
var clientDir = filepath.Join("proxy", "internal", "web", "client")

// npmSystems are the targets that npm packages exist for, with the names that Node has for them. There are no
// terminals on Windows yet, so there is no package for it.
var npmSystems = map[target]npmSystem{
	{"linux", "amd64"}:  {"linux", "x64"},
	{"linux", "arm64"}:  {"linux", "arm64"},
	{"darwin", "amd64"}: {"darwin", "x64"},
	{"darwin", "arm64"}: {"darwin", "arm64"},
}

// An npmSystem has the values of process.platform and process.arch.
type npmSystem struct{ platform, arch string }

// name returns the name of the package with the programs. The module programs.ts of the client requires it.
func (s npmSystem) name() string { return "@holdfast/" + s.platform + "-" + s.arch }

// npm makes the npm package of the client. It depends on the packages with the programs: npm installs the one for its
// system, and no other. The packages have no scripts that npm would run. A snapshot omits the packages if the tools
// that build the client are not installed.
func (r *release) npm(ctx context.Context) error {
	dir := filepath.Join(r.root, clientDir)
	if r.lacksNPM() {
		fmt.Println("without the npm packages, for which npm ci in " + filepath.ToSlash(clientDir) + " installs the tools")
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, "dist")); err != nil { // it may have files of sources that are gone
		return err
	}
	if _, err := command(ctx, dir, nil, "npm", "run", "--silent", "build"); err != nil {
		return err
	}
	description, err := r.npmDescription(dir)
	if err != nil {
		return err
	}
	files := []file{{"package.json", description, 0o644}}
	err = filepath.WalkDir(filepath.Join(dir, "dist"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, file{filepath.ToSlash(name), data, 0o644})
		return err
	})
	if err != nil {
		return err
	}
	l := fileList{files: files}
	l.read("README.md", filepath.Join(dir, "README.md"), 0o644)
	return r.npmPackage("holdfast", l)
}

func (r *release) lacksNPM() bool {
	_, err := os.Stat(filepath.Join(r.root, clientDir, "node_modules", "typescript"))
	return r.snapshot && errors.Is(err, fs.ErrNotExist)
}

// npmDescription returns package.json of the client, with the version of the release and the packages with the
// programs. It omits the fields that only the tree needs.
func (r *release) npmDescription(dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return nil, err
	}
	var d map[string]json.RawMessage // the order within the fields matters: Node takes the first condition that is true
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("package.json: %w", err)
	}
	programs := map[string]string{}
	for _, s := range npmSystems {
		programs[s.name()] = r.bare
	}
	fields := map[string]any{"name": "holdfast", "version": r.bare, "optionalDependencies": programs}
	r.addRepository(fields)
	for name, value := range fields {
		if d[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"private", "scripts", "devDependencies"} {
		delete(d, name)
	}
	return indented(d)
}

// addRepository adds the repository to the fields of a package. npm refuses a package with an attestation, unless the
// package names the repository of the attestation.
func (r *release) addRepository(fields map[string]any) {
	if r.repository != "" {
		fields["repository"] = map[string]string{"type": "git", "url": "git+" + r.repository + ".git"}
	}
}

// npmPrograms makes the npm package with the programs of a target.
func (r *release) npmPrograms(t target, notices []byte) error {
	s, isThere := npmSystems[t]
	if !isThere || r.lacksNPM() {
		return nil
	}
	fields := map[string]any{
		"name": s.name(), "version": r.bare, "license": "Apache-2.0", "os": []string{s.platform}, "cpu": []string{s.arch},
		"description": "The programs of Holdfast for " + s.platform + " " + s.arch + ". The package holdfast starts them.",
	}
	r.addRepository(fields)
	description, err := indented(fields)
	if err != nil {
		return err
	}
	l := fileList{files: []file{{"package.json", description, 0o644}, {"NOTICES.txt", notices, 0o644}}}
	for _, name := range programs {
		l.read("bin/"+name, r.program(t, name), 0o755)
	}
	return r.npmPackage(s.name(), l)
}

// npmPackage writes a package, with the licence, under the file name that npm pack gives it.
func (r *release) npmPackage(name string, l fileList) error {
	l.read("LICENSE", filepath.Join(r.root, "LICENSE"), 0o644)
	if l.err != nil {
		return l.err
	}
	slices.SortFunc(l.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	name = strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-")
	return r.pack(name+"-"+r.bare+".tgz", writeTar, "package", l.files)
}

func indented(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	return append(text, '\n'), err
}
