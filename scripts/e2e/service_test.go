//go:build linux

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// fakeSystemctl writes down what it is asked, and knows of a unit what stands in
// a file; without that file it does not answer.
const fakeSystemctl = `#!/bin/sh
echo "$@" >>"$FAKE_DIR/asked"
[ -e "$FAKE_DIR/knows" ] || { echo 'Failed to connect to bus' >&2; exit 1; }
case "$*" in *" show "*) exec cat "$FAKE_DIR/knows" ;; esac
[ ! -e "$FAKE_DIR/refuses" ] || { echo 'it is refused' >&2; exit 1; }
`

// A home is a world with a home directory, whose service manager is a fake.
type home struct {
	*world
	unit string // the unit's path
}

func newHome(t *testing.T) *home {
	w := newWorld(t)
	dir := testkit.Dir(t)
	w.Env = append(w.Env, "HOME="+dir, "FAKE_DIR="+dir, "PATH="+dir+":/usr/bin:/bin")
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(fakeSystemctl), 0o700); err != nil {
		t.Fatal(err)
	}
	h := &home{world: w}
	h.unit = filepath.Join(dir, ".config/systemd/user", h.status().Unit)
	return h
}

// file returns the path of one of the fake's files.
func (h *home) file(name string) string {
	return filepath.Join(filepath.Dir(h.unit), "../../..", name)
}

// knows makes the manager answer.
func (h *home) knows(state string) {
	h.T.Helper()
	if err := os.WriteFile(h.file("knows"), []byte(state), 0o600); err != nil {
		h.T.Fatal(err)
	}
}

// asked returns what the manager was asked since the last time, but for how
// things are.
func (h *home) asked() (all []string) {
	b, _ := os.ReadFile(h.file("asked"))
	_ = os.Remove(h.file("asked"))
	for l := range strings.Lines(string(b)) {
		if l = strings.TrimPrefix(strings.TrimSpace(l), "--user "); !strings.HasPrefix(l, "show ") {
			all = append(all, strings.NewReplacer(h.unit, "FILE", filepath.Base(h.unit), "UNIT").Replace(l))
		}
	}
	return all
}

// A serviceStatus is what proxy service status --json prints.
type serviceStatus struct {
	Unit, Path, File string
	Active, Enabled  bool
	PID              int
	Serving          int `json:"serving_pid"`
}

func (w *world) status() (s serviceStatus) {
	w.T.Helper()
	r := w.Run("proxy", "service", "status", "--json")
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil || (r.Code == 0) != (s.File != "none" && s.Active) {
		w.T.Fatalf("%v, %v", err, r)
	}
	return s
}

// The command has the manager do what is due, and touches nothing of others.
func TestService(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	exits := func(want int, says string, args ...string) {
		t.Helper()
		r := h.Run("proxy", append([]string{"service"}, args...)...)
		if r.Code != want || !strings.Contains(r.Out+r.Errout, says) {
			t.Errorf("%v: %v, want exit %d and %q", args, r, want, says)
		}
	}
	was := func(want ...string) {
		t.Helper()
		if got := h.asked(); !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	exits(64, "", "start")
	exits(0, "ExecStart=", "install", "--print")
	exits(0, "systemctl --user enable", "install", "--dry-run")
	if all, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(h.unit))), "*")); len(all) > 0 || len(h.Running("")) > 0 {
		t.Errorf("made %v, runs %v", all, h.Running(""))
	}

	exits(69, "systemctl --user start", "install") // no manager answers
	was()
	h.knows("ActiveState=inactive\nMainPID=0\nKillMode=process\n")
	exits(0, "is up to date", "install")
	was("daemon-reload", "enable FILE", "start UNIT")
	h.verify()
	want := fmt.Sprintf("\nExecStart=%s --handoff --foreground --dir %s\nExecReload=%s --handoff --dir %s\n", h.Program("proxy"), h.Dir, h.Program("proxy"), h.Dir)
	if b, err := os.ReadFile(h.unit); err != nil || !strings.Contains(string(b), want) {
		t.Errorf("%v, %s\nwant %s", err, b, want)
	}

	h.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	proxy := h.Only("proxy")
	exits(69, fmt.Sprintf("pid %d, not of the unit", proxy.PID), "status")
	h.knows(fmt.Sprintf("ActiveState=active\nUnitFileState=enabled\nMainPID=%d\nKillMode=process\n", proxy.PID))
	exits(0, fmt.Sprintf("pid %d, the unit's", proxy.PID), "status")
	was()

	link := h.link("bin")
	if r := h.Run("proxy", "service", "install"); r.Code != 0 || !strings.Contains(r.Out, "+ ExecReload="+link+" --handoff") {
		t.Errorf("by a link: %v", r)
	}
	was("daemon-reload", "enable FILE", "reload UNIT")

	h.knows("ActiveState=active\nMainPID=1\nKillMode=control-group\n")
	exits(75, "KillMode", "uninstall")
	h.knows("ActiveState=active\nMainPID=1\nKillMode=process\n")
	exits(0, "the supervisor and its sessions continue", "uninstall")
	was("stop UNIT", "disable UNIT", "daemon-reload")
	if _, err := os.Stat(h.unit); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit: %v", err)
	}
	exits(0, "there is no", "uninstall")
	was()

	if err := os.WriteFile(h.unit, []byte("[Service]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	exits(73, "--force", "install")
	exits(73, "--force", "uninstall")
	was()
	if err := os.WriteFile(h.file("refuses"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	exits(71, "it is refused", "install", "--force")
	was("daemon-reload")
	if now := h.Only("proxy"); now != proxy {
		t.Errorf("the proxy was %v, and is %v", proxy, now)
	}
}

// link has the world's programs called by links, and returns that of the proxy.
func (w *world) link(dir string) string {
	w.T.Helper()
	bin := filepath.Join(testkit.Dir(w.T), dir)
	if err := errors.Join(os.Mkdir(bin, 0o700), os.Symlink(w.Program("proxy"), filepath.Join(bin, "proxy")),
		os.Symlink(w.Program("supervisor"), filepath.Join(bin, "supervisor"))); err != nil {
		w.T.Fatal(err)
	}
	w.Bin = bin
	return w.Program("proxy")
}

// verify has systemd read the unit, if it is there.
func (h *home) verify() {
	h.T.Helper()
	cmd := exec.CommandContext(h.ctx(), "systemd-analyze", "verify", "--user", h.unit)
	cmd.Env = append(h.Env, "XDG_RUNTIME_DIR="+h.Dir)
	if out, err := cmd.CombinedOutput(); !errors.Is(err, exec.ErrNotFound) && (err != nil || len(out) > 0) {
		h.T.Errorf("systemd-analyze: %v, %s", err, out)
	}
}

// insideEnv makes TestServiceUnderSystemd the one that runs within.
const insideEnv = "E2E_SYSTEMD"

// within runs a command where a systemd that is all ours can run: process 1 and
// its kin are others, so that all ends with the command, and so are the mounts
// and the control groups, below the one that we are in. systemd runs only where
// it seems to have booted.
const within = `
set -e
unified() { mount --make-rprivate /; umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; }
case $1 in
out) shift
	exec unshare --mount --fork "$0" group "$@" ;;
group) shift
	unified
	own=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
	mine=$own/holdfast-e2e-$$
	mkdir "$mine"
	trap 'echo $$ >"$own/cgroup.procs"; find "$mine" -depth -type d -exec rmdir {} \;' EXIT
	echo $$ >"$mine/cgroup.procs"
	unshare --mount --cgroup --pid --fork --kill-child --mount-proc "$0" in "$@" ;;
in) shift
	unified
	[ -d /run/systemd/system ] || { mount -t tmpfs none /run; mkdir -p /run/systemd/system; }
	"$@" ;;
esac
`

// A unit that is installed takes over from the proxy that runs, is replaced by a
// reload, comes back when it is killed, and goes, and one shell sees it all.
func TestServiceUnderSystemd(t *testing.T) { ofItsOwn(t, underSystemd) }

// ofItsOwn runs a test where it can have a systemd of its own.
func ofItsOwn(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		test(t)
		return
	}
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a systemd of its own needs namespaces, which need root")
	}
	for _, program := range []string{"unshare", "systemctl", "systemd-run", systemdPath} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no systemd that could be asked: %v", err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(testkit.Dir(t), "within")
	if err := os.WriteFile(script, []byte("#!/bin/sh"+within), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script, "out", exe, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("--- PASS: "+t.Name())):
	case !bytes.Contains(out, []byte("=== RUN")) || bytes.Contains(out, []byte("--- SKIP")):
		t.Skipf("no systemd of its own runs here: %v\n%s", err, out)
	default:
		t.Errorf("%v\n%s", err, out)
	}
}

const systemdPath = "/lib/systemd/systemd"

// cgroup is the control group of a process.
func cgroup(p process) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return string(b)
}

// systemctl asks the real manager.
func (w *world) systemctl(args ...string) (string, error) {
	cmd := exec.CommandContext(w.ctx(), "systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = w.Env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// newManager starts a systemd for the world's user.
func (w *world) newManager() {
	home := testkit.Dir(w.T)
	w.Env = append(w.Env, "HOME="+home, "XDG_RUNTIME_DIR="+home)
	cmd := exec.Command(systemdPath, "--user")
	cmd.Env = append(slices.DeleteFunc(slices.Clone(w.Env), func(e string) bool { return strings.HasPrefix(e, "HOLDFAST_") }), "SYSTEMD_LOG_TARGET=console")
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		w.T.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	ended := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		w.T.Skip(err)
	}
	go func() { ended <- cmd.Wait() }()
	w.T.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); <-ended })
	up := eventually(func() bool { _, err := w.systemctl("show", "--property=Version"); return err == nil || len(ended) > 0 })
	if !up || len(ended) > 0 {
		b, _ := os.ReadFile(log.Name())
		w.T.Skipf("systemd --user does not run: %s", b)
	}
}

func underSystemd(t *testing.T) {
	w := newWorld(t)
	w.newManager()
	w.Must("proxy", "start") // starts both: no client does, or one would at any time
	v := w.echo(w.connect(client.Options{Name: "e2e"}), "s")
	before, held := w.Only("proxy"), w.Only("supervisor")
	// One shell that the kernel kills for memory must not cost all others.
	scope := filepath.Base(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(cgroup(held)), "/holdfast")))
	if out, err := w.systemctl("show", "--property=Delegate,OOMPolicy", scope); err != nil || !strings.Contains(out, "Delegate=yes") || strings.Contains(out, "OOMPolicy=stop") {
		t.Errorf("the supervisor's scope %s: %q, %v", scope, out, err)
	}

	// Each session is alone in a cgroup of its own there.
	if in, shell := cgroup(held), cgroup(lookup(w.info("s").PID)); !strings.Contains(in, scope+"/holdfast\n") || !strings.Contains(shell, scope+"/session-") {
		t.Errorf("the supervisor is in %q, a session in %q", in, shell)
	}

	w.Must("proxy", "service", "install")
	w.Gone(before)
	s := w.status()
	if !s.Active || !s.Enabled || s.File != "ours" || s.PID == 0 || s.PID != s.Serving {
		t.Fatalf("installed: %+v", s)
	}
	v.ask("it took over\n")

	again := func(what string) {
		t.Helper()
		old := s
		testkit.Eventually(t, limit, func() bool { s = w.status(); return s.Active && s.PID == s.Serving && s.PID != old.PID }, what+": the unit has another proxy")
		v.ask("and after a " + what + "\n")
		if enabled, err := w.systemctl("is-enabled", s.Unit); enabled != "enabled" || err != nil {
			t.Errorf("%s, %v", enabled, err)
		}
	}
	if out, err := w.systemctl("reload", s.Unit); err != nil {
		t.Fatalf("reload: %v, %s", err, out)
	}
	again("reload")
	same := s
	w.Must("proxy", "service", "install")
	if s = w.status(); s != same {
		t.Errorf("a second install: %+v became %+v", same, s)
	}
	lookup(s.PID).Signal(syscall.SIGKILL)
	again("kill")

	main := lookup(s.PID)
	w.Must("proxy", "service", "uninstall")
	w.Gone(main)
	if out, err := w.systemctl("show", "--property=LoadState", s.Unit); out != "LoadState=not-found" || err != nil {
		t.Errorf("uninstalled: %s, %v", out, err)
	}
	w.Must("proxy", "ls") // starts one
	v.ask("and without a unit\n")
	if now := w.Holder("supervisor.sock"); now != held.PID {
		t.Errorf("supervisor %d became %d", held.PID, now)
	}
	w.Must("proxy", "stop")
	w.Must("supervisor", "stop", "--sessions=end")

	// A supervisor that the unit starts does not belong to it; and the manager
	// does not look where the unit lies by what is set here.
	w.Env = append(w.Env, "XDG_CONFIG_HOME="+testkit.Dir(t))
	w.link("a 'b $HOME 100%h")
	if r := w.Run("proxy", "service", "install"); r.Code != 64 || !strings.Contains(r.Errout, "quote") {
		t.Errorf("a path that systemd does not take: %v", r)
	}
	link := w.link("a ; b $HOME ${HOME} 100%h ü")
	w.Must("proxy", "service", "install")
	s = w.status()
	if args := list(s.PID, "cmdline"); args[0] != link || s.PID != s.Serving {
		t.Errorf("run as %q, %+v", args, s)
	}
	if out, err := w.systemctl("reload", s.Unit); err != nil || w.status().PID == s.PID {
		t.Errorf("reload: %v, %s", err, out)
	}
	v = w.echo(w.connect(client.Options{Name: "e2e"}), "t")
	held = lookup(w.Holder("supervisor.sock"))
	w.T.Cleanup(func() { held.Signal(syscall.SIGTERM); w.Gone(held) })
	group, keeper := cgroup(held), lookup(held.Parent())
	if group != cgroup(keeper) || strings.Contains(group, s.Unit) || !strings.Contains(group, ".scope") {
		t.Errorf("the supervisor is in %s, its keeper in %s", group, cgroup(keeper))
	}
	next := w.KillSupervisor()
	v.ask("and after the supervisor's death\n")
	if now := cgroup(next); next.Parent() != keeper.PID || now != group {
		t.Errorf("the next supervisor is in %s, a child of %d; it was in %s, of %d", now, next.Parent(), group, keeper.PID)
	}
	held = next
	if out, err := w.systemctl("stop", s.Unit); err != nil || w.status().Active || !held.Running() {
		t.Errorf("stopped: %s, %v", out, err)
	}
	w.Must("proxy", "ls")
	v.ask("and after a stop\n")
	w.Must("proxy", "service", "uninstall")
}
