//go:build linux

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// limit is how long anything may take that has to happen. The machine may be
// busy; nothing waits for it where all is well.
const limit = 30 * time.Second

// A world is a directory and the programs that run in it. They have ended when
// the test has.
type world struct {
	t   testing.TB
	dir string
	bin string
	env []string // of every command; HOLDFAST_DIR is dir
}

// newWorld makes a world in which nothing runs.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: testkit.Dir(t), bin: testkit.Build(t, "holdfast/proxy", "holdfast/supervisor")}
	w.env = []string{
		"HOLDFAST_DIR=" + w.dir, "PATH=" + w.bin + ":" + os.Getenv("PATH"), "HOME=" + w.mkdir("home"),
		"TERM=xterm-256color", "LANG=C.UTF-8", "SHELL=/bin/bash", "PS1=$ ", "GORACE=halt_on_error=1 atexit_sleep_ms=0",
	}
	t.Cleanup(w.end)
	return w
}

// end kills all that runs in the world, until twice nobody is left: one that is
// being started has no environment for a moment, and a keeper and its supervisor
// start each other.
func (w *world) end() {
	none := 0
	if !eventually(func() bool {
		all := w.running("")
		for _, p := range all {
			p.signal(syscall.SIGKILL)
		}
		none++
		if len(all) > 0 {
			none = 0
		}
		return none == 2
	}) {
		w.t.Error("processes are left that cannot be killed")
	}
	crashes, _ := filepath.Glob(filepath.Join(w.dir, "*.crash"))
	for _, p := range crashes {
		if b, _ := os.ReadFile(p); len(b) > 0 {
			w.t.Errorf("%s:\n%s", filepath.Base(p), b[:min(len(b), 4<<10)])
		}
	}
	if w.t.Failed() {
		paths, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
		for _, p := range paths {
			b, _ := os.ReadFile(p)
			w.t.Logf("%s:\n%s", filepath.Base(p), b[max(0, len(b)-4<<10):])
		}
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) mkdir(name string) string {
	w.t.Helper()
	if err := os.MkdirAll(w.path(name), 0o700); err != nil {
		w.t.Fatal(err)
	}
	return w.path(name)
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	if err := os.WriteFile(w.path(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return w.path(name)
}

// read returns a file's text, "" while it is not there.
func (w *world) read(name string) string {
	b, _ := os.ReadFile(w.path(name))
	return string(b)
}

// A result is how a command ended.
type result struct {
	code        int
	out, errout string
}

func (r result) String() string { return fmt.Sprintf("exit %d, %q, %q", r.code, r.out, r.errout) }

// proxy runs a command to its end.
func (w *world) proxy(args ...string) result {
	w.t.Helper()
	return w.run(exec.Command(filepath.Join(w.bin, "proxy"), args...), nil)
}

// run runs any program of the world, which reads in.
func (w *world) run(cmd *exec.Cmd, in io.Reader) result {
	w.t.Helper()
	var out, errout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errout
	if cmd.Env == nil {
		cmd.Env = w.env
	}
	if cmd.Dir == "" {
		cmd.Dir = w.dir
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}
	var exit *exec.ExitError
	if !late.Stop() || err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s: %v, %v", cmd, err, r)
	}
	return r
}

// must is proxy for what must succeed; it returns what was printed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.proxy(args...)
	if r.code != 0 {
		w.t.Fatalf("proxy %s: %v", strings.Join(args, " "), r)
	}
	return r.out
}

// fails runs a command that must end with a code and say why.
func (w *world) fails(code int, says string, args ...string) result {
	w.t.Helper()
	r := w.proxy(args...)
	if r.code != code || !strings.Contains(r.errout, says) {
		w.t.Errorf("proxy %s: %v, want exit %d, %q", strings.Join(args, " "), r, code, says)
	}
	return r
}

// object runs a command that prints a JSON object.
func (w *world) object(args ...string) map[string]any {
	w.t.Helper()
	return decode[map[string]any](w.t, w.must(args...))
}

func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// spawn starts a session in the background.
func (w *world) spawn(id string, argv ...string) {
	w.t.Helper()
	w.must(append([]string{"new", "-d", "--early-exit", "0", "--id", id, "--"}, argv...)...)
}

// shell starts a session that runs a script.
func (w *world) shell(id, script string) {
	w.t.Helper()
	w.spawn(id, "/bin/sh", "-c", script)
}

// shows waits until the text of a session's screen contains want.
func (w *world) shows(id, want string) {
	w.t.Helper()
	var text string
	if !eventually(func() bool {
		text = w.must("screen", id, "--lines", "1000")
		return strings.Contains(text, want)
	}) {
		w.t.Fatalf("session %s does not show %q, but %q", id, want, text)
	}
}

// pollEvery leaves the processor to those who are waited for.
const pollEvery = 5 * time.Millisecond

// eventually reports whether cond comes true within the limit.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(pollEvery) {
		if cond() {
			return true
		}
	}
	return cond()
}

// A process is one life of a pid.
type process struct {
	pid   int
	start string // the kernel's start time: tells it from a later one
}

func lookup(pid int) process {
	_, start := testkit.Stat(pid)
	return process{pid, start}
}

// parent is the pid of who started the process, if that is still there.
func (p process) parent() int { return testkit.Parent(p.pid) }

func (p process) running() bool {
	state, start := testkit.Stat(p.pid)
	return start == p.start && state != "Z" && state != ""
}

func (p process) signal(sig syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(p.pid, sig) // it may have ended since
	}
}

// kill kills a process, and returns when it has gone.
func (w *world) kill(p process) {
	w.t.Helper()
	p.signal(syscall.SIGKILL)
	if !eventually(func() bool { return !p.running() }) {
		w.t.Fatalf("process %d does not end", p.pid)
	}
}

// killBoth kills the supervisor and its keeper, so that neither follows the other.
func (w *world) killBoth() {
	w.t.Helper()
	keeper, held := w.only("keeper"), w.only("supervisor")
	keeper.signal(syscall.SIGSTOP) // not the supervisor: its parent's end would continue it
	if !eventually(func() bool { state, _ := testkit.Stat(keeper.pid); return state == "T" }) {
		w.t.Fatal("the keeper does not stand still")
	}
	w.kill(held)
	w.kill(keeper)
}

// running returns the world's processes of a program, those that serve; "keeper" is
// the parent of the supervisor proper, "" returns all there are.
func (w *world) running(program string) []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args := list(d + "/cmdline")
		ours := slices.Contains(list(d+"/environ"), "HOLDFAST_DIR="+w.dir) || slices.Contains(args, w.dir)
		if !ours || program != "" && roleOf(args) != program {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p := lookup(pid); p.running() {
			found = append(found, p)
		}
	}
	return found
}

// roleOf says which of those that serve has these arguments, "" that none has.
func roleOf(args []string) string {
	is := func(word string) bool { return slices.Contains(args[1:], word) }
	switch name := filepath.Base(args[0]); {
	case name == "proxy" && is("serve"):
		return name
	case name == "supervisor" && is("run"):
		return name
	case name == "supervisor" && !is("stop") && !is("--upgrade"):
		return "keeper"
	}
	return ""
}

// list reads a file of strings that end in NUL.
func list(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// only returns the one process that serves, once there is one alone.
func (w *world) only(program string) process {
	w.t.Helper()
	var found []process
	if !eventually(func() bool { found = w.running(program); return len(found) == 1 }) {
		w.t.Fatalf("%d of %s run, and not one", len(found), program)
	}
	return found[0]
}

// program returns the path of a program that scripts/check.sh installs.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v; scripts/check.sh installs it", err)
	}
	return path
}
