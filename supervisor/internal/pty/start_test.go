//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

func TestStart(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	path := "PATH=" + os.Getenv("PATH")
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"size", Spec{Argv: []string{"stty", "size"}, Env: []string{path}, Cols: 132, Rows: 43}, "43 132\n"},
		{"arguments", Spec{Argv: []string{"printf", "%s.", "a b", ""}, Env: []string{path}, Cols: 1, Rows: 1}, "a b.."},
		{"directory", Spec{Argv: []string{"pwd"}, Dir: dir, Env: []string{path}, Cols: 80, Rows: 24}, dir + "\n"},
		{"environment", Spec{Argv: []string{"/usr/bin/env"}, Env: []string{"B=2", "A=1 \n"}, Cols: 80, Rows: 24}, "B=2\nA=1 \n\n"},
		{"no environment", Spec{Argv: []string{"/usr/bin/env"}, Cols: 80, Rows: 24}, ""},
		{"streams are the terminal", script(`test -t 0 -a -t 1 -a -t 2 && echo yes >/dev/tty`), "yes\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := run(t, tt.spec)
			if got := rest(t, p); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := ended(t, p); got != (Status{}) {
				t.Errorf("got status %+v, want success", got)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	testkit.Must(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600))
	tests := []struct {
		name string
		edit func(*Spec)
		want error
	}{
		{"no such program", func(s *Spec) { s.Argv[0] = "no-such-program" }, fs.ErrNotExist},
		{"no such path", func(s *Spec) { s.Argv[0] = dir + "/none" }, fs.ErrNotExist},
		{"not executable", func(s *Spec) { s.Argv[0] = file }, fs.ErrPermission},
		{"not executable in PATH", func(s *Spec) { s.Argv[0] = "file"; s.Env = []string{"PATH=" + dir} }, fs.ErrPermission},
		{"program is a directory", func(s *Spec) { s.Argv[0] = dir }, fs.ErrPermission},
		{"no such directory", func(s *Spec) { s.Dir = dir + "/none" }, fs.ErrNotExist},
		{"directory is a file", func(s *Spec) { s.Dir = file }, unix.ENOTDIR},
		{"no program", func(s *Spec) { s.Argv = nil }, unix.EINVAL},
		{"zero in argument", func(s *Spec) { s.Argv[1] = "a\x00b" }, unix.EINVAL},
		{"no columns", func(s *Spec) { s.Cols = 0 }, errBadSize},
		{"too many rows", func(s *Spec) { s.Rows = 1 << 16 }, errBadSize},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := script("exit")
			tt.edit(&spec)
			_, err := Start(spec)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if err != nil && spec.Dir != "" && strings.Count(err.Error(), spec.Dir) > 1 {
				t.Errorf("the error names the directory twice: %v", err)
			}
		})
	}
}

// The program is searched as the child would: with its PATH and its directory.
func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a/tool": 0o600, "b/tool": 0o700, "c/tool": 0o700} {
		path := filepath.Join(dir, name)
		testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, mode)))
	}
	tests := []struct{ name, program, dir, path, want string }{
		{"first that may be run", "tool", "", dir + "/a:" + dir + "/c:" + dir + "/b", "c/tool"},
		{"relative element", "tool", dir, "none:b", "b/tool"},
		{"empty element", "tool", dir + "/b", "", "b/tool"},
		{"relative program", "b/tool", dir, "", "b/tool"},
		{"absolute program", dir + "/b/tool", "/", "", "b/tool"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := Spec{Argv: []string{tt.program}, Dir: tt.dir, Env: []string{"PATH=" + tt.path + ":", "PATH=/second/is/ignored"}}
			got, err := lookPath(spec)
			if want := filepath.Join(dir, tt.want); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
}

// At whatever step no descriptor is free, Start fails with ErrExhausted and leaves none open.
func TestExhausted(t *testing.T) {
	p := run(t, asRole("exhausted", ""))
	if got, want := rest(t, p), "in the end it starts\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func exhaustedRole() error {
	const limit = 64
	// A first start, because the runtime panics if it cannot set up its netpoller.
	p, err := Start(script("exit"))
	if err != nil {
		return err
	}
	<-p.Done()
	if err := p.Close(); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	for {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
	}
	for free := range limit {
		before := openFiles(limit)
		p, err := Start(script("exit"))
		if err == nil {
			<-p.Done()
			fmt.Println("in the end it starts")
			return p.Close()
		}
		if !errors.Is(err, ErrExhausted) {
			return fmt.Errorf("with %d free: %w", free, err)
		}
		if now := openFiles(limit); now > before {
			return fmt.Errorf("with %d free: %d files are open, %d were", free, now, before)
		}
		if err := unix.Close(limit - 1 - free); err != nil {
			return err
		}
	}
	return errors.New("no start succeeds")
}

func openFiles(limit int) (n int) {
	for fd := range limit {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}
