//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/socket"
)

func TestResolve(t *testing.T) {
	home := map[string]string{"HOME": "/h"}
	xdg := map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "/run/user/1", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c/"}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, goos, flag string
		env              map[string]string
		want             Dirs
	}{
		{"home", "linux", "", home, Dirs{"/h/.local/state/holdfast/run", "/h/.local/state/holdfast", "/h/.config/holdfast"}},
		{"XDG", "linux", "", xdg, Dirs{"/run/user/1/holdfast", "/s/holdfast", "/c/holdfast"}},
		{"relative XDG is ignored", "linux", "", map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "r", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "c"},
			Dirs{"/h/.local/state/holdfast/run", "/h/.local/state/holdfast", "/h/.config/holdfast"}},
		{"macOS", "darwin", "", home, Dirs{
			"/h/Library/Application Support/holdfast/run", "/h/Library/Application Support/holdfast", "/h/Library/Application Support/holdfast"}},
		{"HOLDFAST_DIR", "linux", "", map[string]string{"HOLDFAST_DIR": "/d", "XDG_RUNTIME_DIR": "/r"}, Dirs{"/d", "/d", "/d"}},
		{"--dir over HOLDFAST_DIR", "linux", "/e/", map[string]string{"HOLDFAST_DIR": "/d"}, Dirs{"/e", "/e", "/e"}},
		{"--dir made absolute", "linux", "x", nil, Dirs{wd + "/x", wd + "/x", wd + "/x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := resolve(tt.goos, tt.flag, getenv(tt.env)); err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	if got, err := resolve("linux", "", getenv(nil)); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("without anything: %+v, %v", got, err)
	}
}

func TestShortFallback(t *testing.T) {
	of := func(n int) string { return "/" + strings.Repeat("x", n-1) }
	longest := socket.MaxPath - 1 - maxSocketName
	d, err := Resolve(of(longest), getenv(nil))
	if err != nil || d.Runtime != of(longest) {
		t.Errorf("it just fits: %+v, %v", d, err)
	}
	d, err = Resolve(of(longest+1), getenv(nil))
	if want := fmt.Sprintf("/tmp/holdfast-%d-", os.Geteuid()); err != nil || !strings.HasPrefix(d.Runtime, want) || len(d.Runtime) != len(want)+8 {
		t.Errorf("one byte more: %+v, %v", d, err)
	}
	if d.State != of(longest+1) || d.Config != d.State {
		t.Errorf("the other directories moved: %+v", d)
	}
	if again, _ := Resolve(of(longest+1), getenv(nil)); again != d {
		t.Errorf("another time: %+v", again)
	}
	if other, _ := Resolve(of(longest+2), getenv(nil)); other.Runtime == d.Runtime {
		t.Error("two directories share a fallback")
	}
	if got := d.Socket(strings.Repeat("n", maxSocketName)); len(got) > socket.MaxPath {
		t.Errorf("%s is too long", got)
	}
}

func TestEnsure(t *testing.T) {
	base := t.TempDir()
	d := Dirs{filepath.Join(base, "a/b/run"), filepath.Join(base, "a/b"), filepath.Join(base, "c")}
	for range 2 {
		if err := d.Ensure(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{d.Runtime, d.State, d.Config, filepath.Join(base, "a")} {
			if fi, err := os.Lstat(dir); err != nil || fi.Mode() != os.ModeDir|0o700 {
				t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
			}
		}
	}

	if err := os.Chmod(d.Config, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Ensure(); !errors.Is(err, socket.ErrUnsafeDir) || !strings.Contains(err.Error(), "chmod 700 "+d.Config) {
		t.Errorf("open to others: %v", err)
	}
	if fi, _ := os.Stat(d.Config); fi.Mode().Perm() != 0o755 {
		t.Error("it was mended")
	}

	link := filepath.Join(base, "link")
	if err := os.Symlink(d.State, link); err != nil {
		t.Fatal(err)
	}
	if err := (Dirs{link, link, link}).Ensure(); !errors.Is(err, socket.ErrUnsafeDir) {
		t.Errorf("a link: %v", err)
	}
}
