package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A release must be made from a commit with a tag, or must have a version that reports the difference.
func TestLook(t *testing.T) {
	program(t, "git")
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=Some One", "-c", "user.email=one@example.org"}, args...)
		output(t, root, "git", args...)
	}
	write := func(text string) {
		testkit.Must(t, os.WriteFile(filepath.Join(root, "file"), []byte(text), 0o644))
	}
	commit := func(text string) {
		write(text)
		git("add", "file")
		git("commit", "--quiet", "--message", text)
	}
	check := func(what, version, says string, args ...string) {
		t.Helper()
		o, err := parse(append(args, "--root", root))
		testkit.Must(t, err)
		s, err := look(t.Context(), o)
		if says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: got %v, want it to say %q", what, err, says)
			}
			return
		}
		got := s.version // without the hash of the commit
		if i := strings.Index(got, ".g"); i >= 0 {
			got = got[:i] + ".g" + strings.TrimLeft(got[i+2:], "0123456789abcdef")
		}
		if err != nil || got != version {
			t.Errorf("%s: got %q, %v, want %q", what, s.version, err, version)
		}
	}
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(root))
	check("no git", "", "no git checkout")
	check("no git, no time", "", "SOURCE_DATE_EPOCH", "--snapshot", "--version", "v1.2.3")
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	check("no time", "", "seconds since 1970", "--snapshot", "--version", "v1.2.3")
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	check("no git, but all is said", "v1.2.3", "", "--snapshot", "--version", "v1.2.3")
	t.Setenv("SOURCE_DATE_EPOCH", "")

	git("init", "--quiet")
	commit("first")
	check("no tag", "", "no tag")
	check("no tag, a version", "v0.1.0", "", "--version", "v0.1.0")
	check("a snapshot before all tags", "v0.0.0", "", "--snapshot")
	git("tag", "v1.0.0-rc.1")
	check("a tag", "v1.0.0-rc.1", "")
	check("no version", "", "no version such as", "--version", "1.2")
	write("second")
	check("changes", "", "not everything is committed")
	check("changes in a snapshot", "v1.0.0-rc.1+0.g.dirty", "", "--snapshot", "--version", "v1.0.0-rc.1+0.g.dirty")
	commit("second")
	check("a snapshot", "v1.0.0-rc.1+1.g", "", "--snapshot")
	testkit.Must(t, os.WriteFile(filepath.Join(root, "new"), nil, 0o644))
	check("a file that git does not know", "", "?? new", "--version", "v1.1.0")
}

func TestDebVersion(t *testing.T) {
	program(t, "dpkg")
	last := "0"
	for _, v := range []string{"0.1.0", "1.0.0-rc.1", "1.0.0-rc.2+5.gabc", "1.0.0", "1.0.0+1.gabc", "1.0.0+10.gabc", "1.0.1-rc.1", "1.0.1"} {
		r := &release{bare: v}
		if err := exec.Command("dpkg", "--compare-versions", last, "lt", r.debVersion()).Run(); err != nil {
			t.Errorf("dpkg orders %s before %s", r.debVersion(), last)
		}
		last = r.debVersion()
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ arg, says string }{
		{"--target=plan9/mips", "there is no target"}, {"v1.2.3", "is no flag"}, {"--verbose", "not defined"},
	} {
		if _, err := parse([]string{tt.arg}); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want it to say %q", tt.arg, err, tt.says)
		}
	}
	if o, err := parse([]string{"--target", "linux/arm64,darwin/amd64"}); err != nil || len(o.targets) != 2 || o.targets[1].arch != "amd64" {
		t.Errorf("got %v, %v", o.targets, err)
	}
}

func TestEmptyDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if err := emptyDir(dir); err != nil {
			t.Error(err)
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o644))
	if err := emptyDir(dir); err == nil {
		t.Error("emptyDir accepts a directory with files")
	}
}

func TestLicence(t *testing.T) {
	const bsd2 = "Redistributions in binary form must reproduce the above\n copyright notice"
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")"
	for _, tt := range []struct {
		name, want string
		files      []string
	}{
		{"two clauses", "BSD-2-Clause", []string{bsd2}},
		{"three clauses", "BSD-3-Clause", []string{bsd2 + "; nor to endorse or promote products derived from"}},
		{"MIT", "MIT", []string{mit}},
		{"MIT and BSD in one", unknown, []string{mit + bsd2}},
		{"MIT twice", "MIT", []string{mit, mit}},
		{"two files of two kinds", unknown, []string{mit, bsd2}},
		{"another kind", unknown, []string{"Do as you please."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for i, text := range tt.files {
				testkit.Must(t, os.WriteFile(filepath.Join(dir, "LICENSE"+strings.Repeat(".txt", i)), []byte(text), 0o644))
			}
			id, texts, err := licence(dir)
			if err != nil || id != tt.want || !strings.Contains(string(texts), tt.files[len(tt.files)-1]) {
				t.Errorf("got %s, %v, want %s; texts: %q", id, err, tt.want, texts)
			}
		})
	}
	if _, _, err := licence(t.TempDir()); err == nil {
		t.Error("licence accepts a source without a licence")
	}
}

func TestPURL(t *testing.T) {
	if got, want := purl("github.com/Some/Thing", "v2.0.0+incompatible"), "pkg:golang/github.com/some/thing@v2.0.0%2Bincompatible"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
