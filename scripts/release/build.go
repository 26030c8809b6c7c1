package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// programs are the names of the released programs and of their packages.
var programs = []string{"holdfast", "proxy", "supervisor"}

// sources has the package of a program that is not the directory of its name.
var sources = map[string]string{"holdfast": "proxy/holdfast"}

// plain overrides the variables of the user's environment that would change the programs. The
// version of Go may still differ; the SBOM names it.
var plain = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0"}

// flags returns the flags of go build. They omit paths, the state of git, because a copied tree
// lacks it, and the tables that only debuggers need. Stack traces keep names and lines.
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
		args = append(args, "./"+cmp.Or(sources[name], name))
	}
	_, err := command(ctx, r.root, append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, plain...), "go", args...)
	return err
}

// document builds the programs with the build tag manual and runs them to write the man pages, the
// unit of the Debian package and the completions. These files are the same on all systems.
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
		exe := filepath.Join(dir, name) // Windows adds .exe itself
		writer := exe
		if name == "holdfast" { // proxy has all commands of holdfast, and names them as those of the program that is called
			writer = filepath.Join(dir, "called", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(writer), 0o755), os.Link(filepath.Join(dir, "proxy"), writer)); err != nil {
				return err
			}
		}
		if name != "proxy" { // its commands have the pages of holdfast
			if _, err := command(ctx, r.work, date, writer, "manual", filepath.Join(r.work, "man")); err != nil {
				return err
			}
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
