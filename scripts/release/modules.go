package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A module is one that is in a program, as the program itself says.
type module struct {
	path, version, sum string
	dir                string // in the module cache
}

func (m module) String() string { return m.path + "@" + m.version }

// contents are the modules of each program of a target.
type contents struct {
	all      []module            // in order, each once
	programs map[string][]module // by program
	goes     string              // the Go that built them: go1.26.0
	goRoot   string
}

// modules reads what was linked out of the programs: go.mod has more.
func (r *release) modules(ctx context.Context, t target) (*contents, error) {
	c := &contents{programs: map[string][]module{}}
	seen := map[module]bool{}
	for _, name := range programs {
		info, err := buildinfo.ReadFile(r.program(t, name))
		if err != nil {
			return nil, err
		}
		c.goes = info.GoVersion
		for _, dep := range info.Deps {
			if dep.Replace != nil {
				return nil, fmt.Errorf("%s is replaced in go.mod: a release is made of modules that others can have", dep.Path)
			}
			m := module{path: dep.Path, version: dep.Version, sum: dep.Sum}
			c.programs[name] = append(c.programs[name], m)
			seen[m] = true
		}
	}
	c.all = slices.SortedFunc(maps.Keys(seen), func(a, b module) int { return strings.Compare(a.path, b.path) })
	return c, r.locate(ctx, c)
}

// locate finds the sources of the modules, and of Go.
func (r *release) locate(ctx context.Context, c *contents) error {
	root, err := command(ctx, r.root, plain, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	c.goRoot = strings.TrimSpace(string(root))
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, m := range c.all {
		args = append(args, m.path)
	}
	out, err := command(ctx, r.root, plain, "go", args...)
	if err != nil {
		return err
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	for i := range c.all {
		if c.all[i].dir = dirs[c.all[i].path]; c.all[i].dir == "" {
			return fmt.Errorf("the source of %s is not there: go mod download", c.all[i])
		}
	}
	return nil
}

// licence returns the texts under which a source is ours to pass on, and its
// SPDX id, or "" where that is not plain to see.
func licence(dir string) (id string, texts []byte, err error) {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if errors.Is(err, fs.ErrNotExist) || strings.HasSuffix(name, ".go") {
				continue
			}
			if err != nil {
				return "", nil, err
			}
			if pattern != "NOTICE*" {
				id = joined(id, spdx(text))
			}
			texts = append(append(texts, bytes.TrimSpace(text)...), "\n\n"...)
		}
	}
	if texts == nil {
		return "", nil, fmt.Errorf("%s has no licence: it cannot be passed on", dir)
	}
	return id, texts, nil
}

// joined is the id of two licences: none where they differ, for only a person
// can tell what that means.
func joined(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return unknown
}

const unknown = "NOASSERTION"

// marks are words that one licence has, and none before it in the list.
var marks = []struct{ id, words string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"BSD-3-Clause", "endorse or promote products derived from"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
}

// spdx knows a licence by its words; a text that has those of two is unknown,
// but for the BSD ones, of which the longer says all that the shorter does.
func spdx(text []byte) string {
	plain := strings.Join(strings.Fields(string(text)), " ")
	found := ""
	for _, m := range marks {
		switch {
		case !strings.Contains(plain, m.words) || m.id == found || found == "BSD-3-Clause" && m.id == "BSD-2-Clause":
		case found != "":
			return unknown
		default:
			found = m.id
		}
	}
	if found == "" {
		return unknown
	}
	return found
}

// notices are the licences of what is linked into the programs, whose authors
// want them to go along.
func (r *release) notices(c *contents) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "Holdfast's programs contain the following, under these licences.\n")
	add := func(name, dir string) error {
		_, texts, err := licence(dir)
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s", name, strings.Repeat("=", len(name)), texts)
		return err
	}
	err := add("Go's runtime and standard library", c.goRoot)
	for _, m := range c.all {
		err = errors.Join(err, add(m.String(), m.dir))
	}
	err = errors.Join(err, r.pageNotices(&out))
	return out.Bytes(), err
}
