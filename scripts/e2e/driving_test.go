package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A driver controls a program through the command line alone, as a script does, and waits only for the
// contents of the program's screen. It calls between before each step.
type driver struct {
	*world
	id      string
	between func()
}

// patient is the longest time of a step.
const patient = "25s"

// is runs a step, which must succeed with the output want.
func (d *driver) is(want string, args ...string) {
	d.T.Helper()
	if r := d.step(args...); r.Code != 0 || strings.TrimSpace(r.Out) != want {
		d.T.Fatalf("proxy %s: %v, want %q", strings.Join(args, " "), r, want)
	}
}

// has runs a step, which must succeed and contain want in its output.
func (d *driver) has(want string, args ...string) {
	d.T.Helper()
	if r := d.step(args...); r.Code != 0 || !strings.Contains(r.Out, want) {
		d.T.Fatalf("proxy %s: %v, want %q in it", strings.Join(args, " "), r, want)
	}
}

// ends runs a step during which the program must exit with code.
func (d *driver) ends(code int, args ...string) {
	d.T.Helper()
	if r := d.step(args...); r.Code != code || r.Out != "" || !strings.Contains(r.Errout, "ended first") {
		d.T.Fatalf("proxy %s: %v, want exit %d", strings.Join(args, " "), r, code)
	}
}

// step runs send or wait on the session.
func (d *driver) step(args ...string) result {
	d.T.Helper()
	d.between()
	all := append([]string{args[0], d.id, "--timeout", patient}, args[1:]...)
	r := d.Run("proxy", all...)
	if r.Code == 124 {
		d.T.Logf("the screen is\n%s", d.Run("proxy", "screen", d.id).Out)
	}
	return r
}

// driven runs a test three times: undisturbed, while the proxy is replaced before each step, and while the
// supervisor is killed before each step.
func driven(t *testing.T, test func(t *testing.T, drive func(id string, argv ...string) *driver)) {
	for name, between := range map[string]func(*world){
		"undisturbed": func(*world) {}, "handoffs": (*world).handOff, "supervisors killed": func(w *world) { w.KillSupervisor() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "HOME="+t.TempDir(), "TERM=xterm-256color", "PYTHON_BASIC_REPL=1", "HOLDFAST_CRASH_LIMIT=100", "HOLDFAST_CRASH_PAUSE=1ms")
			test(t, func(id string, argv ...string) *driver {
				w.Must("proxy", append([]string{"new", "--detach", "--id", id, "--cwd", w.Dir, "--"}, argv...)...)
				return &driver{w, id, func() { between(w) }}
			})
		})
	}
}

// installed returns the path of a program, or skips the test.
func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// A script drives a REPL: the REPL computes, receives a function of several lines as a paste, and is ended.
// No step waits for a fixed time.
func TestDriveREPL(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(installed(t, "python3"), "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip(err)
	}
	python := strings.TrimSpace(string(out)) // the interpreter itself, not a wrapper that needs the home directory
	driven(t, func(t *testing.T, drive func(string, ...string) *driver) {
		d := drive("repl", python, "-q")
		d.is(">>>", "wait", "--text", "^>>>$")
		d.is("42", "send", "6 * 7", "--enter", "--wait-text", "^42$")
		d.is("42", "send", "6 * 7", "--enter", "--wait-text", "^42$") // the same output again counts as new
		d.is("15", "send", "def f(n):\n    if n:\n        return n * 3\n\nf(5)\n", "--wait-text", `^\d+$`)
		d.is("a5000", "send", "for i in range(5001): print(f'a{i}')\n\n", "--wait-text", "^a5000$") // text far above the screen counts too
		d.is("a17", "send", "for i in range(5001): print(f'a{i}')\n\n", "--wait-text", "^a17$")
		d.has(`"groups"`, "send", "print('x' * 100 + 'END')", "--enter", "--wait-text", "^(x{100})END$", "--json")
		d.ends(3, "send", "exit(3)", "--enter", "--wait-text", "never")
		if r := d.Run("proxy", "wait", "repl"); r.Code != 3 {
			t.Errorf("wait of the ended REPL: %v, want exit 3", r)
		}
	})
}

// A script drives an editor: the file must contain the typed text, the pasted text and the effect of the
// keys.
func TestDriveEditor(t *testing.T) {
	t.Parallel()
	vim := installed(t, "vim")
	driven(t, func(t *testing.T, drive func(string, ...string) *driver) {
		d := drive("edit", vim, "-N", "-u", "NONE", "-i", "NONE", "-n", "-c", "set showmode ruler esckeys autoindent", "text")
		d.has("[New]", "wait", "--text", `\[New\]`)
		d.has("-- INSERT --", "send", "i", "--wait-text", "-- INSERT --")
		d.is("one", "send", "one", "--wait-text", "^one$") // with --enter the match would be the echo, which does not count
		d.is("", "send", "--enter", "--wait-idle", "50ms")
		d.has("    three", "send", "    two\n    three\n", "--wait-text", "^ +three$") // a bracketed paste, so the editor does not indent it
		d.is("", "send", "--key", "Up", "--key", "Up", "--key", "Home", "--wait-idle", "50ms")
		d.has("zero    two", "send", "zero", "--wait-text", "zero")
		d.is("", "send", "--key", "Escape", "--wait-idle", "50ms")
		d.has("written", "send", ":w", "--enter", "--wait-text", "written")
		if b, err := os.ReadFile(d.Path("text")); err != nil || strings.TrimRight(string(b), " \n") != "one\nzero    two\n    three" {
			t.Errorf("the editor has written %q, %v", b, err)
		}
		d.ends(5, "send", ":5cq", "--enter", "--wait-text", "never")
	})
}

// A script drives a full-screen program by its function keys, and notices its exit.
func TestDriveFullScreen(t *testing.T) {
	t.Parallel()
	htop := installed(t, "htop")
	driven(t, func(t *testing.T, drive func(string, ...string) *driver) {
		d := drive("top", htop)
		d.has("F10Quit", "wait", "--text", "F10Quit")
		d.has("(C)", "send", "--key", "F1", "--wait-text", `htop [0-9.]+ - \(C\)`)
		d.has("F10Quit", "send", "x", "--wait-text", "F10Quit") // any key leads back
		d.ends(1, "send", "--key", "F10", "--wait-text", "never")
	})
}

// Commands that wait must continue while proxy and supervisor are replaced.
func TestWaitThroughReplacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "new", "--detach", "--id", "s", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo got $x; done")
	w.Must("proxy", "wait", "s", "--text", "ready", "--timeout", patient)
	mark := strings.TrimSpace(w.Must("proxy", "mark", "s"))
	type waiter struct {
		args []string
		done chan result
	}
	var waiters []waiter
	for _, args := range [][]string{{"--text", "^got (it)$", "--since", mark}, {"--text", "^got it$"}, {"--exit"}} {
		a := waiter{append([]string{"wait", "s", "--timeout", "60s"}, args...), make(chan result, 1)}
		go func() {
			r, err := w.Try("proxy", a.args...)
			if err != nil {
				r.Errout += err.Error()
			}
			a.done <- r
		}()
		waiters = append(waiters, a)
	}
	w.handOff()
	w.KillSupervisor()
	w.handOff()
	w.Must("proxy", "send", "s", "it", "--enter", "--wait-text", "^got it$", "--timeout", patient)
	for _, a := range waiters[:2] {
		if r := testkit.Within(t, limit, "the waiting command ends", a.done); r.Code != 0 || r.Out != "got it\n" {
			t.Errorf("%v: %v", a.args, r)
		}
	}
	w.Must("proxy", "send", "s", "--key", "C-d")
	if r := testkit.Within(t, limit, "the command that waits for the exit ends", waiters[2].done); r.Code != 0 || r.Out != "" {
		t.Errorf("%v: %v", waiters[2].args, r)
	}
	if r := w.Run("proxy", "wait", "s", "--since", mark, "--text", "^got (.*)$", "--json"); r.Code != 0 || !strings.Contains(r.Out, `"it"`) {
		t.Errorf("wait for a text of an exited session: %v", r)
	}
}
