//go:build unix

package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

func TestResolve(t *testing.T) {
	home := map[string]string{"HOME": "/h"}
	xdg := map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "/run/user/1", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c/"}
	wd, err := os.Getwd()
	testkit.Must(t, err)
	for _, tt := range []struct {
		name, goos, flag string
		env              map[string]string
		want             Dirs
	}{
		{"home", "linux", "", home, Dirs{"/h/.local/state/holdfast/run", "/h/.local/state/holdfast", "/h/.config/holdfast"}},
		{"XDG", "linux", "", xdg, Dirs{"/run/user/1/holdfast", "/s/holdfast", "/c/holdfast"}},
		{"relative XDG is ignored", "linux", "", map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "r", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "c"},
			Dirs{"/h/.local/state/holdfast/run", "/h/.local/state/holdfast", "/h/.config/holdfast"}},
		{"no HOME", "linux", "", nil, Dirs{"/p/.local/state/holdfast/run", "/p/.local/state/holdfast", "/p/.config/holdfast"}},
		{"macOS", "darwin", "", home, Dirs{
			"/h/Library/Application Support/holdfast/run", "/h/Library/Application Support/holdfast", "/h/Library/Application Support/holdfast"}},
		{"HOLDFAST_DIR", "linux", "", map[string]string{"HOLDFAST_DIR": "/d", "XDG_RUNTIME_DIR": "/r"}, Dirs{"/d", "/d", "/d"}},
		{"--dir over HOLDFAST_DIR", "linux", "/e/", map[string]string{"HOLDFAST_DIR": "/d"}, Dirs{"/e", "/e", "/e"}},
		{"--dir made absolute", "linux", "x", nil, Dirs{wd + "/x", wd + "/x", wd + "/x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sys := system{goos: tt.goos, uid: os.Geteuid(), home: func() string { return "/p" }}
			if got, err := sys.resolve(tt.flag, getenv(tt.env)); err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	unknown := system{goos: "linux", uid: os.Geteuid(), home: func() string { return "" }}
	if got, err := unknown.resolve("", getenv(nil)); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("resolve without HOME: %+v, %v; want an error", got, err)
	}
}

// A user must have one runtime directory, with a login's environment and without it, and daemons in another
// runtime directory must be found.
func TestOnePlacePerUser(t *testing.T) {
	base := testkit.Dir(t)
	users, home := filepath.Join(base, "user"), filepath.Join(base, "home")
	own := filepath.Join(users, strconv.Itoa(os.Geteuid()))
	xdg, other := filepath.Join(own, "holdfast"), filepath.Join(base, "other")
	old := filepath.Join(home, ".local/state/holdfast/run")
	for _, dir := range []string{xdg, old, other} {
		testkit.Must(t, os.MkdirAll(dir, 0o700))
	}
	s := system{goos: "linux", uid: os.Geteuid(), users: users, home: func() string { return home }}
	login := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": own}
	cron := map[string]string{"HOME": home}
	serve := func(dir string) (stop func()) {
		t.Helper()
		ln, err := socket.Listen(filepath.Join(dir, SupervisorSocket), socket.Options{})
		testkit.Must(t, err)
		return func() { _ = ln.Close() }
	}
	expect := func(name, want string, elsewhere ...string) {
		t.Helper()
		for _, env := range []map[string]string{login, cron, nil, {"XDG_RUNTIME_DIR": "relative"}} {
			d, err := s.resolve("", getenv(env))
			if err != nil || d.Runtime != want {
				t.Errorf("%s, environment %v: %s, %v, want %s", name, env, d.Runtime, err, want)
			}
			if got := s.elsewhere(d, "", getenv(env)); !slices.Equal(got, elsewhere) {
				t.Errorf("%s, environment %v: elsewhere %q, want %q", name, env, got, elsewhere)
			}
		}
	}

	expect("nothing runs", xdg)
	stopOld := serve(old)
	expect("a daemon from before the login runs", old)
	stopNew := serve(xdg)
	expect("daemons run in both", xdg, old)
	stopOld()
	expect("the old one has ended", xdg)

	moved := map[string]string{"HOME": home, "XDG_RUNTIME_DIR": other}
	d, err := s.resolve("", getenv(moved))
	if want := filepath.Join(other, "holdfast"); err != nil || d.Runtime != want {
		t.Errorf("XDG_RUNTIME_DIR of the user's choice: %s, %v, want %s", d.Runtime, err, want)
	}
	if got := s.elsewhere(d, "", getenv(moved)); !slices.Equal(got, []string{xdg}) {
		t.Errorf("elsewhere from that directory is %q, want %q", got, xdg)
	}
	if got := s.elsewhere(d, other, getenv(moved)); got != nil {
		t.Errorf("elsewhere is %q although the directory was given, want none", got)
	}
	stopNew()

	if os.Geteuid() == 0 { // su keeps the variable of the calling user
		testkit.Must(t, os.Chown(other, 4711, 4711))
		if d, err := s.resolve("", getenv(moved)); err != nil || d.Runtime != xdg {
			t.Errorf("XDG_RUNTIME_DIR of another user: %s, %v, want %s", d.Runtime, err, xdg)
		}
	}
	testkit.Must(t, os.Chmod(own, 0o750))
	if d, err := s.resolve("", getenv(cron)); err != nil || d.Runtime != old {
		t.Errorf("/run/user/UID is not private: %s, %v, want %s", d.Runtime, err, old)
	}
}

func TestShortFallback(t *testing.T) {
	of := func(n int) string { return "/" + strings.Repeat("x", n-1) }
	longest := socket.MaxPath - 1 - maxSocketName
	d, err := Resolve(of(longest), getenv(nil))
	if err != nil || d.Runtime != of(longest) {
		t.Errorf("the longest directory: %+v, %v", d, err)
	}
	d, err = Resolve(of(longest+1), getenv(nil))
	if want := fmt.Sprintf("/tmp/holdfast-%d-", os.Geteuid()); err != nil || !strings.HasPrefix(d.Runtime, want) || len(d.Runtime) != len(want)+8 {
		t.Errorf("a directory that is one byte too long: %+v, %v", d, err)
	}
	if d.State != of(longest+1) || d.Config != d.State {
		t.Errorf("the fallback also changed the other directories: %+v", d)
	}
	if again, _ := Resolve(of(longest+1), getenv(nil)); again != d {
		t.Errorf("the second call returns %+v", again)
	}
	if other, _ := Resolve(of(longest+2), getenv(nil)); other.Runtime == d.Runtime {
		t.Error("two directories have the same fallback")
	}
	if got := d.Socket(strings.Repeat("n", maxSocketName)); len(got) > socket.MaxPath {
		t.Errorf("%s is too long", got)
	}
}

func TestEnsure(t *testing.T) {
	base := t.TempDir()
	d := Dirs{filepath.Join(base, "a/b/run"), filepath.Join(base, "a/b"), filepath.Join(base, "c")}
	for range 2 {
		testkit.Must(t, d.Ensure())
		for _, dir := range []string{d.Runtime, d.State, d.Config, filepath.Join(base, "a")} {
			if fi, err := os.Lstat(dir); err != nil || fi.Mode() != os.ModeDir|0o700 {
				t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
			}
		}
	}

	testkit.Must(t, os.Chmod(d.Config, 0o755))
	if err := d.Ensure(); !errors.Is(err, socket.ErrUnsafeDir) || !strings.Contains(err.Error(), "chmod 700 "+d.Config) {
		t.Errorf("Ensure of a directory that others can read: %v", err)
	}
	if fi, _ := os.Stat(d.Config); fi.Mode().Perm() != 0o755 {
		t.Error("Ensure changed the mode of an existing directory")
	}

	link := filepath.Join(base, "link")
	testkit.Must(t, os.Symlink(d.State, link))
	if err := (Dirs{link, link, link}).Ensure(); !errors.Is(err, socket.ErrUnsafeDir) {
		t.Errorf("Ensure of a symbolic link: %v", err)
	}
}
