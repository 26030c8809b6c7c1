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

// A module is a module that a program lists as its dependency.
type module struct {
	path, version, sum string
	dir                string // directory in the module cache
}

func (m module) String() string { return m.path + "@" + m.version }

// contents are the modules of each program of a target.
type contents struct {
	all      []module            // sorted, each once
	programs map[string][]module // by the name of the program
	goes     string              // version of the Go that built them, such as go1.26.0
	goRoot   string
}

// modules reads the linked modules from the programs, because go.mod has more modules.
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
				return nil, fmt.Errorf("%s is replaced in go.mod: a release must consist of public modules", dep.Path)
			}
			m := module{path: dep.Path, version: dep.Version, sum: dep.Sum}
			c.programs[name] = append(c.programs[name], m)
			seen[m] = true
		}
	}
	c.all = slices.SortedFunc(maps.Keys(seen), func(a, b module) int { return strings.Compare(a.path, b.path) })
	return c, r.locate(ctx, c)
}

// locate finds the directories of the modules' sources and of Go.
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
			return fmt.Errorf("the source of %s is missing: run go mod download", c.all[i])
		}
	}
	return nil
}

// licence returns the SPDX id of the licence of the source in dir, and the texts of its licence and
// notices. The id is unknown if the texts do not have the words of exactly one licence,
// and "" if there are only notices.
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
		return "", nil, fmt.Errorf("%s has no licence: it must not be distributed", dir)
	}
	return id, texts, nil
}

// joined returns the id for two licences. If they differ, the id is unknown, because a program
// cannot decide which of them applies.
func joined(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return unknown
}

// unknown is the SPDX id for a licence that could not be identified.
const unknown = "NOASSERTION"

// marks are words that identify a licence. No licence earlier in the list contains them.
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

// spdx returns the id of a licence by its words. A text with the words of two licences is unknown,
// unless they are the BSD licences, because the longer one contains the shorter one.
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

// notices returns the licences of everything that is linked into the programs. The licences require
// that a release contains them.
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
