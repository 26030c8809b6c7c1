package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// secrets are variables in a launcher's environment that a shell must not receive.
var secrets = []string{
	"GITHUB_TOKEN=ghp_secret", "npm_config_registry=https://secret", "npm_lifecycle_event=secret", "ELECTRON_RUN_AS_NODE=1",
	"NOTIFY_SOCKET=/run/secret", "LISTEN_FDS=1", "LISTEN_PID=1", "INVOCATION_ID=secret", "NODE_OPTIONS=--secret",
	"XDG_ACTIVATION_TOKEN=secret", "AWS_SECRET_ACCESS_KEY=secret", "HTTPS_PROXY=http://user:secret@proxy",
}

// launchers start the first program of a world in the way of a careless application.
var launchers = []struct{ name, program, flag string }{
	{"supervisor", "supervisor", "--background"},
	{"proxy", "proxy", "serve"},
}

// A child must get descriptors 0, 1 and 2 alone, no ignored or blocked signal, and no secret, however the
// program that started Holdfast was started itself.
func TestCleanChildren(t *testing.T) {
	t.Parallel()
	for _, tt := range launchers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := testkit.Dir(t)
			secret := filepath.Join(dir, "secret")
			testkit.Must(t, os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600))
			w := newWorld(t, append([]string{"HOLDFAST_SECRET_FILE=" + secret, "LC_ALL=C.UTF-8", "NO_COLOR=1"}, secrets...)...)
			w.startCareless(tt.program, tt.flag)
			c := w.dial(client.Options{Secret: "0123456789abcdef0123456789abcdef"})
			w.echo(c, "s").ask("cat runs") // now the child has opened and closed the files that it needs to start
			info, err := c.SessionInfo(w.ctx(), "s")
			testkit.Must(t, err)
			checkClean(t, info.PID)
			checkEnv(t, environ(info.PID), dir)
		})
	}
}

// startCareless starts a program with open descriptors, ignored signals and blocked signals, and waits until
// the supervisor serves.
func (w *world) startCareless(program, arg string) {
	w.T.Helper()
	cmd := w.Command(program, arg)
	// The shell ignores the signals and executes the program.
	cmd.Path = "/bin/sh"
	cmd.Args = []string{"sh", "-c", `trap '' HUP INT QUIT TERM PIPE USR1 TSTP TTIN TTOU CHLD; exec "$0" "$@"`, w.Program(program), arg}
	for range 5 {
		r, wr, err := os.Pipe()
		testkit.Must(w.T, err)
		defer r.Close()
		defer wr.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, r, wr)
	}
	// A child inherits the signal mask of the thread that forks it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.Sigset_t
	blocked := unix.Sigset_t{Val: [16]uint64{1<<(unix.SIGUSR2-1) | 1<<(unix.SIGTERM-1) | 1<<(unix.SIGWINCH-1)}}
	testkit.Must(w.T, unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &old))
	d := w.Start(cmd)
	testkit.Must(w.T, unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil))
	testkit.Eventually(w.T, limit, func() bool {
		_, err := os.Stat(w.Path("supervisor.sock"))
		return err == nil
	}, "the supervisor serves")
	if len(fds(d.PID)) < 10 {
		w.T.Fatal("the launched program has no leaked descriptors, so the test would check nothing")
	}
}

// checkClean checks the descriptors, signals and groups of a session's child from outside.
func checkClean(t *testing.T, pid int) {
	t.Helper()
	tty := ""
	for fd, to := range fds(pid) {
		if fd > 2 || !strings.HasPrefix(to, "/dev/pts/") {
			t.Errorf("descriptor %d of the child is %s", fd, to)
		}
		tty = to
	}
	if n := len(fds(pid)); n != 3 || tty == "" {
		t.Errorf("the child has %d descriptors, want 3 on a terminal", n)
	}
	for _, name := range []string{"SigBlk", "SigIgn"} {
		if mask := strings.Trim(status(pid, name), "0"); mask != "" {
			t.Errorf("%s is %s", name, mask)
		}
	}
	if f := testkit.StatFields(pid); f[3] != f[2] || f[2] != itoa(pid) { // session, process group
		t.Errorf("child %d is in process group %s of session %s", pid, f[2], f[3])
	}
}

// checkEnv checks that a child's environment contains no secret, no internal variable, and the variables that
// each session gets.
func checkEnv(t *testing.T, env []string, hidden string) {
	t.Helper()
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if strings.Contains(value, "secret") || strings.Contains(value, hidden) ||
			strings.HasPrefix(name, "HOLDFAST_") && name != "HOLDFAST_SESSION" && name != "HOLDFAST_INSTANCE" && name != "HOLDFAST_DIR" {
			t.Errorf("the child's environment contains %s", e)
		}
	}
	for _, s := range secrets {
		if slices.Contains(env, s) {
			t.Errorf("the child's environment contains %s", s)
		}
	}
	for _, want := range []string{"TERM=xterm-256color", "COLORTERM=truecolor", "HOLDFAST_SESSION=s", "LC_ALL=C.UTF-8", "NO_COLOR=1"} {
		if !slices.Contains(env, want) {
			t.Errorf("the child's environment lacks %s", want)
		}
	}
}

// A session that the command line starts must get the user's environment without the secrets.
func TestCleanEnvOfCLI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "start")
	plain := w.Env
	w.Env = append(append([]string{"EDITOR=ed", "LC_ALL=C.UTF-8", "NO_COLOR=1"}, plain...), secrets...)
	w.Must("proxy", "new", "-d", "--id", "s", "--env", "GITHUB_TOKEN=meant", "--", "sleep", "1000")
	w.Env = plain
	info, err := w.dial(client.Options{}).SessionInfo(w.ctx(), "s")
	testkit.Must(t, err)
	// The shell may not have executed sleep yet. Both have the same environment.
	env := environ(info.PID)
	if !slices.Contains(env, "GITHUB_TOKEN=meant") || !slices.Contains(env, "EDITOR=ed") {
		t.Errorf("the environment lacks GITHUB_TOKEN or EDITOR: %q", env)
	}
	checkEnv(t, env, "/run/secret")
}

// A client may ask for a session that inherits no environment.
// demand: R1
func TestClearedEnv(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "EDITOR=ed")
	spec := shell("echo ready; exec cat")
	spec.ClearInheritedEnv, spec.Env = true, []string{"ONLY=this"}
	c := w.dial(client.Options{})
	s := w.spawn(c, "s", spec)
	w.attach(c, "s", client.AttachOptions{}).until("ready")
	env := environ(s.PID)
	if slices.Contains(env, "EDITOR=ed") || !slices.Contains(env, "ONLY=this") || !slices.Contains(env, "TERM=xterm-256color") {
		t.Errorf("the environment is %q", env)
	}
}

// Keeper, supervisor and proxy must not keep the launcher's working directory in use, nor its descriptors.
func TestSupervisorHoldsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	extra, err := os.Create(w.Path("extra"))
	testkit.Must(t, err)
	defer extra.Close()
	cmd := w.Command("proxy", "start")
	cmd.Dir, cmd.ExtraFiles = w.Dir, []*os.File{extra}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	w.Start(cmd).Wait(t)
	for _, name := range []string{"keeper", "supervisor", "proxy"} {
		p := w.Only(name)
		if cwd, _ := os.Readlink("/proc/" + itoa(p.PID) + "/cwd"); cwd != "/" {
			t.Errorf("the working directory of the %s is %s, want /", name, cwd)
		}
		for fd, to := range fds(p.PID) {
			if to == extra.Name() {
				t.Errorf("the %s inherited %s from the launcher as descriptor %d", name, to, fd)
			}
		}
	}
}

// demand: M1, R1
func TestSizes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	for _, tt := range []struct {
		name           string
		cols, rows     int
		toCols, toRows int
		want, then     string
	}{
		{"none", 0, 0, 100, 50, "24 80", "50 100"},
		{"no-cols", 0, 50, 0, 30, "50 80", "30 80"},
		{"no-rows", 132, 0, 132, 0, "24 132", ""},
		{"both", 120, 40, 0, 0, "40 120", "24 80"},
	} {
		spec := shell("trap 'echo \"[$(stty size)]\"' WINCH; echo \"[$(stty size)]\"; while :; do sleep 0.01; done")
		spec.Cols, spec.Rows = tt.cols, tt.rows
		w.spawn(c, tt.name, spec)
		v := w.attach(c, tt.name, client.AttachOptions{})
		v.until("[" + tt.want + "]")
		testkit.Must(t, c.Resize(w.ctx(), protocol.SessionID(tt.name), tt.toCols, tt.toRows))
		if tt.then != "" {
			v.until("[" + tt.then + "]") // the child received SIGWINCH
		}
		want := protocol.Size{Cols: tt.toCols, Rows: tt.toRows}.Normalize()
		info, err := c.SessionInfo(w.ctx(), protocol.SessionID(tt.name))
		if err != nil || info.Size != want {
			t.Errorf("%s: the size is %v, %v", tt.name, info.Size, err)
		}
	}
}

func TestResizeOfAttachment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", shell("trap 'echo \"[$(stty size)]\"' WINCH; echo ready; while :; do sleep 0.01; done"))
	v := w.attach(c, "s", client.AttachOptions{})
	v.until("ready")
	look := w.attach(c, "s", client.AttachOptions{Mode: protocol.ModeReadOnly, Cols: 10, Rows: 10})
	testkit.Must(t, look.Resize(11, 11))
	two := w.attach(c, "s", client.AttachOptions{Cols: 90, Rows: 30})
	v.until("[30 90]")
	testkit.Must(t, two.Resize(91, 31))
	if told := v.until("[31 91]"); strings.Contains(told, "10") || strings.Contains(told, "11") {
		t.Errorf("a read-only viewer has changed the size: %q", told)
	}
}
