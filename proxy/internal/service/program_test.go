package service

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func TestProgram(t *testing.T) {
	dir := testkit.Dir(t)
	exe, link := filepath.Join(dir, "cellar/1.2/proxy"), filepath.Join(dir, "bin/proxy")
	temp := filepath.Join(dir, "go-build12/b001/exe/proxy")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(exe), 0o700), os.MkdirAll(filepath.Dir(link), 0o700), os.MkdirAll(filepath.Dir(temp), 0o700),
		os.WriteFile(exe, nil, 0o700), os.Symlink(exe, link), os.WriteFile(temp, nil, 0o700),
		os.WriteFile(filepath.Join(dir, "other"), nil, 0o700),
	); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	for _, tt := range []struct{ name, called, want string }{
		{"by its path", exe, exe},
		{"by a link", link, link},
		{"from the PATH", "proxy", link},
		{"from here", "./bin/../bin/proxy", link},
		{"by a name of the caller's", "-hf", exe},
		{"by another program's path", filepath.Join(dir, "other"), exe},
	} {
		if got, err := Program(tt.called, exe); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if got, err := Program(temp, temp); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("go run: %q, %v", got, err)
	}
}
