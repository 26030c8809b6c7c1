//go:build linux

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The help of each command must have examples, and each line of them must work. In the examples, "build" is a
// shell, "old" has exited, "server" has printed its port, and "edit" and "repl" are an editor and a REPL.
func TestExamples(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_WEB=127.0.0.1:0")
	// These programs are used in the examples. make must not end if it is the child of a session.
	w.program("make", `case "$HOLDFAST_SESSION $1" in build\ -*|old\ -*) exec cat;; esac; echo "ok, made"`)
	w.program("go", "echo ok")
	w.program("xdg-open", `exec rm "${1#file://}"`) // the proxy removes the file too when the browser has signed in
	w.program("../backup.sh", "echo saved")
	w.write("script.py", "print(6 * 7)\n")
	for _, program := range []string{"proxy", "supervisor"} {
		w.runExamples(program)
	}
}

// program puts a shell script first in the world's PATH.
func (w *world) program(name, script string) {
	w.T.Helper()
	dir := w.mkdir("programs")
	w.write("programs/"+name, "#!/bin/sh\n"+script+"\n")
	if r := w.run(exec.Command("chmod", "+x", dir+"/"+name), nil); r.Code != 0 {
		w.T.Fatal(r)
	}
	for i, e := range w.Env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok && !strings.HasPrefix(path, dir) {
			w.Env[i] = "PATH=" + dir + ":" + path
		}
	}
}

// runExamples runs the examples of a command and of all its subcommands.
func (w *world) runExamples(words ...string) {
	w.T.Helper()
	name := strings.Join(words, " ")
	r := w.run(exec.Command(filepath.Join(w.Bin, words[0]), append(words[1:], "--help")...), nil)
	if r.Code != 0 {
		w.T.Fatalf("%s --help: %v", name, r)
	}
	lines := part(r.Out, "Examples:")
	if len(lines) == 0 {
		w.T.Errorf("%s has no example", name)
	}
	for _, line := range lines {
		w.runExample(strings.TrimSpace(line))
	}
	for _, line := range part(r.Out, "Available Commands:") {
		if sub := strings.Fields(line)[0]; sub != "help" {
			w.runExamples(append(words, sub)...)
		}
	}
}

// part returns the lines of one section of a help text.
func part(help, title string) []string {
	_, rest, ok := strings.Cut(help, "\n"+title+"\n")
	if !ok {
		return nil
	}
	text, _, _ := strings.Cut(rest, "\n\n")
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

var (
	attaching = regexp.MustCompile(`^proxy (attach|new|reopen|record) `)
	detached  = regexp.MustCompile(` (-d|--detach) `)
	serving   = regexp.MustCompile(`^(proxy serve|supervisor)($| -| #)`)
)

// exampleCodes are the expected exit codes of examples that do not end with 0, by the beginning of the line.
var exampleCodes = map[string]int{
	"proxy history build --command -1": 66, // no command has ended in the example's session
	"proxy doctor":                     1,  // its warnings do not concern the example
	"proxy service status":             69,
	"proxy wait build --timeout":       129,
}

// runExample runs one line as a user does: it reads the output and leaves.
func (w *world) runExample(line string) {
	w.T.Helper()
	begin, rest, _ := strings.Cut(line, "#")
	line = strings.TrimSpace(begin) // the remainder is a comment
	if strings.Contains(rest, `"`) {
		w.T.Errorf("%s: the text after # is not a comment", line)
	}
	w.prepareExample(line)
	shell := "bash"
	if strings.HasSuffix(line, "| source") {
		shell = "fish"
	}
	for _, needed := range []string{shell, "asciinema", "python3"} {
		if _, err := exec.LookPath(needed); err != nil && (needed == shell || strings.Contains(line, needed)) {
			w.T.Logf("%s: not run, because %s is missing", line, needed)
			return
		}
	}
	cmd := exec.Command(shell, "-c", line)
	if strings.Contains(line, "$HOLDFAST_SESSION") {
		cmd.Env = append(slices.Clone(w.Env), "HOLDFAST_SESSION=build")
	}
	p := w.openSize(80, 24, cmd)
	w.leaveExample(line, p)
	code := p.wait()
	for begin, other := range exampleCodes {
		if strings.HasPrefix(line, begin) && code == other {
			code = 0
		}
	}
	if code != 0 {
		w.T.Errorf("%s: exit code %d, after %q", line, code, p.text())
	}
}

// leaveExample ends the examples that do not end by themselves.
func (w *world) leaveExample(line string, p *terminal) {
	w.T.Helper()
	ok := true
	switch {
	case strings.HasPrefix(line, "proxy wait build --timeout"):
		w.must("kill", "build")
	case strings.Contains(line, "--kind exited"):
		ok = eventually(func() bool {
			w.prepareExample("")
			w.proxy("kill", "build")
			return strings.Contains(p.text(), `"exited"`)
		})
	case attaching.MatchString(line+" ") && !detached.MatchString(line+" "):
		ok = eventually(func() bool { return strings.Contains(w.must("ls", "--json"), `"attachments": 1`) })
		if strings.HasPrefix(line, "proxy record") {
			w.must("kill", "build")
		} else {
			// The viewer accepts keys after it has sent queries or shown the screen.
			ok = ok && eventually(func() bool {
				return strings.Contains(p.text(), "\x1b[c") || strings.Contains(p.text(), "\x1b[H\x1b[J")
			})
			p.typ("\x1cd")
		}
	case serving.MatchString(line) && !strings.Contains(line, "--upgrade"):
		program, _, _ := strings.Cut(line, " ")
		ok = eventually(func() bool { _, err := os.Stat(w.Path(program + ".sock")); return err == nil }) // a command would start missing programs
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	}
	if !ok {
		w.T.Errorf("%s: the example does not reach its purpose; its output is %q", line, p.text())
	}
}

// exampleSessions are the sessions in the examples, with the text that each shows when it is ready.
var exampleSessions = []struct {
	id, shows string
	argv      []string
}{
	{"build", "error", []string{"--shell-integration", "--", "bash", "-i"}},
	{"server", "listening", []string{"--", "sh", "-c", "echo listening on port 8080; exec cat"}},
	{"edit", "", []string{"--", "cat"}},
	{"repl", ">>>", []string{"--", "python3", "-q"}},
}

// prepareExample brings the world into the state that an example expects.
func (w *world) prepareExample(line string) {
	w.T.Helper()
	if serving.MatchString(line) && !strings.Contains(line, "--upgrade") {
		w.proxy("stop")
		w.run(exec.Command(filepath.Join(w.Bin, "supervisor"), "stop", "--sessions=end"), nil) // fails if no supervisor runs
		// The commands return when the programs have agreed to stop. A socket that exists later must be a
		// socket of the example.
		if !eventually(func() bool { return len(w.Running("")) == 0 }) {
			w.T.Fatal("programs still run after they were stopped")
		}
		return
	}
	if strings.HasPrefix(line, "proxy stop --all") { // sessions would make it fail
		w.run(exec.Command(filepath.Join(w.Bin, "supervisor"), "stop", "--sessions=end"), nil)
		w.must("start")
		return
	}
	w.must("start")
	states := make(map[string]string)
	for _, s := range decode[[]map[string]any](w.T, w.must("ls", "--json")) {
		states[fmt.Sprint(s["id"])] = fmt.Sprint(s["state"])
	}
	gone := func(id string) {
		w.T.Helper()
		if states[id] != "" {
			w.must("kill", id, "--forget")
		}
	}
	_ = os.Remove(w.Path("build.cast"))
	w.write("home/.bashrc", "PS1='$ '; seq 500; echo 'make: warn of an error'\n")
	for _, s := range exampleSessions {
		_, err := exec.LookPath(s.argv[len(s.argv)-2]) // only python3 may be missing
		switch {
		case s.id == "build" && strings.Contains(line, "--id build"):
			gone("build")
		case states[s.id] == "running", s.id == "repl" && err != nil:
		default:
			gone(s.id)
			w.must(append([]string{"new", "-d", "--id", s.id}, s.argv...)...)
			w.shows(s.id, s.shows)
		}
	}
	if states["old"] != "exited" {
		gone("old")
		was := w.Path("was")
		_ = os.Remove(was)
		w.shell("old", "[ -e "+was+" ] && exec cat; touch "+was+"; echo the last; exit 3") // the second time it stays
		if r := w.proxy("wait", "old"); r.Code != 3 {
			w.T.Fatal(r)
		}
	}
}
