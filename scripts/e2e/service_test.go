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

// fakeSystemctl appends its arguments to a file, and answers show with the contents of another file. Without
// that file it fails as if no manager ran.
const fakeSystemctl = `#!/bin/sh
echo "$@" >>"$FAKE_DIR/asked"
[ -e "$FAKE_DIR/knows" ] || { echo 'Failed to connect to bus' >&2; exit 1; }
case "$*" in *" show "*) exec cat "$FAKE_DIR/knows" ;; esac
[ ! -e "$FAKE_DIR/refuses" ] || { echo 'it is refused' >&2; exit 1; }
`

// A home is a world with a home directory and a fake service manager.
type home struct {
	*world
	unit string // the unit's path
}

func newHome(t *testing.T) *home {
	w := newWorld(t)
	dir := testkit.Dir(t)
	w.Env = append(w.Env, "HOME="+dir, "FAKE_DIR="+dir, "PATH="+dir+":/usr/bin:/bin")
	testkit.WriteProgram(t, filepath.Join(dir, "systemctl"), []byte(fakeSystemctl))
	h := &home{world: w}
	h.unit = filepath.Join(dir, ".config/systemd/user", h.status().Unit)
	return h
}

// file returns the path of one of the fake's files.
func (h *home) file(name string) string {
	return filepath.Join(filepath.Dir(h.unit), "../../..", name)
}

// knows sets the manager's answer.
func (h *home) knows(state string) {
	h.T.Helper()
	testkit.Must(h.T, os.WriteFile(h.file("knows"), []byte(state), 0o600))
}

// asked returns the requests to the manager since the last call, without requests for the state.
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

// A serviceStatus is the output of proxy service status --json.
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

// The command must make the manager do the necessary steps, and must not change units that Holdfast did not
// install.
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
			t.Errorf("the requests to the manager were %q, want %q", got, want)
		}
	}
	exits(64, "", "start")
	exits(0, "ExecStart=", "install", "--print")
	exits(0, "systemctl --user enable", "install", "--dry-run")
	if all, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(h.unit))), "*")); len(all) > 0 || len(h.Running("")) > 0 {
		t.Errorf("the dry run has made %v and started %v", all, h.Running(""))
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
		t.Errorf("install through a link: %v", r)
	}
	was("daemon-reload", "enable FILE", "reload UNIT")

	h.knows("ActiveState=active\nMainPID=1\nKillMode=control-group\n")
	exits(75, "KillMode", "uninstall")
	h.knows("ActiveState=active\nMainPID=1\nKillMode=process\n")
	exits(0, "the supervisor and its sessions continue", "uninstall")
	was("stop UNIT", "disable UNIT", "daemon-reload")
	if _, err := os.Stat(h.unit); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit file after uninstall: %v", err)
	}
	exits(0, "there is no", "uninstall")
	was()

	testkit.Must(t, os.WriteFile(h.unit, []byte("[Service]\n"), 0o644))
	exits(73, "--force", "install")
	exits(73, "--force", "uninstall")
	was()
	testkit.Must(t, os.WriteFile(h.file("refuses"), nil, 0o600))
	exits(71, "it is refused", "install", "--force")
	was("daemon-reload")
	if now := h.Only("proxy"); now != proxy {
		t.Errorf("the proxy was %v; now it is %v", proxy, now)
	}
}

// link makes the world use its programs through symbolic links in a directory, and returns the link of the
// proxy.
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

// verify checks the unit with systemd-analyze, if it is installed.
func (h *home) verify() {
	h.T.Helper()
	cmd := exec.CommandContext(h.ctx(), "systemd-analyze", "verify", "--user", h.unit)
	cmd.Env = append(h.Env, "XDG_RUNTIME_DIR="+h.Dir)
	if out, err := cmd.CombinedOutput(); !errors.Is(err, exec.ErrNotFound) && (err != nil || len(out) > 0) {
		h.T.Errorf("systemd-analyze: %v, %s", err, out)
	}
}

// insideEnv tells the test's program that it runs inside the namespaces of within.
const insideEnv = "E2E_SYSTEMD"

// within runs a command in namespaces where a systemd of its own can run. Process ids are separate, so that all
// processes end with the command. Mounts and control groups are separate too; the control groups are below the
// current one. systemd runs only if /run/systemd/system exists.
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

// An installed unit must take over from the running proxy, must be replaced by a reload, must start again
// after a kill, and must be removed by uninstall. One shell must survive all of it.
func TestServiceUnderSystemd(t *testing.T) { ofItsOwn(t, underSystemd) }

// ofItsOwn runs a test inside namespaces where it can start a systemd, or skips it.
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
			t.Skipf("systemd is not installed: %v", err)
		}
	}
	exe, err := os.Executable()
	testkit.Must(t, err)
	script := filepath.Join(testkit.Dir(t), "within")
	testkit.WriteProgram(t, script, []byte("#!/bin/sh"+within))
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

// cgroup returns the control group of a process.
func cgroup(p process) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return string(b)
}

// systemctl sends a request to the real manager.
func (w *world) systemctl(args ...string) (string, error) {
	cmd := exec.CommandContext(w.ctx(), "systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = w.Env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// newManager starts a systemd for the world's user, or skips the test.
func (w *world) newManager() {
	home := testkit.Dir(w.T)
	w.Env = append(w.Env, "HOME="+home, "XDG_RUNTIME_DIR="+home)
	cmd := exec.Command(systemdPath, "--user")
	cmd.Env = append(slices.DeleteFunc(slices.Clone(w.Env), func(e string) bool { return strings.HasPrefix(e, "HOLDFAST_") }), "SYSTEMD_LOG_TARGET=console")
	log, err := os.Create(filepath.Join(home, "log"))
	testkit.Must(w.T, err)
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
	w.Must("proxy", "start") // starts proxy and supervisor; the clients of this test start none, because they would at any time
	v := w.echo(w.connect(client.Options{Name: "e2e"}), "s")
	before, held := w.Only("proxy"), w.Only("supervisor")
	// If the kernel kills one shell because memory is short, the other sessions must survive.
	scope := filepath.Base(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(cgroup(held)), "/holdfast")))
	if out, err := w.systemctl("show", "--property=Delegate,OOMPolicy", scope); err != nil || !strings.Contains(out, "Delegate=yes") || strings.Contains(out, "OOMPolicy=stop") {
		t.Errorf("the supervisor's scope %s: %q, %v", scope, out, err)
	}

	// Each session has a control group of its own in the supervisor's scope.
	if in, shell := cgroup(held), cgroup(lookup(w.info("s").PID)); !strings.Contains(in, scope+"/holdfast\n") || !strings.Contains(shell, scope+"/session-") {
		t.Errorf("the supervisor is in %q, a session in %q", in, shell)
	}

	w.Must("proxy", "service", "install")
	w.Gone(before)
	s := w.status()
	if !s.Active || !s.Enabled || s.File != "ours" || s.PID == 0 || s.PID != s.Serving {
		t.Fatalf("the status after install is %+v", s)
	}
	v.ask("it took over\n")

	again := func(what string) {
		t.Helper()
		old := s
		testkit.Eventually(t, limit, func() bool { s = w.status(); return s.Active && s.PID == s.Serving && s.PID != old.PID }, what+": the unit runs another proxy")
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
		t.Errorf("a second install changed the status %+v to %+v", same, s)
	}
	lookup(s.PID).Signal(syscall.SIGKILL)
	again("kill")

	main := lookup(s.PID)
	w.Must("proxy", "service", "uninstall")
	w.Gone(main)
	if out, err := w.systemctl("show", "--property=LoadState", s.Unit); out != "LoadState=not-found" || err != nil {
		t.Errorf("the unit after uninstall: %s, %v", out, err)
	}
	w.Must("proxy", "ls") // ls starts a proxy
	v.ask("and without a unit\n")
	if now := w.Holder("supervisor.sock"); now != held.PID {
		t.Errorf("the supervisor was process %d; now it is %d", held.PID, now)
	}
	w.Must("proxy", "stop")
	w.Must("supervisor", "stop", "--sessions=end")

	// A supervisor that the unit's proxy starts must not belong to the unit. The manager does not use this
	// XDG_CONFIG_HOME to find the unit.
	w.Env = append(w.Env, "XDG_CONFIG_HOME="+testkit.Dir(t))
	w.link("a 'b $HOME 100%h")
	if r := w.Run("proxy", "service", "install"); r.Code != 64 || !strings.Contains(r.Errout, "quote") {
		t.Errorf("install with a path that systemd does not accept: %v", r)
	}
	link := w.link("a ; b $HOME ${HOME} 100%h ü")
	w.Must("proxy", "service", "install")
	s = w.status()
	if args := list(s.PID, "cmdline"); args[0] != link || s.PID != s.Serving {
		t.Errorf("the unit runs %q, %+v", args, s)
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
		t.Errorf("the next supervisor is in %s, a child of %d; want %s, a child of %d", now, next.Parent(), group, keeper.PID)
	}
	held = next
	if out, err := w.systemctl("stop", s.Unit); err != nil || w.status().Active || !held.Running() {
		t.Errorf("stop of the unit: %s, %v", out, err)
	}
	w.Must("proxy", "ls")
	v.ask("and after a stop\n")
	w.Must("proxy", "service", "uninstall")
}
