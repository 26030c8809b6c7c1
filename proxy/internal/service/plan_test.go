package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A desk is a user's home with a fake manager.
type desk struct {
	t     *testing.T
	host  Host
	spec  Spec
	shows string // the manager's output about the unit
	fails string // the command that fails, or ""; "show" and "print" fail without output
	ran   []string
}

func newDesk(t *testing.T, goos string) *desk {
	d := &desk{t: t, spec: Spec{Program: "/usr/bin/proxy", Proxy: "proxy"}}
	d.host = hostOf(goos, testkit.Dir(t))
	d.host.Run = func(_ context.Context, argv ...string) (string, error) {
		text := strings.ReplaceAll(strings.Join(argv, " "), d.host.Env("HOME"), "~")
		asks := slices.Contains(argv, "show") || slices.Contains(argv, "print")
		if !asks {
			d.ran = append(d.ran, text)
		}
		if d.fails != "" && strings.Contains(text, d.fails) || asks && goos == "darwin" && strings.HasSuffix(text, "proxy") && d.shows == "" {
			return "", errors.New("no")
		}
		return d.shows, nil
	}
	return d
}

// do makes a plan and executes it, and returns its steps and commands in order.
func (d *desk) do(install bool, o Options) (did []string, err error) {
	d.t.Helper()
	d.ran = nil
	plan := d.host.Uninstall
	if install {
		plan = d.host.Install
	}
	p, err := plan(d.t.Context(), d.spec, o)
	if err != nil {
		return nil, err
	}
	if len(d.ran) > 0 {
		d.t.Errorf("the plan has run %q before it was executed", d.ran)
	}
	err = p.Do(d.t.Context(), func(s Step) {
		for _, l := range append([]string{s.Text}, s.Details...) {
			did = append(did, strings.ReplaceAll(l, d.host.Env("HOME"), "~"))
		}
	})
	return did, err
}

func (d *desk) is(got []string, err error, want ...string) {
	d.t.Helper()
	if err != nil || !slices.Equal(got, want) {
		d.t.Errorf("the steps are %q, %v, want %q", got, err, want)
	}
}

const (
	unitPath = "~/.config/systemd/user/holdfast.service"
	running  = "ActiveState=active\nUnitFileState=enabled\nMainPID=7\nKillMode=process\n"
)

func TestSystemd(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "linux")
	now := Options{Now: true}
	did, err := d.do(true, now)
	d.is(did, err, "write "+unitPath, "systemctl --user daemon-reload", "systemctl --user enable "+unitPath, "systemctl --user start holdfast.service")
	if want := []string{"systemctl --user daemon-reload", "systemctl --user enable " + unitPath, "systemctl --user start holdfast.service"}; !slices.Equal(d.ran, want) {
		t.Errorf("run %q", d.ran)
	}
	u, _ := d.host.Unit(d.spec)
	if fi, err := os.Stat(u.Path); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", fi, err)
	}

	d.shows = running
	did, err = d.do(true, now)
	d.is(did, err, unitPath+" is up to date", "systemctl --user daemon-reload", "systemctl --user enable "+unitPath)

	d.spec.Program = "/opt/new/proxy"
	did, err = d.do(true, now)
	d.is(did, err, "rewrite "+unitPath,
		"- ExecStart=/usr/bin/proxy --handoff --foreground", "- ExecReload=/usr/bin/proxy --handoff",
		"+ ExecStart=/opt/new/proxy --handoff --foreground", "+ ExecReload=/opt/new/proxy --handoff",
		"systemctl --user daemon-reload", "systemctl --user enable "+unitPath, "systemctl --user reload holdfast.service")
	if left, _ := os.ReadDir(filepath.Dir(u.Path)); len(left) != 1 {
		t.Errorf("files remain: %v", left)
	}

	st, err := d.host.Status(t.Context(), d.spec)
	if err != nil || st.File != FileOurs || !st.Running() || !st.Enabled || st.PID != 7 || st.Manager != "" {
		t.Errorf("status %+v, %v", st, err)
	}

	d.shows = strings.Replace(running, "=process", "=control-group", 1)
	if did, err := d.do(false, now); !errors.Is(err, ErrEnds) || did != nil {
		t.Errorf("a stop that ends sessions: %q, %v", did, err)
	}
	did, err = d.do(false, Options{})
	d.is(did, err, "systemctl --user disable holdfast.service", "remove "+unitPath, "systemctl --user daemon-reload")

	d.shows = running
	if _, err := d.do(true, Options{}); err != nil {
		t.Fatal(err)
	}
	did, err = d.do(false, now)
	d.is(did, err, "systemctl --user stop holdfast.service", "systemctl --user disable holdfast.service", "remove "+unitPath, "systemctl --user daemon-reload")
	did, err = d.do(false, now)
	d.is(did, err)
}

// Beside the unit of a package, the user's own unit takes precedence, which the plan tells. Uninstall removes it
// again.
func TestPackaged(t *testing.T) {
	t.Parallel()
	const packaged = "/usr/lib/systemd/user/holdfast.service"
	d := newDesk(t, "linux")
	d.shows = running + "FragmentPath=" + packaged + "\n"
	ours, _ := d.host.Unit(d.spec)
	if theirs, err := Packaged(d.spec.Program); err != nil || theirs.Path != packaged || mark+", which overwrites it.\n"+theirs.Text != strings.TrimPrefix(ours.Text, "# ") {
		t.Errorf("the package's unit is %+v, %v; ours is %+v", theirs, err, ours)
	}
	if st, err := d.host.Status(t.Context(), d.spec); err != nil || st.File != FilePackaged || st.Path != packaged || !st.Running() {
		t.Errorf("status %+v, %v", st, err)
	}
	p, err := d.host.Uninstall(t.Context(), d.spec, Options{Now: true})
	if err != nil || len(p.Steps) > 0 || p.Packaged != packaged {
		t.Errorf("without an own unit the plan is %+v, %v", p, err)
	}
	did, err := d.do(true, Options{Now: true})
	d.is(did, err, "write "+unitPath, "it takes precedence over "+packaged+", which stays as it is",
		"systemctl --user daemon-reload", "systemctl --user enable "+unitPath, "systemctl --user reload holdfast.service")

	d.shows = running + "FragmentPath=" + ours.Path + "\n"
	if st, err := d.host.Status(t.Context(), d.spec); err != nil || st.File != FileOurs || st.Path != ours.Path {
		t.Errorf("status %+v, %v", st, err)
	}
	did, err = d.do(false, Options{Now: true})
	d.is(did, err, "systemctl --user stop holdfast.service", "systemctl --user disable holdfast.service", "remove "+unitPath, "systemctl --user daemon-reload")
}

func TestLaunchd(t *testing.T) {
	t.Parallel()
	const path, target = "~/Library/LaunchAgents/dev.holdfast.proxy.plist", "gui/501/dev.holdfast.proxy"
	d := newDesk(t, "darwin")
	did, err := d.do(true, Options{Now: true})
	d.is(did, err, "write "+path, "launchctl enable "+target, "launchctl bootstrap gui/501 "+path)
	d.shows = "dev.holdfast.proxy = {\n\tstate = running\n\tpid = 7\n\t\tpid = 8\n}\n"
	did, err = d.do(true, Options{Now: true})
	d.is(did, err, path+" is up to date", "launchctl enable "+target)
	if st, err := d.host.Status(t.Context(), d.spec); err != nil || !st.Running() || st.PID != 7 {
		t.Errorf("status %+v, %v", st, err)
	}
	d.shows = "dev.holdfast.proxy = {\n\tstate = not running\n}\n"
	did, err = d.do(true, Options{Now: true})
	d.is(did, err, path+" is up to date", "launchctl enable "+target, "launchctl kickstart "+target)
	d.spec.Program = "/opt/new/proxy"
	did, err = d.do(true, Options{Now: true})
	d.is(did, err, "rewrite "+path, "- \t\t<string>/usr/bin/proxy</string>", "+ \t\t<string>/opt/new/proxy</string>",
		"launchctl enable "+target, "launchctl bootout "+target, "launchctl bootstrap gui/501 "+path)
	did, err = d.do(false, Options{Now: true})
	d.is(did, err, "launchctl bootout "+target, "remove "+path)
}

// Without a manager the files are written or removed, and the remaining commands are returned.
func TestNoManager(t *testing.T) {
	t.Parallel()
	for goos, ask := range map[string]string{"linux": "show", "darwin": "print"} {
		d := newDesk(t, goos)
		d.fails = ask
		did, err := d.do(true, Options{Now: true})
		var left *LeftError
		if !errors.As(err, &left) || len(did) != 1 || len(d.ran) > 0 || len(left.Commands) == 0 {
			t.Errorf("%s: the steps are %q, the commands %q, %v", goos, did, d.ran, err)
		}
		u, _ := d.host.Unit(d.spec)
		if text, exists, err := read(u.Path); !exists || err != nil || text != u.Text {
			t.Errorf("%s: %q, %v", goos, text, err)
		}
		if goos == "linux" {
			wants := filepath.Join(filepath.Dir(u.Path), "default.target.wants")
			testkit.Must(t, errors.Join(os.Mkdir(wants, 0o700), os.Symlink(u.Path, filepath.Join(wants, u.Name)), os.Symlink("/x", filepath.Join(wants, "x.service"))))
			defer func() {
				if all, _ := os.ReadDir(wants); len(all) != 1 {
					t.Errorf("the links are %v", all)
				}
			}()
		}
		if st, err := d.host.Status(t.Context(), d.spec); err != nil || st.Running() || st.Manager != "no" {
			t.Errorf("%s: status %+v, %v", goos, st, err)
		}
		_, err = d.do(false, Options{Now: true})
		if errors.As(err, &left) && slices.ContainsFunc(left.Commands, func(c string) bool { return strings.Contains(c, "disable") }) {
			t.Errorf("%s: the remaining commands are %q, although the link was removed", goos, left.Commands)
		}
		if _, e := os.Stat(u.Path); !errors.As(err, &left) || !os.IsNotExist(e) || len(d.ran) > 0 {
			t.Errorf("%s: removed with %v, %v; the commands are %q", goos, err, e, d.ran)
		}
	}
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "linux")
	d.fails = " enable"
	_, err := d.do(true, Options{Now: true})
	var failed *FailedError
	if !errors.As(err, &failed) || !strings.HasSuffix(failed.Command, unitPath[1:]) || len(d.ran) != 2 {
		t.Errorf("%v; the commands are %q", err, d.ran)
	}
}

// A file of another author, and any link, stays unchanged unless the plan is forced.
func TestForeign(t *testing.T) {
	t.Parallel()
	const theirs = "[Service]\nExecStart=/usr/bin/true\n"
	for _, make := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte(theirs), 0o600) },
		func(path string) error { return os.Symlink("/dev/null", path) }, // a masked unit
	} {
		d := newDesk(t, "linux")
		u, _ := d.host.Unit(d.spec)
		testkit.Must(t, errors.Join(os.MkdirAll(filepath.Dir(u.Path), 0o700), make(u.Path)))
		before, _ := os.Lstat(u.Path)
		for _, install := range []bool{true, false} {
			if did, err := d.do(install, Options{Now: true}); !errors.Is(err, ErrForeign) || did != nil {
				t.Errorf("install %v: %q, %v", install, did, err)
			}
		}
		if st, err := d.host.Status(t.Context(), d.spec); err != nil || st.File != FileForeign {
			t.Errorf("status %+v, %v", st, err)
		}
		if after, err := os.Lstat(u.Path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%v became %v, %v", before, after, err)
		}
		if _, err := d.do(true, Options{Force: true}); err != nil {
			t.Error(err)
		}
		if text, _, err := read(u.Path); text != u.Text || err != nil {
			t.Errorf("forced: %q, %v", text, err)
		}
	}
}
