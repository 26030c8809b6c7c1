//go:build linux

package cli

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// printEnv prints the environment of a session, one fact per line, and waits.
const printEnv = `pwd; stty size; echo "V=$V W=$W HOME=$HOME id=$HOLDFAST_SESSION"; read x`

func TestNewFlags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cwd := w.mkdir("some dir")

	if out := w.must("new", "--detach", "--id", "named", "--", "/bin/sh", "-c", printEnv); out != "named\n" {
		t.Errorf("new --detach prints %q", out)
	}
	w.shows("named", "id=named")
	w.shows("named", w.Dir+"\n24 80\n")
	w.shows("named", "HOME="+w.Path("home"))

	w.must("new", "-d", "--id", "all", "--size", "101x31", "--cwd", cwd, "--env", "V=1 2", "--env", "W==", "--label", "title=Build it",
		"--label", "k=v", "--scrollback", "77", "--originator", "tests", "--", "/bin/sh", "-c", printEnv)
	w.shows("all", cwd+"\n31 101\nV=1 2 W== HOME="+w.Path("home")+" id=all")
	info := w.object("info", "all", "--json")
	if got := fmt.Sprint(info["labels"]); got != "map[k:v title:Build it]" {
		t.Errorf("the labels are %v", got)
	}
	if info["scrollback_lines"] != 77.0 || info["originator"] != "tests" || info["cwd"] != cwd {
		t.Errorf("info prints %v", info)
	}

	// A relative directory is relative to the caller's directory.
	w.must("new", "-d", "--id", "relative", "--cwd", "some dir", "--", "/bin/sh", "-c", printEnv)
	w.shows("relative", cwd+"\n")

	w.must("new", "-d", "--id", "clear", "--clear-env", "--env", "PATH=/bin:/usr/bin", "--env", "V=only", "--", "/bin/sh", "-c", printEnv)
	w.shows("clear", "V=only W= HOME= id=clear")

	// A warning says that the shell does not report its commands.
	for shell, warns := range map[string]bool{"bash --norc": true, "sh": true, "bash -i": false} {
		r := w.proxy(append([]string{"new", "-d", "--shell-integration", "--"}, strings.Fields(shell)...)...)
		if r.Code != 0 || strings.Contains(r.Errout, "--shell-integration has no effect") != warns {
			t.Errorf("%s: exit code %d, %q", shell, r.Code, r.Errout)
		}
	}

	// Without --id, new makes an id. Without a command, it starts the login shell.
	id := strings.TrimSpace(w.must("new", "-d"))
	info = w.object("info", id, "--json")
	if got := fmt.Sprint(info["argv"]); info["id"] != id || got != "[/bin/bash -l]" {
		t.Errorf("new -d makes %v", info)
	}
}

// demand: K1 K2 K3 K10
func TestEarlyExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const script = `for i in 1 2 3; do echo "line $i"; done; exit 3`
	r := w.fails(3, "exited_early: session early exited with code 3 right after its start\n  line 1\n  line 2\n  line 3\n",
		"new", "-d", "--early-exit", "20s", "--id", "early", "--", "/bin/sh", "-c", script)
	if r.Out != "" {
		t.Errorf("new prints an id although the session has ended early: %v", r)
	}
	w.fails(66, "session_not_found", "info", "early")

	// A viewer must see the same.
	p := w.open("new", "--early-exit", "20s", "--id", "early", "--", "/bin/sh", "-c", setModes+script)
	p.expect("line 3")
	p.ends(3, "exited_early: session early exited with code 3 right after its start")
	w.must("kill", "early", "--forget") // the record is kept, because the viewer may read the output

	// A session that ends early with success must be reported as one that has ended, and its record must
	// stay. A signal must give the exit code of the signal.
	r = w.proxy("new", "-d", "--early-exit", "20s", "--id", "done", "--", "echo", "hi")
	if r.Code != 0 || r.Out != "done\n" || !strings.Contains(r.Errout, "session done has already ended with code 0") {
		t.Errorf("new -d of a command that ends with success: %v", r)
	}
	w.must("kill", "done", "--forget")
	p = w.open("new", "--early-exit", "20s", "--id", "done", "--", "echo", "hi")
	p.expect("hi")
	p.ends(0, "")
	w.must("kill", "done", "--forget")
	w.fails(137, "exited by SIGKILL", "new", "-d", "--early-exit", "20s", "--", "/bin/sh", "-c", "kill -9 $$")
	if out := w.must("ls", "--json"); out != "[]\n" {
		t.Errorf("sessions are still listed: %s", out)
	}

	// With --early-exit 0, new must create the session without waiting.
	w.must("new", "-d", "--early-exit", "0", "--id", "kept", "--", "/bin/sh", "-c", script)
	if r := w.proxy("wait", "kept"); r.Code != 3 {
		t.Errorf("wait: %v", r)
	}
	w.fails(73, "session_exists", "new", "-d", "--id", "kept", "--", "sleep", "1000")
	w.fails(71, "spawn_failed", "new", "-d", "--", "no-such-program")
	w.fails(71, "spawn_failed", "new", "-d", "--cwd", "/no/such/directory", "--", "true")
}

// demand: K11
func TestAttachToExited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "echo last words; exit 6")
	if r := w.proxy("wait", "s"); r.Code != 6 {
		t.Errorf("wait: %v", r)
	}
	w.fails(6, "session_exited: session s has exited with code 6\n  last words\n", "attach", "s")
	w.shell("fine", "echo last words")
	w.must("wait", "fine")
	w.fails(66, "session_exited: session fine has exited with code 0\n  last words\n", "attach", "fine")
}

// If a session ends before the viewer has attached, its output must be shown.
func TestShortCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.proxy("new", "--early-exit", "0", "--", "/bin/sh", "-c", "echo quick; exit 9")
	if r.Code != 9 || r.Out != "quick\r\n" || r.Errout != "" {
		t.Errorf("new of a short command: %v", r)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cwd := w.mkdir("there")
	w.must("new", "-d", "--id", "s", "--size", "101x31", "--cwd", cwd, "--env", "V=kept", "--label", "k=v", "--originator", "tests",
		"--", "/bin/sh", "-c", printEnv)
	w.fails(75, "session_running", "reopen", "s", "-d")
	before := w.object("info", "s", "--json")
	w.must("kill", "s")
	if out := w.must("reopen", "s", "--detach"); out != "s\n" {
		t.Errorf("reopen --detach prints %q", out)
	}
	w.shows("s", cwd+"\n31 101\nV=kept")
	after := w.object("info", "s", "--json")
	for _, field := range []string{"id", "argv", "cwd", "size", "labels", "originator"} {
		if fmt.Sprint(before[field]) != fmt.Sprint(after[field]) {
			t.Errorf("%s was %v and is %v", field, before[field], after[field])
		}
	}
	for _, field := range []string{"instance", "pid", "created_at"} {
		if before[field] == after[field] {
			t.Errorf("%s is the same: %v", field, after[field])
		}
	}

	// Reopen with another command, with a viewer.
	w.must("kill", "s")
	p := w.open("reopen", "s", "--early-exit", "0", "--", "/bin/sh", "-c", "echo again V=$V; read x; exit 2")
	p.expect("again V=kept")
	p.typ("\r")
	p.ends(2, "")
	w.fails(3, "exited_early", "reopen", "s", "-d", "--early-exit", "20s", "--", "/bin/sh", "-c", "exit 3")
	before = w.object("info", "s", "--json")
	if code := fmt.Sprint(before["exit_code"]); code != "2" {
		t.Errorf("after a failed reopen the exit code is %s, want 2 of the previous life", code)
	}
	p = w.open("reopen", "s", "--early-exit", "20s", "--", "/bin/sh", "-c", "echo fails; exit 5")
	p.expect("fails")
	p.ends(5, "exited_early")
	if again := w.object("info", "s", "--json"); again["instance"] != before["instance"] {
		t.Errorf("after a failed reopen with a viewer info prints %v", again)
	}
}

// Mistakes in a command line must be reported before any program is started.
func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{
		{"no-such-command"},
		{"--no-such-flag"},
		{"ls", "--no-such-flag"},
		{"ls", "argument"},
		{"attach", "a", "b"},
		{"attach", "no id"},
		{"attach", "s", "--detach-key", "F1"},
		{"attach", "s", "--read-only", "--exclusive"},
		{"run"},
		{"new", "--id", "no id"},
		{"new", "--id", strings.Repeat("x", 65)},
		{"new", "--id", "-x"},
		{"new", "--scrollback", "-1"},
		{"new", "--label", "=v"},
		{"new", "--label", "a\x1b=v"},
		{"new", "--label", "idle_timeout=soon"},
		{"run", "--scrollback", "-1", "--", "true"},
		{"new", "--size", "80"},
		{"new", "--size", "80x0"},
		{"new", "--size", "0x24"},
		{"new", "--size", "80x24x3"},
		{"new", "--size", "99999x24"},
		{"new", "--size", "-80x24"},
		{"new", "--env", "novalue"},
		{"new", "--label", "novalue"},
		{"new", "--early-exit", "soon"},
		{"new", "--detach-key", "F1", "--", "sleep", "1000"},
		{"reopen"},
		{"reopen", "s", "command"},
		{"info"},
		{"wait", "s", "--timeout", "x"},
		{"kill", "s", "--signal", "INT", "--forget"},
		{"send"},
		{"send", "s"},
		{"send", "s", "-la"},
		{"resize", "s"},
		{"resize", "s", "0x0"},
		{"screen", "s", "--lines", "many"},
		{"completion", "bash", "argument"},
		{"serve", "argument"},
		{"--proxy", "no name", "ls"},
	} {
		r := w.proxy(args...)
		if r.Code != 64 || r.Out != "" || !strings.HasPrefix(r.Errout, "proxy: ") {
			t.Errorf("proxy %s: %v, want exit 64 and the mistake", strings.Join(args, " "), r)
		}
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("commands with mistakes have started %v", all)
	}
	for _, args := range [][]string{{}, {"--help"}, {"help", "attach"}, {"attach", "--help"}, {"--version"}} {
		if r := w.proxy(args...); r.Code != 0 || r.Out == "" || r.Errout != "" {
			t.Errorf("proxy %s: %v", strings.Join(args, " "), r)
		}
	}
	w.fails(64, "did you mean attach or detach?", "atach") // the error suggests the right command
	w.fails(64, "kill ID --forget", "rm", "x")
	w.fails(64, "stop --all", "kill-server")
	w.fails(64, "an argument is missing", "info")
	w.fails(64, "put -- before", "send", "s", "-la")
}

// Each failure must have its own exit code, so that scripts need not parse the text.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(69, "no proxy runs here", "stop")
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("stop has started %v", all)
	}
	w.must("start")
	for _, args := range [][]string{
		{"attach", "none"}, {"info", "none"}, {"kill", "none"}, {"wait", "none"}, {"screen", "none"}, {"reopen", "none"},
		{"resize", "none", "80x24"}, {"send", "none", "text"}, {"kill", "none", "--signal", "INT"},
		{"send", "none", "--file", "/no/such/file"},
		{"send", "none", "--file", "/"},
	} {
		w.fails(66, "", args...)
	}
	w.shell("s", "read x; exit 42")
	w.fails(73, "session_exists", "new", "-d", "--id", "s", "--", "sleep", "1000")
	w.fails(75, "session_running", "reopen", "s")
	w.fails(124, "timeout", "wait", "s", "--timeout", "10ms")
	w.fails(124, "timeout", "wait", "s", "--timeout", "0")
	p := w.open("wait", "s") // ctrl-c must end it silently
	w.clients(1)
	p.typ("\x03")
	if code := p.wait(); code != 130 || strings.Trim(p.text(), "\x03") != "" {
		t.Errorf("an interrupted wait: exit %d, %q", code, p.text())
	}
	w.must("send", "s", "--enter")
	if r := w.proxy("wait", "s"); r.Code != 42 || r.Errout != "" {
		t.Errorf("wait: %v", r)
	}
	w.shell("s2", "kill -TERM $$")
	if r := w.proxy("wait", "s2"); r.Code != 143 {
		t.Errorf("wait for a session that a signal ended: %v", r)
	}

	// If the supervisor's program is missing, no program can start.
	lone := newWorld(t)
	lone.Env = append(lone.Env, "HOLDFAST_SUPERVISOR=/no/such/program")
	lone.fails(69, "", "start")
	if out := w.must("stop"); !strings.Contains(out, "the sessions continue") {
		t.Errorf("stop prints %q", out)
	}

	// A directory that other users can read must be refused.
	open := newWorld(t)
	if out, err := exec.Command("chmod", "755", open.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	open.fails(78, "mode 0700", "ls")
}

// tree returns the paths of a directory and of everything in it.
func tree(t *testing.T, dir string) (paths []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return paths
}

// All files must be in the directory of --dir, whatever the environment says. If the path is too long for
// sockets, the sockets must be in a short directory instead.
func TestDir(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dir string
		short     bool
	}{
		{name: "absolute", dir: "{}/here"},
		{name: "relative", dir: "here"},
		{name: "too long for a socket", dir: "{}/" + strings.Repeat("long", 30), short: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			home := tree(t, w.Path("home"))
			dir := strings.ReplaceAll(tt.dir, "{}", w.Dir)
			w.must("--dir", dir, "new", "-d", "--id", "s", "--", "sleep", "1000")
			if out := w.must("ls", "--dir", dir, "--json"); !strings.Contains(out, `"id": "s"`) {
				t.Errorf("ls --dir prints %s", out)
			}
			p := w.open("attach", "s", "--dir", dir)
			p.expect("\x1b[J")
			p.typ("\x1cd")
			p.ends(0, "[detached from s]")

			sockets := filepath.Dir(w.socket(dir))
			t.Cleanup(func() { _ = os.RemoveAll(sockets) })
			if !filepath.IsAbs(dir) {
				dir = w.Path(dir)
			}
			if is := sockets != dir; is != tt.short {
				t.Errorf("the sockets of %s are in %s", dir, sockets)
			}
			names, _ := filepath.Glob(w.Path("*"))
			if want := []string{dir, w.Path("home")}; !slices.Equal(sorted(names), sorted(want)) {
				t.Errorf("the world's directory contains %q, want %q", names, want)
			}
			if now := tree(t, w.Path("home")); !slices.Equal(now, home) {
				t.Errorf("the home directory contains %q, want %q", now, home)
			}
			r := w.run(exec.Command(filepath.Join(w.Bin, "supervisor"), "stop", "--sessions=end", "--dir", dir), nil)
			if r.Code != 0 {
				t.Errorf("supervisor stop: %v", r)
			}
			w.must("stop", "--dir", dir)
		})
	}
}

// socket returns the path of the proxy's socket from the proxy's log.
func (w *world) socket(dir string) string {
	w.T.Helper()
	for line := range strings.Lines(w.read(filepath.Join(strings.TrimPrefix(dir, w.Dir), "proxy.log"))) {
		if m := decode[map[string]any](w.T, line); m["message"] == "proxy serves" {
			return m["path"].(string)
		}
	}
	w.T.Fatal("the proxy's log does not contain the path of its socket")
	return ""
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
