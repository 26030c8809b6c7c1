package shellint

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// Apply changes the argv and environment of interactive shells only, and Asked returns the argv before the change.
func TestApply(t *testing.T) {
	s := Scripts{Runtime: t.TempDir()}
	dir, err := s.install()
	testkit.Must(t, err)
	for _, tt := range []struct {
		argv, env         string
		wantArgv, wantEnv string // "" if it does not change
	}{
		{argv: "bash", wantArgv: "bash --init-file @/bash-rc"},
		{argv: "/bin/bash -i", wantArgv: "/bin/bash --init-file @/bash-rc"},
		{argv: "/bin/bash -l", wantArgv: "/bin/bash --init-file @/bash-login"},
		{argv: "bash --login -i", wantArgv: "bash --init-file @/bash-login"},
		{argv: "bash -il", wantArgv: "bash --init-file @/bash-login"},
		{argv: "zsh", env: "A=1", wantEnv: "A=1 ZDOTDIR=@/zsh"},
		{argv: "/usr/bin/zsh -l", env: "ZDOTDIR=/a HOLDFAST_ZDOTDIR=/x ZDOTDIR=/b", wantEnv: "ZDOTDIR=/a ZDOTDIR=/b HOLDFAST_ZDOTDIR=/b ZDOTDIR=@/zsh"},
		{argv: "zsh", env: "ZDOTDIR=", wantEnv: "ZDOTDIR= HOLDFAST_ZDOTDIR= ZDOTDIR=@/zsh"},
		{argv: "fish -l", wantArgv: "fish --init-command=source_'@/fish' -l"},
		{argv: "bash -l", env: "POSIXLY_CORRECT="}, {argv: "bash -c true"}, {argv: "bash script"}, {argv: "bash --norc"}, {argv: "bash --posix"}, {argv: "bash --noprofile -l"},
		{argv: "bash --rcfile f"}, {argv: "bash -lc true"}, {argv: "bash -s"}, {argv: "zsh -f"}, {argv: "zsh -ic x"}, {argv: "fish -N"},
		{argv: "sh"}, {argv: "vim"}, {argv: "make bash"}, {argv: "rbash"}, {argv: ""},
	} {
		argv, env := strings.Fields(tt.argv), strings.Fields(tt.env)
		was, wasEnv := slices.Clone(argv), slices.Clone(env)
		want := func(s string, was []string) []string {
			if s == "" {
				return was
			}
			fields := strings.Fields(strings.ReplaceAll(s, "@", dir))
			for i := range fields {
				fields[i] = strings.ReplaceAll(fields[i], "=source_", "=source ")
			}
			return fields
		}
		gotArgv, gotEnv, err := s.Apply(argv, env)
		if err != nil || !slices.Equal(gotArgv, want(tt.wantArgv, was)) || !slices.Equal(gotEnv, want(tt.wantEnv, wasEnv)) {
			t.Errorf("%s, %s: got %q, %q, %v", tt.argv, tt.env, gotArgv, gotEnv, err)
		}
		if isChanged := tt.wantArgv+tt.wantEnv != ""; Applies(was, wasEnv) != isChanged {
			t.Errorf("%s, %s: Applies is %t", tt.argv, tt.env, !isChanged)
		}
		if !slices.Equal(argv, was) || !slices.Equal(env, wasEnv) {
			t.Errorf("%s, %s: changed in place", tt.argv, tt.env)
		}
		asked := Asked(gotArgv)
		if len(was) > 0 && (asked[0] != was[0] || slices.ContainsFunc(asked[1:], isLogin) != slices.ContainsFunc(was[1:], isLogin) || strings.Contains(strings.Join(asked, " "), dir)) {
			t.Errorf("%s: Asked returned %q", tt.argv, asked)
		}
	}
}

// Asked returns an argv that Apply has not made as it is.
func TestAskedOfOthers(t *testing.T) {
	for _, argv := range [][]string{
		nil, {"bash"}, {"bash", "--init-file"}, {"bash", "--init-file", "/etc/bash-login"}, {"fish", "--init-command=source '/a/b'"}, {"a", "b", "c"},
	} {
		if got := Asked(argv); !slices.Equal(got, argv) {
			t.Errorf("Asked(%q) = %q", argv, got)
		}
	}
}

// A file that is missing or was changed is written again, and no temporary file remains.
func TestInstall(t *testing.T) {
	s := Scripts{Runtime: t.TempDir()}
	dir, err := s.install()
	testkit.Must(t, err)
	testkit.Must(t, os.Remove(filepath.Join(dir, "zsh", ".zshenv")))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "bash"), []byte("half"), 0o600))
	if again, err := s.install(); err != nil || again != dir {
		t.Fatalf("the second install: %s, %v", again, err)
	}
	var names []string
	if err := filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if fi.IsDir() {
			want = 0o700
		} else {
			names = append(names, strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(dir)+"/"))
		}
		if fi.Mode().Perm() != want && runtime.GOOS != "windows" {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"bash", "bash-login", "bash-rc", "fish", "zsh/.zshenv", "zsh/integration"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	script, err := scripts.ReadFile("scripts/bash")
	testkit.Must(t, err)
	if got, err := os.ReadFile(filepath.Join(dir, "bash")); err != nil || !bytes.Equal(got, script) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	if argv, env, err := (Scripts{Runtime: file}).Apply([]string{"zsh"}, nil); err == nil || len(argv) != 1 || env != nil {
		t.Errorf("in a directory that cannot be written: %q, %q, %v", argv, env, err)
	}
}
