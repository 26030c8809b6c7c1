//go:build linux

package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// search and history must find a session's output by its text and by the numbers of its lines, independently
// of wrapping.
func TestSearchAndHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `for i in $(seq 0 199); do echo "line $i"; done; printf 'an \033[1;31mApple\033[0m %0100d\n' 7; read x; exit 3`)
	w.shows("s", "Apple")

	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"line 1?99$"}, "99:line 99\n199:line 199\n"},
		{[]string{"-i", "aPPLE"}, "200:an Apple " + fmt.Sprintf("%0100d", 7) + "\n"},
		{[]string{"line", "--limit", "2"}, "198:line 198\n199:line 199\n"},
		{[]string{"e 7", "--json", "--limit", "1"}, `{"line":79,"text":"line 79","ranges":[{"start":3,"end":6}]}` + "\n"},
	} {
		if got := w.must(append([]string{"search", "s"}, tt.args...)...); got != tt.want {
			t.Errorf("search %q prints %q, want %q", tt.args, got, tt.want)
		}
	}
	if got := strings.Count(w.must("search", "s", "."), "\n"); got != 201 {
		t.Errorf("search finds %d lines, want 201", got)
	}
	if r := w.fails(1, "", "search", "s", "pear"); r.Out+r.Errout != "" {
		t.Errorf("search without a match: %v", r)
	}
	w.fails(64, "pattern", "search", "s", "(")
	w.fails(64, "--limit", "search", "s", "x", "--limit", "-1")
	w.fails(66, "session_not_found", "search", "nobody", "x")

	if got := w.must("history", "s", "--before", "3"); got != "line 0\nline 1\nline 2\n" {
		t.Errorf("the first lines are %q", got)
	}
	if got := w.must("history", "s", "--before", "201", "--lines", "2", "-n"); got != "199:line 199\n200:an Apple "+fmt.Sprintf("%0100d", 7)+"\n" {
		t.Errorf("the last lines are %q", got)
	}
	if got := w.must("history", "s", "--before", "201", "--lines", "1", "--ansi"); !strings.HasPrefix(got, "an \x1b[1;38;5;1mApple\x1b[0m 000") {
		t.Errorf("the last line in colour is %q", got)
	}
	all := w.must("history", "s", "--lines", "0")
	if lines := strings.Split(all, "\n"); len(lines) < 170 || lines[0] != "line 0" || lines[100] != "line 100" {
		t.Errorf("%d lines of history: %q", len(lines), all)
	}
	if last := w.must("history", "s"); !strings.HasSuffix(all, last) || strings.Count(last, "\n") != 100 {
		t.Errorf("the last lines of the history are %q", last)
	}
	h := w.object("history", "s", "--json", "--lines", "2", "--before", "50")
	if lines := h["lines"].([]any); len(lines) != 2 || lines[1].(map[string]any)["line"] != 49.0 || h["more"] != true {
		t.Errorf("as JSON: %v", h)
	}
	w.fails(64, "--lines", "history", "s", "--lines", "-1")

	w.must("send", "s", "--enter")
	w.fails(3, "", "wait", "s")
	if got := w.must("search", "s", "Apple"); !strings.HasPrefix(got, "200:an Apple") {
		t.Errorf("search of an exited session prints %q", got)
	}

	p := w.open("search", "s", "pple")
	p.expect("\x1b[32m200\x1b[m\x1b[36m:\x1b[man A\x1b[1;31mpple\x1b[m 000")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// changes must print exactly the changes since the mark.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "seq 50; read x; echo new; read x")
	w.shows("s", "50")
	whole := w.must("changes", "s")
	if !strings.Contains(whole, "49:50\n") || strings.Contains(whole, "\n9:") || !strings.Contains(whole, "cursor: column 0, row 23\n") {
		t.Errorf("changes without a mark prints %q", whole)
	}
	_, mark, _ := strings.Cut(strings.TrimSpace(whole), "mark: ")
	w.must("send", "s", "--enter")
	w.must("wait", "s", "--text", "new")
	c := w.object("changes", "s", "--since", mark, "--json")
	if lines := c["lines"].([]any); len(lines) != 1 || fmt.Sprint(lines[0].(map[string]any)["t"]) != "[new]" || c["whole"] != nil {
		t.Errorf("changes after a new line: %v", c)
	}
	if got := w.must("changes", "s", "--max-bytes", "80"); !strings.Contains(got, "are left out; read them: proxy history s --before ") {
		t.Errorf("changes --max-bytes 80 prints %q", got)
	}
	w.fails(64, "--since", "changes", "s", "--since", "!")
	w.fails(64, "--max-bytes must", "changes", "s", "--max-bytes", "-1")
	w.fails(64, "not a mark of changes", "changes", "s", "--since", "AAAA")
}

// The output of a command is found by the command's number, if the shell reports its commands.
func TestHistoryOfCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `mark() { printf '\033]133;%s\007' "$1"; }
		printf '\033]7;file:///src\007'
		for i in 1 2; do mark A; echo "\$ make $i"; mark "C;cmdline=make $i"; seq "${i}0" "${i}3"; printf part; mark "D;$i"; done
		printf '\nready\n'; read x`)
	w.shows("s", "ready")
	if got := w.must("history", "s", "--command", "-2"); got != "10\n11\n12\n13\npart\n" {
		t.Errorf("output of the first command: %q", got)
	}
	if got := w.must("history", "s", "--command", "2", "--lines", "2", "-n"); !strings.HasSuffix(got, ":23\n10:part\n") {
		t.Errorf("end of the output of the second command: %q", got)
	}
	h := w.object("history", "s", "--json", "--command", "-1")
	c := h["command"].(map[string]any)
	if lines := h["lines"].([]any); len(lines) != 5 || c["exit_code"] != 2.0 || c["cwd"] != "/src" || c["output"].(map[string]any)["end"] == nil || h["duration_ms"] == nil {
		t.Errorf("as JSON: %v", h)
	}
	if got := w.must("history", "s", "--commands"); !strings.HasPrefix(got, "1: code 1 after ") || !strings.HasSuffix(got, ": make 2\n") {
		t.Errorf("list of the commands: %q", got)
	}
	w.fails(64, "--command", "history", "s", "--command", "0")
	w.fails(64, "commands", "history", "s", "--commands", "-n")
	if r := w.proxy("history", "s", "--command", "-3"); r.Code == 0 || !strings.Contains(r.Errout, "the ended commands that it keeps are 1 to 2") {
		t.Errorf("history of a command that does not exist: %v", r)
	}
}

// screen must show a session as a terminal of another size does, and resize must change the session's size
// and policy.
func TestSizes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("new", "-d", "--id", "s", "--size", "60x20", "--", "/bin/sh", "-c", "printf '%050d\n' 1; read x")
	w.shows("s", "1")
	if c := w.object("screen", "s", "--json", "--size", "30x10"); c["cols"] != 30.0 || c["rows"] != 10.0 || len(c["cells"].([]any)) < 2 {
		t.Errorf("screen --size 30x10: %v", c)
	}
	w.hasSize("s", 60, 20)
	w.fails(64, "COLSxROWS", "screen", "s", "--size", "30")
	policy := func() any { return w.object("info", "s", "--json")["size_policy"] }
	if got := policy(); got != "fixed" {
		t.Errorf("with --size the policy is %v", got)
	}
	w.must("resize", "s", "70x21")
	w.hasSize("s", 70, 21)
	w.must("resize", "s", "--policy", "smallest")
	w.hasSize("s", 70, 21)
	w.must("resize", "s", "71x22", "--policy", "fixed")
	w.hasSize("s", 71, 22)
	if got := policy(); got != "fixed" {
		t.Errorf("the policy is %v", got)
	}
	w.fails(64, "--policy", "resize", "s")
	w.fails(64, "--wait-idle must", "send", "s", "x", "--wait-idle", "100h")
	w.fails(64, "--wait-idle must", "send", "s", "x", "--wait-idle", "1us")
	w.fails(64, "the grace time must", "kill", "s", "--grace", "2h")
	w.fails(64, "it must be latest, owner, smallest, largest or fixed", "resize", "s", "--policy", "mine")
	w.fails(64, "it must be latest, owner, smallest, largest or fixed", "new", "-d", "--size-policy", "mine", "--", "true")
	w.fails(64, "--pace needs --exclusive", "attach", "s", "--pace")
	w.fails(64, "it must be own or raw", "attach", "s", "--view", "mine")
}

// send must type a line that is too long for the terminal, and must warn.
func TestLongLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty -echo; echo ready; read x; echo got-${#x}; read x; echo end; read x")
	w.shows("s", "ready")
	r := w.run(exec.Command(filepath.Join(w.Bin, "proxy"), "send", "s", "--enter", "--file", "-"), strings.NewReader(strings.Repeat("x", 5000)))
	if r.Code != 0 || !strings.Contains(r.Errout, "warning: line_too_long") {
		t.Errorf("send of a long line: %v", r)
	}
	w.shows("s", "got-409")
}
