//go:build linux

package compat

import (
	"bytes"
	"cmp"
	"context"
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

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// limit is how long anything may take that has to happen. The machine may be
// busy; nothing waits for it where all is well.
const limit = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// A world is a directory and the programs of several versions that run in it.
// They have ended when the test has.
type world struct {
	t    testing.TB
	dir  string
	bins map[string]string // where each version's programs are
	env  []string

	web    context.Context // of all WebSockets
	hangUp context.CancelFunc
}

func newWorld(t testing.TB, bins map[string]string) *world {
	t.Helper()
	w := &world{t: t, dir: testkit.Dir(t), bins: bins}
	w.env = []string{
		"HOLDFAST_DIR=" + w.dir, "PATH=" + os.Getenv("PATH"), "HOME=" + cmp.Or(os.Getenv("HOME"), "/"),
		"GORACE=halt_on_error=1 atexit_sleep_ms=0 log_path=" + filepath.Join(w.dir, "race"),
	}
	w.web, w.hangUp = context.WithCancel(context.Background())
	t.Cleanup(w.end)
	return w
}

// end asks the supervisor, whose sessions end with it, and kills all else, also if
// that does not answer.
func (w *world) end() {
	defer w.crashes()
	defer w.killAll()
	if r := w.run(nil, here, "supervisor", "stop", "--sessions=end"); r.code != 0 {
		w.t.Errorf("the supervisor does not stop: %v", r)
	}
}

func (w *world) killAll() {
	none := 0
	testkit.Eventually(w.t, limit, func() bool { // again, should one have been about to start another
		left := w.running()
		for _, p := range left {
			p.signal(syscall.SIGKILL)
		}
		none++
		if len(left) > 0 {
			none = 0
		}
		return none == 2 // one that is being started has no environment for a moment
	}, "all has ended")
}

// crashes fails the test for what panics and the race detector have written, and
// prints the logs of one that has failed.
func (w *world) crashes() {
	for _, pattern := range []string{"*.crash", "race.*"} {
		paths, _ := filepath.Glob(w.path(pattern))
		for _, p := range paths {
			if b, _ := os.ReadFile(p); len(b) > 0 {
				w.t.Errorf("%s:\n%s", filepath.Base(p), b[:min(len(b), 8<<10)])
			}
		}
	}
	if w.t.Failed() {
		paths, _ := filepath.Glob(w.path("*.log"))
		for _, p := range paths {
			b, _ := os.ReadFile(p)
			w.t.Logf("%s:\n%s", filepath.Base(p), b[max(0, len(b)-6<<10):])
		}
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// command prepares a program of a version.
func (w *world) command(version, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bins[version], program), args...)
	cmd.Env, cmd.Dir = w.env, "/"
	return cmd
}

// A result is how a command ended.
type result struct {
	code        int
	out, errout string
}

func (r result) String() string { return fmt.Sprintf("exit %d, %q, %q", r.code, r.out, r.errout) }

// run runs a program, which reads in, to its end.
func (w *world) run(in io.Reader, version, program string, args ...string) result {
	w.t.Helper()
	var out, errout bytes.Buffer
	cmd := w.command(version, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errout
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}
	var exit *exec.ExitError
	if !late.Stop() || err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s %s %s: %v, %v", version, program, strings.Join(args, " "), err, r)
	}
	return r
}

// proxy is run for a version's proxy that must succeed; it returns what was
// printed.
func (w *world) proxy(version string, args ...string) string {
	w.t.Helper()
	return w.must(version, "proxy", args...)
}

// must runs any program that must succeed; it returns what was printed.
func (w *world) must(version, program string, args ...string) string {
	w.t.Helper()
	r := w.run(nil, version, program, args...)
	if r.code != 0 {
		w.t.Fatalf("%s %s %s: %v", version, program, strings.Join(args, " "), r)
	}
	return r.out
}

// start starts a supervisor and a proxy, and returns the port of its WebSockets.
func (w *world) start(supervisor, proxy string) (address string) {
	w.t.Helper()
	pid := w.daemon(w.command(supervisor, "supervisor", "--background"))
	testkit.Eventually(w.t, limit, func() bool {
		held := w.supervisor()
		return held.pid == pid || held.parent() == pid // of a release of one process, or of two
	}, "the supervisor serves")
	return w.startProxy(proxy)
}

// startProxy starts a proxy, which starts a supervisor where none runs.
func (w *world) startProxy(proxy string) (address string) {
	w.t.Helper()
	w.daemon(w.command(proxy, "proxy", "serve", "--background", "--web", "127.0.0.1:0"))
	testkit.Eventually(w.t, limit, func() bool {
		log, _ := os.ReadFile(w.path("proxy.log"))
		_, after, _ := strings.Cut(string(log), `"address":"`)
		address, _, _ = strings.Cut(after, `"`)
		return address != ""
	}, "the proxy serves WebSockets on TCP")
	return address
}

// supervisor is the process that holds the supervisor's socket; that of pid 0, none,
// does not run.
func (w *world) supervisor() process {
	b, _ := os.ReadFile(w.path("supervisor.sock.lock"))
	pid, _ := strconv.Atoi(string(b))
	return lookup(pid)
}

// killSupervisor kills the supervisor, and returns when its keeper has started the
// next one.
func (w *world) killSupervisor() {
	w.t.Helper()
	was := w.supervisor()
	was.signal(syscall.SIGKILL)
	testkit.Eventually(w.t, limit, func() bool { now := w.supervisor(); return now.pid != was.pid && now.running() }, "another supervisor serves")
}

// daemon starts a program that stays.
func (w *world) daemon(cmd *exec.Cmd) (pid int) {
	w.t.Helper()
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // so that it leaves no zombie
	return cmd.Process.Pid
}

func (w *world) connect() *client.Client {
	w.t.Helper()
	c, err := client.Dial(w.ctx(), client.Options{Dir: w.dir, Name: "compat"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ctx ends with the limit, or with the test.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	w.t.Cleanup(cancel)
	return ctx
}

// status is what a version's command tells of both processes.
func (w *world) status(version string) (s client.Status) {
	w.t.Helper()
	out := w.proxy(version, "status", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Supervisor == nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	return s
}

// showsSkew checks what a version's command says of two versions that run.
func (w *world) showsSkew(version, proxy, supervisor string) {
	w.t.Helper()
	if s := w.status(version); s.Proxy.Version != proxy || s.Supervisor.Version != supervisor {
		w.t.Errorf("%s: status says proxy %s, supervisor %s, want %s, %s", version, s.Proxy.Version, s.Supervisor.Version, proxy, supervisor)
	}
	skew := "skew: none"
	if proxy != supervisor {
		skew = fmt.Sprintf("skew: versions differ; they speak protocol %d", protocol.Version)
	}
	out := w.proxy(version, "status")
	for _, says := range []string{"version " + proxy + " ", "version " + supervisor + " ", skew} {
		if !strings.Contains(out, says) {
			w.t.Errorf("%s: status does not say %q, but %s", version, says, out)
		}
	}
}

// commands are what a version's commands do with the proxy that runs: start a
// session, type, look, attach, and end with its code.
func (w *world) commands(version, id string) {
	w.t.Helper()
	w.proxy(version, "new", "--detach", "--early-exit", "0", "--id", id, "--",
		"/bin/sh", "-c", "stty -echo; echo ready; read a; echo got $a; read b; echo got $b; exit 7")
	w.proxy(version, "send", id, "--enter", "one")
	var shows string
	testkit.Eventually(w.t, limit, func() bool {
		shows = w.proxy(version, "screen", id)
		return strings.Contains(shows, "got one")
	}, version+": what is sent is answered on the screen")
	r := w.run(strings.NewReader("two\n"), version, "proxy", "attach", id)
	if r.code != 7 || !strings.HasSuffix(strings.ReplaceAll(r.out, "\r", ""), "got one\ngot two\n") {
		w.t.Errorf("%s: attach: %v", version, r)
	}
	if r := w.run(nil, version, "proxy", "wait", id); r.code != 7 {
		w.t.Errorf("%s: wait: %v", version, r)
	}
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

// parent is the pid of who has the process as a child.
func (p process) parent() int { return testkit.Parent(p.pid) }

// running reports whether the process is there, and no zombie.
func (p process) running() bool {
	state, start := testkit.Stat(p.pid)
	return start == p.start && state != "Z" && state != ""
}

func (p process) signal(sig syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(p.pid, sig) // it may have ended since
	}
}

// running returns the world's processes.
func (w *world) running() (found []process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, _ := os.ReadFile(d + "/environ")
		if !slices.Contains(strings.Split(string(env), "\x00"), "HOLDFAST_DIR="+w.dir) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p := lookup(pid); p.running() {
			found = append(found, p)
		}
	}
	return found
}
