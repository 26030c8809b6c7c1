//go:build linux

package cli

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/shared/testkit"
	programs "holdfast/shared/testkit/world"
)

const limit = programs.Limit

type result = programs.Result

var eventually = programs.Eventually

// A world runs the programs, with the terminals of these tests.
type world struct{ *programs.World }

// newWorld returns a world in which no process runs. Its commands run in its directory.
func newWorld(t testing.TB) *world {
	t.Helper()
	bin := testkit.Build(t, testkit.Programs...)
	dir := testkit.Dir(t)
	w := &world{programs.New(t, dir, "", bin, "PATH="+bin+":"+os.Getenv("PATH"),
		"TERM=xterm-256color", "LANG=C.UTF-8", "SHELL=/bin/bash", "PS1=$ ")}
	w.Cwd = dir
	t.Cleanup(w.End)
	return w
}

func (w *world) mkdir(name string) string {
	w.T.Helper()
	testkit.Must(w.T, os.MkdirAll(w.Path(name), 0o700))
	return w.Path(name)
}

func (w *world) write(name, text string) string {
	w.T.Helper()
	testkit.Must(w.T, os.WriteFile(w.Path(name), []byte(text), 0o600))
	return w.Path(name)
}

// read returns the contents of a file, or "" if it does not exist.
func (w *world) read(name string) string {
	b, _ := os.ReadFile(w.Path(name))
	return string(b)
}

// proxy runs a proxy command until it ends.
func (w *world) proxy(args ...string) result {
	w.T.Helper()
	return w.run(exec.Command(w.Program("proxy"), args...), nil)
}

// run runs any program of the world, with in as standard input, until it ends.
func (w *world) run(cmd *exec.Cmd, in io.Reader) result {
	w.T.Helper()
	cmd.Stdin = in
	return w.RunCommand(cmd)
}

// must runs a proxy command that must succeed, and returns its output.
func (w *world) must(args ...string) string {
	w.T.Helper()
	r := w.proxy(args...)
	if r.Code != 0 {
		w.T.Fatalf("proxy %s: %v", strings.Join(args, " "), r)
	}
	return r.Out
}

// fails runs a command that must end with a code and an error text.
func (w *world) fails(code int, says string, args ...string) result {
	w.T.Helper()
	r := w.proxy(args...)
	if r.Code != code || !strings.Contains(r.Errout, says) {
		w.T.Errorf("proxy %s: %v, want exit %d, %q", strings.Join(args, " "), r, code, says)
	}
	return r
}

// object runs a command that prints a JSON object.
func (w *world) object(args ...string) map[string]any {
	w.T.Helper()
	return decode[map[string]any](w.T, w.must(args...))
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
	w.T.Helper()
	w.must(append([]string{"new", "-d", "--early-exit", "0", "--id", id, "--"}, argv...)...)
}

// shell starts a session that runs a script.
func (w *world) shell(id, script string) {
	w.T.Helper()
	w.spawn(id, "/bin/sh", "-c", script)
}

// shows waits until the text of a session's screen contains want.
func (w *world) shows(id, want string) {
	w.T.Helper()
	var text string
	if !eventually(func() bool {
		text = w.must("screen", id, "--lines", "1000")
		return strings.Contains(text, want)
	}) {
		w.T.Fatalf("the screen of session %s does not contain %q; it is %q", id, want, text)
	}
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
