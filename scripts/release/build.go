package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// programs are the packages that are released, and their names.
var programs = []string{"proxy", "supervisor"}

// plain is an environment in which nothing that a person has set changes what is
// built. The Go itself may differ; the SBOM says which one it was.
var plain = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0"}

// flags leave out paths, git's state, which a copied tree lacks, and what only
// debuggers need; stack traces keep their names and lines.
func (r *release) flags() []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X holdfast/shared/version.version=" + r.version}
}

func (r *release) binDir(t target) string { return filepath.Join(r.work, "bin", t.os, t.arch) }

func (r *release) program(t target, name string) string {
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.binDir(t), name)
}

// build builds the programs of a target into a directory.
func (r *release) build(ctx context.Context, t target, dir string, more ...string) error {
	args := slices.Concat([]string{"build", "-o", dir + string(filepath.Separator)}, r.flags(), more)
	for _, name := range programs {
		args = append(args, "./"+name)
	}
	_, err := command(ctx, r.root, append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, plain...), "go", args...)
	return err
}

// document has builds of the programs that know how (build tag manual) write
// their pages and the unit of the Debian package, and print the completions. All
// are alike on all systems.
func (r *release) document(ctx context.Context) error {
	dir := filepath.Join(r.work, "manual")
	if err := r.build(ctx, target{runtime.GOOS, runtime.GOARCH}, dir, "-tags", "manual"); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(r.work, "man"), 0o755); err != nil {
		return err
	}
	date := []string{fmt.Sprint("SOURCE_DATE_EPOCH=", r.date.Unix())}
	for _, name := range programs {
		exe := filepath.Join(dir, name) // Windows finds it without its .exe
		if _, err := command(ctx, r.work, date, exe, "manual", filepath.Join(r.work, "man")); err != nil {
			return err
		}
		for _, shell := range []string{"bash", "zsh", "fish"} {
			out, err := command(ctx, r.work, nil, exe, "completion", shell)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(r.work, name+"."+shell), out, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
