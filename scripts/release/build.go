package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// build builds the programs of a target.
func (r *release) build(ctx context.Context, t target) error {
	env := append([]string{"GOOS=" + t.os, "GOARCH=" + t.arch}, plain...)
	for _, name := range programs {
		args := append([]string{"build", "-o", r.program(t, name)}, r.flags()...)
		if _, err := command(ctx, r.root, env, "go", append(args, "./"+name)...); err != nil {
			return err
		}
	}
	return nil
}

// document has builds of the programs that know how (build tag manual) write
// their pages, and print the completions, which are alike on all systems.
func (r *release) document(ctx context.Context) error {
	env := append([]string{
		"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, fmt.Sprint("SOURCE_DATE_EPOCH=", r.date.Unix()),
	}, plain...)
	if err := os.MkdirAll(filepath.Join(r.work, "man"), 0o755); err != nil {
		return err
	}
	for _, name := range programs {
		exe := filepath.Join(r.work, "manual", name)
		if runtime.GOOS == "windows" {
			exe += ".exe"
		}
		args := append([]string{"build", "-tags", "manual", "-o", exe}, r.flags()...)
		if _, err := command(ctx, r.root, env, "go", append(args, "./"+name)...); err != nil {
			return err
		}
		if _, err := command(ctx, r.work, env, exe, "manual", filepath.Join(r.work, "man")); err != nil {
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
