//go:build unix

// Package world runs the real programs in a directory of their own, for the end-to-end tests.
//
// Invariant: when a test has ended, so have all processes that it started in its world, and all
// that those started. A test fails if one of them has panicked or if the race detector has found
// a race in one.
//
// Not here: the programs' clients and terminals, which each package of tests has for itself.
package world

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// Limit is how long an event may take that must happen. It is long because the machine may be
// busy; a test waits for it only if the test fails.
const Limit = 30 * time.Second

// World is a directory and the programs that run in it.
type World struct {
	T    testing.TB
	Dir  string   // the state directory of the programs
	Home string   // the home directory of the programs, in root
	Bin  string   // the directory of the programs
	Env  []string // the environment of every command
	Cwd  string   // the working directory of a command that has none

	root string // a process that has a path in it in its environment belongs to the world

	mu    sync.Mutex
	extra []Process // further processes that End kills, see Adopt
	ended bool      // no process is started any more
}

// New returns a world in which no process runs. Its state directory is the directory state of
// root, or root itself if state is "". End must be called after the test.
//
// The programs have a home directory of their own, because the shells of a test must not run the
// start-up files of the real user: such a file can wait for minutes, and a shell that the
// test kills can leave a lock behind that makes later ones wait.
func New(t testing.TB, root, state, bin string, env ...string) *World {
	t.Helper()
	dir := filepath.Join(root, state)
	return &World{
		T: t, Dir: dir, Home: makeHome(t, root), Bin: bin, Cwd: "/", root: root,
		Env: append([]string{
			"HOLDFAST_DIR=" + dir, "HOME=" + filepath.Join(root, "home"),
			"GORACE=halt_on_error=1 atexit_sleep_ms=0 log_path=" + filepath.Join(root, "race"),
		}, env...),
	}
}

// makeHome makes the directory home in root, and returns its path. It has the directory of fish's
// completions. A fish that finds none makes completions of all man pages in the background, which
// takes 13 s of processor time.
func makeHome(t testing.TB, root string) string {
	t.Helper()
	home := filepath.Join(root, "home")
	testkit.Must(t, os.MkdirAll(filepath.Join(home, ".local/share/fish/generated_completions"), 0o700))
	return home
}

// End kills the proxies and asks the supervisors to end, with their sessions and keepers. It then
// kills the other processes, and fails the test if a supervisor did not end or if a process has
// panicked. If the test has failed, End logs the ends of the programs' logs.
func (w *World) End() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	for _, p := range w.Running("proxy") { // a proxy would start another supervisor
		p.Signal(syscall.SIGKILL)
	}
	held := w.Running("supervisor")
	for _, p := range held {
		p.Signal(syscall.SIGCONT) // a test that has failed may have left it stopped
		p.Signal(syscall.SIGTERM)
	}
	if !Eventually(func() bool { return !slices.ContainsFunc(held, Process.Running) }) {
		w.T.Error("the supervisor does not end by SIGTERM")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	emptyRounds := 0
	if !Eventually(func() bool {
		left := slices.DeleteFunc(append(w.Running(""), w.extra...), func(p Process) bool { return !p.Running() })
		for _, p := range left {
			p.Signal(syscall.SIGKILL)
		}
		if emptyRounds++; len(left) > 0 {
			emptyRounds = 0
		}
		return emptyRounds == 2 // a process that is being started has no environment for a moment
	}) {
		w.T.Error("processes are left that cannot be killed")
	}
	w.checkCrashes()
	if w.T.Failed() {
		w.T.Log(w.Logs())
	}
}

// Adopt lets End kill a process that does not have the world's directory in its environment.
func (w *World) Adopt(p Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.extra = append(w.extra, p)
}

// checkCrashes fails the test if a process has panicked or has had a data race.
func (w *World) checkCrashes() {
	crashes, _ := filepath.Glob(w.Path("*.crash"))
	races, _ := filepath.Glob(filepath.Join(w.root, "race.*"))
	for _, path := range append(crashes, races...) {
		if b, _ := os.ReadFile(path); len(b) > 0 {
			w.T.Errorf("%s:\n%s", filepath.Base(path), last(b, 8<<10))
		}
	}
}

// Logs returns the last 6 KiB of each log.
func (w *World) Logs() string {
	var out strings.Builder
	paths, _ := filepath.Glob(w.Path("*.log"))
	for _, p := range paths {
		b, _ := os.ReadFile(p)
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(p), last(b, 6<<10))
	}
	return out.String()
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// Path returns the path of a file in the state directory.
func (w *World) Path(name string) string { return filepath.Join(w.Dir, name) }

// Program returns the path of one of the two programs.
func (w *World) Program(name string) string { return filepath.Join(w.Bin, name) }

// Command prepares a program of this world. It runs in a process group of its own, as a shell's
// job does.
func (w *World) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.Program(program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.prepare(cmd)
	return cmd
}

func (w *World) prepare(cmd *exec.Cmd) {
	if cmd.Env == nil {
		cmd.Env = w.Env
	}
	if cmd.Dir == "" {
		cmd.Dir = w.Cwd
	}
}

// A Result is how a command ended.
type Result struct {
	Code        int // the exit code
	Out, Errout string
}

func (r Result) String() string { return fmt.Sprintf("exit %d, %q, %q", r.Code, r.Out, r.Errout) }

// Run runs a program to its end. It fails the test if the program cannot be started or does not
// end within Limit.
func (w *World) Run(program string, args ...string) Result {
	w.T.Helper()
	return w.RunCommand(w.Command(program, args...))
}

// RunCommand is Run for a prepared command.
func (w *World) RunCommand(cmd *exec.Cmd) Result {
	w.T.Helper()
	r, err := w.Finish(cmd)
	if err != nil {
		w.T.Fatalf("%s: %v, %v", strings.Join(cmd.Args, " "), err, r)
	}
	return r
}

// Must runs a program that must succeed, and returns its output.
func (w *World) Must(program string, args ...string) string {
	w.T.Helper()
	r := w.Run(program, args...)
	if r.Code != 0 {
		w.T.Fatalf("%s %s: %v", program, strings.Join(args, " "), r)
	}
	return r.Out
}

// Try is Run for any goroutine.
func (w *World) Try(program string, args ...string) (Result, error) {
	return w.Finish(w.Command(program, args...))
}

// Meanwhile runs a program to its end beside the test, and sends its result.
func (w *World) Meanwhile(what, program string, args ...string) <-chan Result {
	ended := make(chan Result, 1)
	go func() {
		r, err := w.Try(program, args...)
		if err != nil {
			w.T.Errorf("%s: %v", what, err)
		}
		ended <- r
	}()
	return ended
}

// Finish runs a command to its end, for any goroutine. An exit code other than 0 is no error.
func (w *World) Finish(cmd *exec.Cmd) (Result, error) {
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := w.begin(cmd); err != nil {
		return Result{}, err
	}
	late := time.AfterFunc(Limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	if !late.Stop() {
		err = fmt.Errorf("it did not end within %v", Limit)
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), errout.String()}, err
}

// begin starts a command, unless End has been called: End would not kill the process.
func (w *World) begin(cmd *exec.Cmd) error {
	w.prepare(cmd)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errors.New("the test has ended")
	}
	return cmd.Start()
}

// A Daemon is a program that was started and that the test does not wait for.
type Daemon struct {
	Process
	Ended  chan struct{} // closed when the program has ended
	Errout *bytes.Buffer // may be read when Ended is closed
	Code   int           // may be read when Ended is closed
}

// Start starts a program that continues to run.
func (w *World) Start(cmd *exec.Cmd) *Daemon {
	w.T.Helper()
	d, err := w.Launch(cmd)
	testkit.Must(w.T, err)
	return d
}

// Launch is Start for any goroutine.
func (w *World) Launch(cmd *exec.Cmd) (*Daemon, error) {
	d := &Daemon{Ended: make(chan struct{}), Errout: &bytes.Buffer{}}
	cmd.Stderr = d.Errout
	if err := w.begin(cmd); err != nil {
		return nil, err
	}
	d.Process = Lookup(cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // the exit code tells how it ended
		d.Code = cmd.ProcessState.ExitCode()
		close(d.Ended)
	}()
	return d, nil
}

// Wait returns when the program has ended.
func (d *Daemon) Wait(t testing.TB) {
	t.Helper()
	select {
	case <-d.Ended:
	case <-time.After(Limit):
		t.Fatalf("process %d does not end", d.PID)
	}
}

// Eventually reports whether cond returns true within Limit.
func Eventually(cond func() bool) bool { return testkit.Poll(Limit, cond) }
