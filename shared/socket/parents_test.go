//go:build unix

package socket

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// CheckParents must find each directory or link above a path that another user could replace.
func TestCheckParents(t *testing.T) {
	base := testkit.Dir(t)
	path := filepath.Join(base, "a", "b", "hf")
	byLink := filepath.Join(base, "links", "b", "hf")
	must := func(errs ...error) {
		t.Helper()
		testkit.Must(t, errors.Join(errs...))
	}
	must(os.MkdirAll(path, 0o700), os.Mkdir(filepath.Join(base, "links"), 0o700), os.Symlink("../a/b", filepath.Join(base, "links", "b")),
		os.Symlink("loop", filepath.Join(base, "loop")))
	dir := func(name string) string { return filepath.Join(base, name) }
	const other, sticky = 12345, fs.ModeSticky
	for _, tt := range []struct {
		name  string
		path  string
		spoil string      // the directory of base that is changed,
		mode  fs.FileMode // its mode, or 0 for no change,
		owner int         // its owner and group, or -1 for no change
		group int
		weak  string // the path in the error, or "" for no error
	}{
		{"ours alone", path, "a", 0o700, -1, -1, ""},
		{"others may read", path, "a", 0o755, -1, -1, ""},
		{"the directory itself is not judged here", path, "a/b/hf", 0o777, -1, -1, ""},
		{"others may write", path, "a", 0o707, -1, -1, "a"},
		{"right above", path, "a/b", 0o703, -1, -1, "a/b"},
		{"sticky", path, "a", 0o777 | sticky, -1, -1, ""},
		{"a group may write", path, "a", 0o770, -1, other, "a"},
		{"another user's", path, "a", 0o755, other, -1, "a"},
		{"another user's, sticky", path, "a", 0o777 | sticky, other, -1, "a"},
		{"by a link", byLink, "links", 0o700, -1, -1, ""},
		{"by a link that others may replace", byLink, "links", 0o777, -1, -1, "links"},
		{"by another user's link", byLink, "links/b", 0, other, -1, "links/b"},
		{"by a link to what others may write", byLink, "a", 0o777, -1, -1, "a"},
		{"what is not there yet", filepath.Join(base, "new", "dir"), "a", 0o777, -1, -1, ""},
		{"what is not there yet, below", filepath.Join(base, "a", "new", "dir"), "a", 0o777, -1, -1, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if os.Geteuid() != 0 && (tt.owner >= 0 || tt.group >= 0) {
				t.Skip("only root can give a file away")
			}
			at := dir(tt.spoil)
			if tt.mode != 0 {
				must(os.Chmod(at, tt.mode))
			}
			must(os.Lchown(at, tt.owner, tt.group))
			defer func() { must(os.Lchown(at, os.Geteuid(), os.Getegid()), os.Chmod(at, 0o700)) }()
			err := CheckParents(tt.path)
			var weak *WeakError
			switch {
			case tt.weak == "" && err != nil:
				t.Errorf("got %v", err)
			case tt.weak != "" && (!errors.As(err, &weak) || weak.Path != dir(tt.weak) || !errors.Is(err, ErrUnsafeDir) || weak.Foreign != (tt.owner >= 0)):
				t.Errorf("got %v, want an error that names %s", err, dir(tt.weak))
			}
		})
	}
	if err := CheckParents(filepath.Join(base, "loop", "x", "y")); err == nil || errors.Is(err, ErrUnsafeDir) {
		t.Errorf("CheckParents of a link to itself: %v", err)
	}
	if err := CheckParents("a/b"); err == nil {
		t.Error("CheckParents accepts a relative path")
	}
}

// A group is private if both files name no other user in it.
func TestPrivateGroup(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n"
	for _, tt := range []struct {
		name, passwd, groups string
		want                 bool
	}{
		{"a group for each user", passwd, "ann:x:1000:\n", true},
		{"the user named as a member", passwd, "ann:x:1000:ann\n", true},
		{"another member", passwd, "ann:x:1000:www\n", false},
		{"another user's primary group, too", passwd + "bob:x:1001:1000::/:/bin/sh\n", "ann:x:1000:\n", false},
		{"a group of many", passwd, "users:x:1000:\n", false},
		{"not the primary group", strings.ReplaceAll(passwd, "1000:1000", "1000:100"), "ann:x:1000:\n", false},
		{"of a directory service", "", "", false},
		{"broken", passwd, "ann:x:1000\n", false},
	} {
		if got := isPrivateGroup(tt.passwd, tt.groups, "ann", 1000); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The advice in an error about a directory must be harmless.
func TestAdviceAboutDirectories(t *testing.T) {
	base := testkit.Dir(t)
	made := func(name string, mode fs.FileMode, file string) string {
		dir := filepath.Join(base, name)
		testkit.Must(t, errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)))
		if file != "" {
			testkit.Must(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		}
		return dir
	}
	file := filepath.Join(made("files", 0o700, "passwd"), "passwd")
	for _, tt := range []struct {
		name, dir string
		chmod     bool
	}{
		{"empty", made("empty", 0o755, ""), true},
		{"ours", made("ours", 0o755, "supervisor.sock.lock"), true},
		{"ours by name", made("holdfast", 0o755, "holdfast.json"), true},
		{"somebody's files", made("etc", 0o755, "hosts"), false},
		{"as /tmp", made("tmp", 0o777|fs.ModeSticky, ""), false},
		{"as /tmp, with our socket", made("tmp2", 0o777|fs.ModeSticky, "proxy.sock.lock"), false},
		{"a file", file, false},
	} {
		err := CheckDir(tt.dir)
		if !errors.Is(err, ErrUnsafeDir) || strings.Contains(err.Error(), "chmod") != tt.chmod || strings.Contains(err.Error(), "remove") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
