//go:build linux

package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A lost session must be started again when the user agrees, or if its label says so. A lost run must be reported as lost,
// and a run that was started again must be the same run.
// demand: D1
func TestRevive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_RESUME_ARGV=sh=sh -c {again}")
	w.shell("asks", "echo first; exec cat")
	w.must("new", "-d", "--id", "shell", "--label", "revive=shell", "--", "sh", "-c", "echo first; exec cat")
	w.must("new", "-d", "--id", "argv", "--label", "revive=argv", "--", "sh", "-c", "echo first; exec cat")
	w.must("new", "-d", "--id", "resumes", "--label", "again=echo resumed; exec cat", "--", "sh", "-c", "echo first; exec cat")
	w.must("new", "-d", "--id", "fails", "--label", `resume_argv=sh -c "echo a=1,b=2; exit 7"`, "--", "sh", "-c", "echo first; exec cat")
	for _, id := range []string{"asks", "shell", "argv", "resumes", "fails"} {
		w.shows(id, "first")
	}
	watcher := w.open("attach", "asks")
	watcher.expect("first")
	command := []string{"--", "/bin/sh", "-c", `echo first; read x; echo "got $x"; exit 5`}
	line := append([]string{"run", "--id", "k"}, command...)
	run := w.begin(line...)
	if !eventually(func() bool { return w.proxy("info", "k").Code == 0 }) {
		t.Fatal("the run does not start")
	}
	w.shows("k", "first")
	w.loseSessions("asks", "shell", "argv", "resumes", "fails", "k")

	const says = "run k was lost with the machine"
	if r := w.wait(run); r.Code != 70 || !strings.Contains(r.Errout, says) {
		t.Errorf("the command that watches the run: %v, want exit 70, %q", r, says)
	}
	if r := w.fails(70, says, line...); r.Out != "first\n" || strings.Contains(r.Errout, "no longer kept") {
		t.Errorf("the output of the lost run: %v, want what is stored", r)
	}
	w.fails(70, "session k was lost with the machine", "wait", "k")
	w.fails(66, "session k was lost with the machine", "send", "k", "x")
	w.fails(66, "session k was lost with the machine", "kill", "k")
	w.fails(73, "session_exists: run k has another command", "run", "--id", "k", "--", "true")
	w.must(append([]string{"revive", "-d", "k"}, command...)...)
	w.must("send", "k", "it", "--enter")
	if r := w.proxy(line...); r.Code != 5 || !strings.HasSuffix(r.Out, "got it\n") {
		t.Errorf("the run that was started again: %v", r)
	}

	watcher.expect("[asks was lost with the machine; this is its screen at ")
	watcher.expect("? y or n")
	watcher.typ("n\r")
	watcher.ends(0, "")
	p := w.open("attach", "asks")
	p.expect("start it again in " + w.Dir + "? y or n")
	p.typ("n\r")
	p.ends(0, "")
	p = w.open("attach", "asks")
	p.expect("? y or n")
	w.signal(p.cmd.Process, syscall.SIGTERM)
	p.ends(143, "")
	p, second := w.open("attach", "asks"), w.open("attach", "asks")
	p.expect("? y or n")
	second.expect("? y or n")
	p.typ("y\r")
	p.typ("echo $((6*7))\r") // no input is lost, even before the shell prompts
	w.shows("asks", "\n42\n")
	second.typ("y\r") // it attaches to the session that the first one has started
	second.typ("echo $((7*7))\r")
	w.shows("asks", "\n49\n")
	second.close()
	p.close()
	p = w.open("attach", "shell")
	p.expect("because revive is shell")
	p.typ("echo $((6*7))\r")
	w.shows("shell", "\n42\n")
	p.close()
	p = w.open("attach", "argv")
	p.expect("because revive is argv")
	w.shows("argv", "──\nfirst\n")
	p.typ("echoed\r")
	w.shows("argv", "first\nechoed\nechoed\n")
	p.close()
	w.must("revive", "-d", "resumes")
	w.shows("resumes", "resumed")
	w.revivalFails("fails", "-d", "fails")
	w.revivalFails("fails", "--all")
	p = w.open("revive", "fails")
	p.expect("a=1,b=2")
	p.ends(7, "exited_early")
	w.isLost("fails")
}

// revivalFails starts a lost session again whose command fails with code 7 at once. The session must be lost as before, so
// that nothing of it is deleted.
func (w *world) revivalFails(id string, args ...string) {
	w.T.Helper()
	w.fails(7, "exited_early", append([]string{"revive"}, args...)...)
	w.isLost(id)
}

func (w *world) isLost(id string) {
	w.T.Helper()
	if state := w.object("info", id, "--json")["state"]; state != "lost" {
		w.T.Errorf("the state of %s is %v, want lost", id, state)
	}
}

// loseSessions waits until the sessions are stored, and ends both programs, so that the sessions are lost.
func (w *world) loseSessions(ids ...string) {
	w.T.Helper()
	for _, id := range ids {
		if !eventually(func() bool {
			stored, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", id+"@*", "0*"))
			return len(stored) > 0
		}) {
			w.T.Fatalf("session %s is not stored", id)
		}
	}
	w.Kill(w.Only("proxy"))
	w.KillBoth()
}

// The own command of a session must be complete when it is started again, although a client sees only its
// first part.
// demand: D1
func TestReviveLongCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	argv := []string{"new", "-d", "--id", "long", "--label", "revive=argv", "--", "sh", "-c", `for last; do :; done; echo "arguments: $#, last: $last"; exec cat`, "sh"}
	for i := range 3000 {
		argv = append(argv, fmt.Sprintf("argument-%09d", i))
	}
	w.must(argv...)
	const want = "arguments: 3000, last: argument-000002999\n"
	w.shows("long", want)
	w.loseSessions("long")
	w.must("revive", "-d", "long")
	w.shows("long", "──\n"+want)
}

// A session that is started again without a question must be shown before a key is pressed, and must receive
// each key once.
// demand: D1
func TestReviveWithoutKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("new", "-d", "--id", "argv", "--label", "revive=argv", "--", "sh", "-c", "echo first; exec cat")
	w.shows("argv", "first")
	w.loseSessions("argv")
	p := w.open("attach", "argv")
	p.expect("because revive is argv")
	p.expect("first")
	p.typ("echoed\r")
	w.shows("argv", "first\nechoed\nechoed\n")
	p.typ("\x04") // the end of the input ends cat
	p.ends(0, "")
	if text := w.must("screen", "argv", "--lines", "1000"); strings.Count(text, "echoed") != 2 {
		t.Errorf("the screen is %q; cat must receive the line once", text)
	}
}
