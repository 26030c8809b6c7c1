//go:build unix

package world

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"holdfast/shared/testkit"
)

// A Process is one life of a pid.
type Process struct {
	PID   int
	start string // the kernel's start time, which distinguishes it from a later process of the same pid
}

// Lookup returns the process that has a pid now. If there is none, it is not running.
func Lookup(pid int) Process {
	_, start := testkit.Stat(pid)
	return Process{pid, start}
}

// Parent returns the pid of the parent, or 0 if the process has ended.
func (p Process) Parent() int { return testkit.Parent(p.PID) }

// Running reports whether the process exists and is not a zombie.
func (p Process) Running() bool {
	state, start := testkit.Stat(p.PID)
	return start == p.start && state != "Z" && state != ""
}

// Signal sends a signal if the process is running.
func (p Process) Signal(sig syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(p.PID, sig) // it may have ended since
	}
}

// Running returns the world's processes of a role: "proxy" and "supervisor" are the ones that
// serve, "keeper" is the parent of a supervisor, and the role of any other process is the name of its
// program. "" returns all processes.
func (w *World) Running(role string) []Process {
	var found []Process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		args := Strings(d + "/cmdline")
		if role != "" && roleOf(args) != role {
			continue
		}
		env := Strings(d + "/environ")
		if !w.owns(env, args) || role == "keeper" && isOnTrial(env) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if p := Lookup(pid); p.Running() {
			found = append(found, p)
		}
	}
	return found
}

// owns reports whether a process of this environment and these arguments belongs to the world.
func (w *World) owns(env, args []string) bool {
	return slices.Contains(args, w.Dir) || // by --dir
		slices.ContainsFunc(env, func(e string) bool {
			_, value, _ := strings.Cut(e, "=")
			return value == w.root || strings.HasPrefix(value, w.root+"/")
		})
}

// isOnTrial reports whether a keeper of this environment is only tried, beside the supervisor that will become the keeper.
func isOnTrial(env []string) bool {
	return slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "HOLDFAST_KEEPER_TRIAL=") })
}

// roleOf returns the role of a process with these arguments, or "" for a command of proxy or
// supervisor that does not serve.
func roleOf(args []string) string {
	has := func(word string) bool { return slices.Contains(args[1:], word) }
	switch name := filepath.Base(args[0]); {
	case name == "proxy" && has("serve"):
		return name
	case name == "supervisor" && has("run"):
		return name
	case name == "supervisor" && !has("stop") && !has("--upgrade"):
		return "keeper"
	case name != "proxy" && name != "supervisor":
		return name
	}
	return ""
}

// Strings reads a file of strings that end in NUL. It returns at least one string.
func Strings(path string) []string {
	b, _ := os.ReadFile(path)
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// Only returns the one process of a role, as soon as there is exactly one: another one may be
// about to find that the place is taken, and to end.
func (w *World) Only(role string) Process {
	w.T.Helper()
	var found []Process
	testkit.Eventually(w.T, Limit, func() bool {
		found = w.Running(role)
		return len(found) == 1
	}, "one "+role+" alone runs")
	return found[0]
}

// Holder returns the pid of the process that holds a socket's lock, or 0 if no process does.
func (w *World) Holder(socket string) int {
	b, _ := os.ReadFile(w.Path(socket + ".lock"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

// Gone returns when the process has ended.
func (w *World) Gone(p Process) {
	w.T.Helper()
	testkit.Eventually(w.T, Limit, func() bool { return !p.Running() }, fmt.Sprintf("process %d ends", p.PID))
}

// Kill kills a process, and returns when it has ended.
func (w *World) Kill(p Process) {
	w.T.Helper()
	p.Signal(syscall.SIGKILL)
	w.Gone(p)
}

// Stop stops a process, and returns when each of its threads is stopped.
func (w *World) Stop(p Process) {
	w.T.Helper()
	p.Signal(syscall.SIGSTOP)
	w.Stopped(p)
}

// Stopped returns when each thread of a process is stopped.
func (w *World) Stopped(p Process) {
	w.T.Helper()
	testkit.Eventually(w.T, Limit, func() bool {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
		return err == nil && !slices.ContainsFunc(threads, func(thread os.DirEntry) bool {
			tid, err := strconv.Atoi(thread.Name())
			state, _ := testkit.Stat(tid)
			return err != nil || state != "T"
		})
	}, fmt.Sprintf("process %d is stopped", p.PID))
}

// KillBoth kills the supervisor and its keeper so that neither continues without the other. Only
// then are the sessions lost.
func (w *World) KillBoth() {
	w.T.Helper()
	keeper, held := w.Only("keeper"), w.Only("supervisor")
	w.Stop(keeper) // not the supervisor, because the end of its parent would continue it
	w.Kill(held)
	w.Kill(keeper)
}

// KillSupervisor kills the supervisor, and returns the next one when that serves.
func (w *World) KillSupervisor() Process {
	w.T.Helper()
	was := Lookup(w.Holder("supervisor.sock"))
	w.Kill(was)
	var next Process
	testkit.Eventually(w.T, Limit, func() bool {
		next = Lookup(w.Holder("supervisor.sock"))
		return next.PID != was.PID && next.Running()
	}, "another supervisor serves")
	return next
}
