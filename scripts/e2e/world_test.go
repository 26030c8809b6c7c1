package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// limit is how long anything may take that has to happen. The machine may be
// busy; nothing waits for it where all is well.
const limit = 30 * time.Second

// A world is a directory and the programs that run in it. What it started, and
// what that started, has ended when the test has.
type world struct {
	t   testing.TB
	dir string
	bin string
	env []string

	mu       sync.Mutex
	sessions []process // children, to be ended should their supervisor be killed
	ended    bool      // nothing is started any more
}

// newWorld makes a world in which nothing runs. env is given to all programs.
func newWorld(t testing.TB, env ...string) *world {
	t.Helper()
	w := &world{t: t, dir: testkit.Dir(t), bin: testkit.Build(t, "holdfast/proxy", "holdfast/supervisor")}
	w.env = append([]string{
		"HOLDFAST_DIR=" + w.dir, "PATH=" + os.Getenv("PATH"), "HOME=" + cmp.Or(os.Getenv("HOME"), "/"),
		"GORACE=halt_on_error=1 log_path=" + filepath.Join(w.dir, "race"), "GOMAXPROCS=" + os.Getenv("GOMAXPROCS"),
	}, env...)
	t.Cleanup(w.end)
	return w
}

// end kills the proxies, and asks the supervisors, whose sessions and keepers end
// with them; those that do not listen are killed, and the test fails. A keeper that
// has no supervisor is killed.
func (w *world) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	for _, p := range w.running("proxy") {
		p.signal(syscall.SIGKILL)
	}
	held := w.running("supervisor")
	for _, p := range held {
		p.signal(syscall.SIGCONT) // a test that has failed may have left it stopped
		p.signal(syscall.SIGTERM)
	}
	if !eventually(func() bool { return !slices.ContainsFunc(held, process.running) }) {
		w.t.Error("the supervisor does not end by SIGTERM")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	none := 0
	kill := func() bool { // again, should one have been about to start another
		left := append(w.running(""), w.sessions...)
		left = slices.DeleteFunc(left, func(p process) bool { return !p.running() })
		for _, p := range left {
			p.signal(syscall.SIGKILL)
		}
		none++
		if len(left) > 0 {
			none = 0
		}
		return none == 2 // one that is being started has no environment for a moment
	}
	if !eventually(kill) {
		w.t.Error("processes are left that cannot be killed")
	}
	w.crashes()
	if w.t.Failed() {
		w.t.Log(w.logs())
	}
}

// crashes fails the test for what panics and the race detector have written.
func (w *world) crashes() {
	crashes, _ := filepath.Glob(filepath.Join(w.dir, "*.crash"))
	races, _ := filepath.Glob(filepath.Join(w.dir, "race.*"))
	for _, path := range append(crashes, races...) {
		if b, _ := os.ReadFile(path); len(b) > 0 {
			w.t.Errorf("%s:\n%s", filepath.Base(path), last(string(b), 8<<10))
		}
	}
}

// logs returns the ends of all logs.
func (w *world) logs() string {
	var out strings.Builder
	paths, _ := filepath.Glob(filepath.Join(w.dir, "*.log"))
	for _, p := range paths {
		b, _ := os.ReadFile(p)
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(p), last(string(b), 6<<10))
	}
	return out.String()
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// number is how many of something a test has: what the environment says, or as many
// as are enough for every day.
func number(t testing.TB, name string, everyDay int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return everyDay
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// path returns the path of a file in the world.
func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// program returns the path of one of the two programs.
func (w *world) program(name string) string { return filepath.Join(w.bin, name) }

// command prepares a program of this world. It is in a process group of its
// own, as a shell's job is.
func (w *world) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.program(program), args...)
	cmd.Env, cmd.Dir = w.env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// A result is how a command ended.
type result struct {
	code        int
	out, errout string
}

func (r result) String() string { return fmt.Sprintf("exit %d, %q, %q", r.code, r.out, r.errout) }

// run runs a program to its end, which must come within the limit.
func (w *world) run(program string, args ...string) result {
	r, err := w.try(program, args...)
	if err != nil {
		w.t.Fatalf("%s %s: %v, %v", program, strings.Join(args, " "), err, r)
	}
	return r
}

// try is run for any goroutine.
func (w *world) try(program string, args ...string) (result, error) {
	return w.finish(w.command(program, args...))
}

// meanwhile runs a program to its end, beside the test, and gives its result.
func (w *world) meanwhile(what, program string, args ...string) <-chan result {
	ended := make(chan result, 1)
	go func() {
		r, err := w.try(program, args...)
		if err != nil {
			w.t.Errorf("%s: %v", what, err)
		}
		ended <- r
	}()
	return ended
}

// runFrom is run with the programs of another directory.
func (w *world) runFrom(bin, program string, args ...string) result {
	w.t.Helper()
	cmd := w.command(program, args...)
	cmd.Path = filepath.Join(bin, program)
	cmd.Args[0] = cmd.Path
	r, err := w.finish(cmd)
	if err != nil {
		w.t.Fatalf("%s: %v, %v", strings.Join(cmd.Args, " "), err, r)
	}
	return r
}

// finish runs a command to its end, within the limit.
func (w *world) finish(cmd *exec.Cmd) (result, error) {
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := w.begin(cmd); err != nil {
		return result{}, err
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if !late.Stop() {
		err = fmt.Errorf("it did not end within %v", limit)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}, err
}

// begin starts a command, unless the world has ended: then nobody would end it.
func (w *world) begin(cmd *exec.Cmd) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errors.New("the test has ended")
	}
	return cmd.Start()
}

// must is run for what must succeed; it returns what was printed.
func (w *world) must(program string, args ...string) string {
	w.t.Helper()
	r := w.run(program, args...)
	if r.code != 0 {
		w.t.Fatalf("%s %s: %v", program, strings.Join(args, " "), r)
	}
	return r.out
}

// A daemon is a program that was started and is not waited for.
type daemon struct {
	process
	ended  chan struct{}
	errout *bytes.Buffer // may be read once ended is closed
	code   int           // the same
}

// start starts a program that stays.
func (w *world) start(cmd *exec.Cmd) *daemon {
	d, err := w.launch(cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// launch is start for any goroutine.
func (w *world) launch(cmd *exec.Cmd) (*daemon, error) {
	d := &daemon{ended: make(chan struct{}), errout: &bytes.Buffer{}}
	cmd.Stderr = d.errout
	if err := w.begin(cmd); err != nil {
		return nil, err
	}
	d.process = lookup(cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // the code says it
		d.code = cmd.ProcessState.ExitCode()
		close(d.ended)
	}()
	return d, nil
}

// wait returns when the program has ended.
func (d *daemon) wait(t testing.TB) {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(limit):
		t.Fatalf("process %d does not end", d.pid)
	}
}

// running returns the world's processes of a program, those that serve; "keeper"
// are the parents of supervisors. "" returns all there are, a command line under way
// too.
func (w *world) running(program string) []process {
	var found []process
	for _, pid := range pids() {
		args := list(pid, "cmdline")
		if !slices.Contains(environ(pid), "HOLDFAST_DIR="+w.dir) && !slices.Contains(args, w.dir) { // by --dir
			continue
		}
		switch {
		case program == "":
		case program == "keeper":
			if filepath.Base(args[0]) != "supervisor" || slices.ContainsFunc(args[1:], func(a string) bool { return a == "run" || a == "stop" || a == "--upgrade" }) {
				continue
			}
		case filepath.Base(args[0]) != program,
			program == "proxy" && !slices.Contains(args, "serve"),
			program == "supervisor" && !slices.Contains(args, "run"):
			continue
		}
		if p := lookup(pid); p.running() {
			found = append(found, p)
		}
	}
	return found
}

// only returns the one process that serves, once there is one alone: another
// may be about to find the place taken, and to leave.
func (w *world) only(program string) process {
	w.t.Helper()
	var found []process
	testkit.Eventually(w.t, limit, func() bool {
		found = w.running(program)
		return len(found) == 1
	}, "one "+program+" alone runs")
	return found[0]
}

// holder returns the process that holds a socket's lock, 0 if none has.
func (w *world) holder(socket string) int {
	b, _ := os.ReadFile(w.path(socket + ".lock"))
	pid, _ := strconv.Atoi(string(b))
	return pid
}

// kill kills a process, and returns when it has gone.
func (w *world) kill(p process) {
	w.t.Helper()
	p.signal(syscall.SIGKILL)
	w.gone(p)
}

// halt stops a process and returns when it stands still, each of its threads.
func (w *world) halt(p process) {
	w.t.Helper()
	p.signal(syscall.SIGSTOP)
	testkit.Eventually(w.t, limit, func() bool {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
		return err == nil && !slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
			tid, err := strconv.Atoi(thread.Name())
			state, _ := testkit.Stat(tid)
			return err != nil || state != "T"
		})
	}, fmt.Sprintf("process %d stands still", p.pid))
}

// killBoth kills the supervisor and its keeper, so that neither follows the other: only
// so are its sessions lost.
func (w *world) killBoth() {
	w.t.Helper()
	keeper, held := w.only("keeper"), w.only("supervisor")
	w.halt(keeper) // not the supervisor: its parent's end would continue it
	w.kill(held)
	w.kill(keeper)
}

// killHeld kills the supervisor, and returns the next one when it serves.
func (w *world) killHeld() process {
	w.t.Helper()
	was := lookup(w.holder("supervisor.sock"))
	w.kill(was)
	var next process
	testkit.Eventually(w.t, limit, func() bool {
		next = lookup(w.holder("supervisor.sock"))
		return next.pid != was.pid && next.running()
	}, "another supervisor serves")
	return next
}

// gone returns when the process has ended.
func (w *world) gone(p process) {
	w.t.Helper()
	testkit.Eventually(w.t, limit, func() bool { return !p.running() }, fmt.Sprintf("process %d ends", p.pid))
}

// eventually is testkit's without a test to fail.
func eventually(ok func() bool) bool {
	f := &failing{}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		testkit.Eventually(f, limit, ok, "")
	}()
	return !f.failed
}

// failing is a test whose failure is an answer.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true; panic(f) }
