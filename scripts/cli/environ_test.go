//go:build linux

package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	programs "holdfast/shared/testkit/world"
)

// The environment of the command that first starts the daemons must not stay in the daemons, nor reach the
// sessions of other commands. A session must have the environment of its own command.
func TestEnvironmentStaysWithItsCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := slices.Clone(w.Env)
	w.Env = append(w.Env, "DEPLOY_TOKEN=hush", "HOLDFAST_TOKEN=hush", "SOMETHING=hush", "EDITOR=first")
	w.must("new", "-d", "--id", "first", "--env", "GIVEN=hush", "--", "sleep", "1000")
	w.Env = append(plain, "EDITOR=second")
	w.must("new", "-d", "--id", "second", "--", "sleep", "1000")
	w.must("--handoff")
	look := func(what string, pid int) []string {
		t.Helper()
		env := programs.Strings(fmt.Sprintf("/proc/%d/environ", pid))
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
			t.Errorf("%s: the environment %q lacks PATH", what, env)
		}
		for _, e := range env {
			if name, _, _ := strings.Cut(e, "="); strings.HasSuffix(e, "=hush") && !(what == "first" && name == "GIVEN") {
				t.Errorf("the environment of %s contains %s", what, e)
			}
		}
		return env
	}
	for _, program := range []string{"proxy", "keeper", "supervisor"} {
		look(program, w.Only(program).PID) // the old proxy may be about to end, and then has no environment
	}
	for _, id := range []string{"first", "second"} {
		env := look(id, int(w.object("info", id, "--json")["pid"].(float64)))
		if !slices.Contains(env, "EDITOR="+id) || !slices.Contains(env, "HOLDFAST_DIR="+w.Dir) || (id == "first") != slices.Contains(env, "GIVEN=hush") {
			t.Errorf("the environment of session %s is %q", id, env)
		}
	}
}

// A command whose argument is not UTF-8 is not started, because it would get another argument and act on another file. A
// variable of the user's environment that is not UTF-8 is left out, with one warning.
func TestTextOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.write("a\uFFFDb", "other")
	w.fails(64, "argument 2 is not UTF-8 text, and cannot be passed", "run", "--", "rm", "-v", w.Path("a\xffb"))
	if got := w.read("a\uFFFDb"); got != "other" {
		t.Errorf("%s has become %q", other, got)
	}
	w.fails(64, "cwd is not UTF-8 text", "new", "-d", "--cwd", "/a\xff", "--", "true")
	w.spawn("s", "sleep", "1000")
	w.must("kill", "s")
	w.fails(64, "argument 1 is not UTF-8 text", "reopen", "s", "-d", "--", "rm", "a\xff")

	w.Env = append(w.Env, "EDITOR=hush\xff", "DISPLAY=:\xff", "VISUAL=vi")
	r := w.proxy("run", "--", "sh", "-c", `echo "$VISUAL-$EDITOR-$DISPLAY"`)
	if r.Code != 0 || r.Out != "vi--\n" || strings.Count(r.Errout, "not UTF-8 text are not passed to the session: ") != 1 || strings.Contains(r.Errout, "hush") {
		t.Errorf("%v", r)
	}
}
