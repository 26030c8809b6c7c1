//go:build linux

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// Commands that only read must start no program and make no directory.
func TestLookingStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.Path("typo")
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"status"}, {"info", "x"}, {"why", "x"}, {"away", "x"}, {"history", "x"}, {"screen", "x"}, {"search", "x", "y"},
		{"export", "x"}, {"events"}, {"wait", "x"}, {"mark", "x"}, {"env", "x"}, {"attach", "x"}, {"send", "x", "y"}, {"kill", "x"}, {"reopen", "x"}, {"--handoff"},
	} {
		w.fails(69, "nothing runs here", append([]string{"--dir", dir}, args...)...)
	}
	if out := w.must("__complete", "--dir", dir, "attach", ""); !strings.HasPrefix(out, ":") {
		t.Errorf("completion in a directory that does not exist: %q", out)
	}
	w.fails(69, "nothing runs here", "stop", "--all", "--dir", dir)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the commands have made %s", dir)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("the commands have started %v", all)
	}

	// If a supervisor holds sessions, a command may start a proxy to see them.
	w.spawn("s", "sleep", "1000")
	w.must("stop")
	if out := w.must("ls"); !strings.Contains(out, "sleep 1000") {
		t.Errorf("ls with a supervisor but no proxy: %s", out)
	}
}

func TestStopAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "sleep", "1000")
	w.must("start", "--proxy", "blue")
	if r := w.fails(75, "1; end them first, or stop the supervisor together with them (supervisor stop --sessions=end)", "stop", "--all"); strings.Count(r.Out, "stopped") != 2 {
		t.Errorf("stop --all beside a session: %v", r)
	}
	held := w.Only("supervisor")
	w.must("kill", "s") // an exited session does not run
	if out := w.must("stop", "--all"); strings.Count(out, "stopped") != 2 {
		t.Errorf("stop --all: %s", out)
	}
	if !eventually(func() bool { return len(w.Running("")) == 0 }) {
		t.Errorf("%v still run; the supervisor was %v", w.Running(""), held)
	}
	w.fails(69, "nothing runs here", "stop", "--all")
}

// A command that starts a session must start a proxy again if the one that it has asked was stopped meanwhile.
func TestNewBesideStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("start")
	supervisor := w.Only("supervisor")
	supervisor.Signal(syscall.SIGSTOP) // so that it does not answer before the proxy ends
	p := w.open("new", "-d", "--id", "s", "--", "sleep", "1000")
	p.expect("let it continue")
	old := w.Only("proxy")
	w.must("stop")
	if !eventually(func() bool { return !old.Running() }) {
		t.Fatal("the proxy has not ended after stop")
	}
	supervisor.Signal(syscall.SIGCONT)
	p.ends(0, "s")
}

// If a supervisor holds sessions, a proxy must start although it cannot open its log, as on a disk that is read-only. If none
// runs, the user must learn the cause at once.
func TestNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noLog := func(dir string) {
		for _, name := range []string{"proxy.log", "proxy.crash"} {
			path := filepath.Join(dir, name)
			testkit.Must(t, errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)))
		}
	}
	w.spawn("s", "sleep", "1000")
	w.must("stop")
	noLog(w.Dir)
	if out := w.must("ls"); !strings.Contains(out, "sleep 1000") {
		t.Errorf("ls: %s", out)
	}
	w.must("handoff")
	w.must("kill", "s")
	w.must("stop", "--all")
	noLog(w.Dir)
	w.fails(70, "proxy.log", "new", "-d")
}

// A supervisor without sessions and without a proxy must end, and its keeper with it.
func TestEmptySupervisorEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_EMPTY_TIMEOUT=2s") // longer than the first proxy needs to connect on a busy machine
	w.must("start")
	w.Only("keeper")
	w.must("stop")
	if !eventually(func() bool { return len(w.Running("")) == 0 }) {
		t.Errorf("%v still run", w.Running(""))
	}
	if log := w.read("supervisor.log"); strings.Count(log, "supervisor ends: it had no session") != 1 || strings.Contains(log, "another") {
		t.Errorf("the log contains %s", log)
	}
}

// A wrong setting, or a mistyped variable, must make a command fail before any program is started.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := w.Env
	with := func(variable string) { w.Env = append(slices.Clone(plain), variable) }
	w.fails(64, "--web", "serve", "--web", "8080")
	w.fails(78, "policy", "serve", "--policy", "/no/such/program")
	with("HOLDFAST_WEB=8080")
	w.fails(64, "--web", "new", "-d")
	with("HOLDFAST_RING_BYTES=x")
	w.fails(78, "HOLDFAST_RING_BYTES", "new", "-d")
	w.fails(78, "HOLDFAST_RING_BYTES", "serve")
	with("HOLDFAST_RING_BYTE=65536")
	w.fails(78, "did you mean HOLDFAST_RING_BYTES", "ls")
	with("HOLDFAST_TASK_ID=7") // a variable of another application
	w.fails(69, "nothing runs here", "ls")
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("commands with mistakes have started %v", all)
	}
	w.Env = plain

	// On a terminal, serve must log in a readable form.
	p := w.open("serve")
	p.expect("proxy serves")
	if strings.Contains(p.text(), `{"level"`) {
		t.Errorf("serve on a terminal logs JSON: %s", p.text())
	}
	p.typ("\x03")
	if code := p.wait(); code != 0 {
		t.Errorf("serve exits with %d, %s", code, p.text())
	}
}

// A policy that does not start must be tried once, and the error must contain its last line. doctor must try
// it too.
func TestPolicyThatDoesNotStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "sleep", "1000")
	w.must("stop")
	policy := w.write("policy", "#!/bin/sh\necho starting >&2; echo 'no module named grpc' >&2; echo >&2; exit 3\n")
	testkit.Must(t, os.Chmod(policy, 0o700))
	w.Env = append(w.Env, "HOLDFAST_POLICY="+policy)
	for i, args := range [][]string{{"ls"}, {"new", "-d", "--", "sleep", "1000"}} {
		w.fails(78, `and said "no module named grpc"`, args...)
		if tries := strings.Count(w.read("proxy.log"), `"message":"proxy failed"`); tries != i+1 {
			t.Errorf("%v tried the policy %d times", args, tries-i)
		}
	}
	if r := w.proxy("doctor"); r.Code != 2 || !strings.Contains(r.Out, "no module named grpc") {
		t.Errorf("doctor: %v", r)
	}
}

// The commands must accept the syntax that users know from docker and ssh.
func TestHabits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if r := w.proxy("run", "sh", "-c", "echo hi; exit 3"); r.Code != 3 || r.Out != "hi\n" {
		t.Errorf("run without --: %v", r)
	}
	w.fails(66, "no session runs", "attach")
	w.must("new", "-d", "--id", "one", "sleep", "1000")
	w.must("new", "-d", "--id", "two", "--", "bash", "--norc", "--noprofile")
	if argv := w.object("info", "one", "--json")["argv"]; argv.([]any)[1] != "1000" {
		t.Errorf("new without --: %v", argv)
	}
	p := w.open("new", "-A", "--id", "two", "sleep", "7")
	p.ask("echo here-$((1+1))", "here-2")
	p.typ("\x1cd")
	p.ends(0, "[detached from two]")
	w.fails(124, "timeout", "wait", "one", "--timeout", "0.01")
	if out := w.must("handoff", "--dry-run"); !strings.Contains(out, "could take over") {
		t.Errorf("handoff --dry-run: %s", out)
	}
	w.fails(66, "session_not_found", "kill", "one", "none", "two", "--forget")
	if out := w.must("ls", "--json"); out != "[]\n" {
		t.Errorf("after kill of several sessions ls prints %s", out)
	}
	if out := w.must("help"); !strings.Contains(out, "Sessions:") || strings.Contains(out, "--from-dir") || !strings.Contains(out, "completion") {
		t.Errorf("help: %s", out)
	}
}
