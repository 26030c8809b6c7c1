//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Session ids must be completed: running sessions for attach, exited sessions for reopen. A completion must
// start no program.
func TestComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if out := w.must("__complete", "attach", ""); out != ":4\n" {
		t.Errorf("completion without a supervisor: %q", out)
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("completion has started %v", all)
	}
	w.spawn("alive-1", "sleep", "1000")
	w.spawn("alive-2", "sh", "-c", "sleep 1000 # \nsecond line\x1b[31m")
	w.shell("over", "exit 3")
	if r := w.proxy("wait", "over"); r.Code != 3 {
		t.Errorf("wait: %v", r)
	}
	for _, tt := range []struct{ line, want string }{
		{"attach", "alive-1 alive-2"}, {"reopen", "over"}, {"info", "alive-1 alive-2 over"}, {"wait", "alive-1 alive-2 over"}, {"why", "alive-1 alive-2 over"},
		{"kill", "alive-1 alive-2 over"}, {"send", "alive-1 alive-2 over"}, {"screen", "alive-1 alive-2 over"}, {"resize", "alive-1 alive-2 over"},
		{"attach alive-1", ""}, {"send alive-1", ""}, {"ls", ""},
	} {
		var ids []string
		lines := strings.Split(w.must(append(append([]string{"__complete"}, strings.Fields(tt.line)...), "")...), "\n")
		for _, l := range lines[:len(lines)-2] { // the last line is a directive
			id, _, _ := strings.Cut(l, "\t")
			ids = append(ids, id)
		}
		if got := strings.Join(ids, " "); got != tt.want {
			t.Errorf("proxy %s completes to %q, want %q", tt.line, got, tt.want)
		}
	}
	if out := w.must("__complete", "attach", ""); strings.Contains(out, "\x1b") {
		t.Errorf("the completion prints escape sequences: %q", out)
	}
	if out := w.must("__complete", "at"); !strings.HasPrefix(out, "attach\t") {
		t.Errorf("the completion of a command's name is %q", out)
	}
}

// The completion scripts must be valid for the real shells, and pressing tab must complete an id.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		shell string
		check []string // checks the syntax of the script on standard input
		start []string
		load  string
	}{
		{"bash", []string{"-n"}, []string{"--norc", "--noprofile"}, "source <(proxy completion bash)"},
		{"zsh", []string{"-fn"}, []string{"-f"}, "autoload -U compinit; compinit -D; source <(proxy completion zsh)"},
		{"fish", []string{"--no-execute"}, []string{"--no-config"}, "proxy completion fish | source"},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			t.Parallel()
			shell := program(t, tt.shell)
			w := newWorld(t)
			script := w.must("completion", tt.shell)
			if r := w.run(exec.Command(shell, append(tt.check, w.write("script", script))...), nil); r.Code != 0 || r.Errout != "" {
				t.Errorf("check of the completion script: %v", r)
			}
			w.spawn("unmistakable", "sleep", "1000")
			p := w.openSize(100, 30, exec.Command(shell, tt.start...))
			p.typ(tt.load + "; echo loa''ded\r")
			p.expect("loaded")
			p.typ("proxy info unm\t")
			p.expect("istakable")
			p.typ("\r")
			p.expect("sleep 1000")
			if filepath.Base(shell) != "fish" { // fish waits for answers of its terminal before it ends
				p.typ("exit\r")
				p.wait()
			}
		})
	}
}
