//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// The child must receive text, pastes and keys unchanged and in order.
func TestSendAsTyped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	script := w.write("script", "x\x1b[201~y\r\nz\n")
	for _, tt := range []struct {
		name, modes string
		args        []string
		want        string
	}{
		{"a line", "", []string{"a b", "c"}, "a b c"},
		{"with enter", "", []string{"--enter", "a"}, "a^M"},
		{"of several lines", "", []string{"a\nb\r\nc"}, "a^Mb^Mc"},
		{"of several lines, as they are", "", []string{"--raw", "a\nb"}, "a$\nb"},
		{"a paste", `\e[?2004h`, []string{"a\nb"}, "^[[200~a^Mb^[[201~"},
		{"one line as a paste", `\e[?2004h`, []string{"--paste", "a"}, "^[[200~a^[[201~"},
		{"one line where pastes are known", `\e[?2004h`, []string{"a"}, "a"},
		{"a file", `\e[?2004h`, []string{"--file", script, "--enter"}, "^[[200~x[201~y^Mz^M^[[201~^M"},
		{"a file as it is", `\e[?2004h`, []string{"--raw", "--file", script}, "x^[[201~y^M$\nz$\n"},
		{"keys in their order", `\e[?1h`, []string{"--key", "Up", "a", "--enter", "--key=C-c", "--enter=false", "--key", "M-x"}, "a^[OA^M^C^[x"},
		{"keys", "", []string{"--key", "Up", "--key", "S-Tab"}, "^[[A^[[Z"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := strings.NewReplacer(" ", "-", ",", "").Replace(tt.name)
			w.shell(id, `stty raw -echo; printf 'ready`+strings.ReplaceAll(tt.modes, `\e`, `\033`)+`\r\n'; cat -A`)
			w.must("wait", id, "--text", "^ready$")
			// cat prints its input only after the end of a line.
			w.must(append([]string{"send", id}, tt.args...)...)
			w.must("send", id, "--raw", "END\n", "--wait-text", `END\$$`)
			screen := strings.Fields(strings.ReplaceAll(w.must("screen", id), "\n", " "))
			if got, want := strings.Join(screen[1:], " "), strings.ReplaceAll(tt.want, "\n", " ")+"END$"; got != want {
				t.Errorf("the child received %q, want %q", got, want)
			}
		})
	}
}

// A text and the keys after it must stay together if several programs send at the same time.
func TestSendTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty -echo; echo ready; while read x; do echo got $x; done")
	w.must("wait", "s", "--text", "^ready$")
	var all sync.WaitGroup
	want := ""
	for i := range 8 {
		line := strings.Repeat(string(rune('a'+i)), 8)
		want += "got " + line + "=\n"
		all.Go(func() {
			if r := w.proxy("send", "s", line, "--key", "=", "--enter"); r.Code != 0 {
				t.Error(r)
			}
		})
	}
	all.Wait()
	w.must("send", "s", "end", "--enter")
	w.must("wait", "s", "--text", "got end$")
	lines := strings.Split(strings.TrimSuffix(w.must("screen", "s"), "got end\n"), "\n")
	slices.Sort(lines)
	if got := strings.TrimSpace(strings.Join(lines, "\n")); got != want+"ready" {
		t.Errorf("the child received\n%s\nwant\n%s", got, want)
	}
}

// A title must be visible to all clients, and must survive a reopen.
func TestRename(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "read x; exit 3")
	for _, title := range []string{"release 1.2", "again", ""} {
		w.must("rename", "s", title)
		info := decode[protocol.SessionInfo](t, w.must("info", "s", "--json"))
		if info.Labels["title"] != title || len(info.Labels) != min(len(title), 1) {
			t.Errorf("after the rename to %q the labels are %v", title, info.Labels)
		}
		if shown := strings.Contains(w.must("ls"), title+": /bin/sh -c"); shown != (title != "") {
			t.Errorf("after the rename to %q ls prints %s", title, w.must("ls"))
		}
	}
	w.must("send", "s", "--enter")
	if r := w.proxy("wait", "s"); r.Code != 3 {
		t.Fatal(r)
	}
	w.must("rename", "s", "kept")
	w.must("reopen", "--detach", "s")
	if info := decode[protocol.SessionInfo](t, w.must("info", "s", "--json")); info.Labels["title"] != "kept" {
		t.Errorf("after the reopen the labels are %v", info.Labels)
	}
	w.fails(66, "session_not_found", "rename", "none", "x")
	w.fails(64, "at most 1024 bytes", "rename", "s", strings.Repeat("x", 1025))
}

// Cleared output must be in no answer any more, and the session must continue.
func TestClear(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "seq 1 100; while read x; do echo got $x; done")
	w.must("wait", "s", "--text", "^100$")
	w.must("clear", "s")
	if above, screen := w.must("history", "s"), w.must("screen", "s"); above != "" || !strings.Contains(screen, "\n100\n") {
		t.Errorf("after clear the history is %q, the screen %q", above, screen)
	}
	w.must("clear", "s", "--screen")
	w.must("send", "s", "--enter", "more", "--wait-text", "^got more$")
	if got := w.must("history", "s") + w.must("screen", "s"); strings.Contains(got, "100") || !strings.Contains(got, "got more") {
		t.Errorf("after clear --screen the output is %q", got)
	}
	w.fails(66, "session_not_found", "clear", "none")
	w.fails(64, "proxy clear ID", "clear-history")
}

// Each possible end of a wait must have its own exit code and text.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `stty -echo; printf 'ready\n\033]133;A\007$ '; while read x; do printf '\033]133;C\007'; eval "$x"; printf '\033]133;D;%s\007\033]133;A\007$ ' $?; done; exit 7`)
	if out := w.must("wait", "s", "--text", "^re(ady)$"); out != "ready\n" {
		t.Errorf("wait --text prints %q", out)
	}
	var info protocol.AwaitedInfo
	told := func(args ...string) {
		t.Helper()
		info = protocol.AwaitedInfo{}
		testkit.Must(t, json.Unmarshal([]byte(w.must(append(args, "--json")...)), &info))
	}
	if told("wait", "s", "--text", "re(ady)"); info.Line != "ready" || len(info.Groups) != 2 || info.Groups[1] != "ady" {
		t.Errorf("wait --text --json prints %+v", info)
	}
	if told("wait", "s", "--prompt"); info.Command == nil || !info.Command.Prompt || info.Command.Count != 0 {
		t.Errorf("wait --prompt --json prints %+v", info)
	}
	if told("send", "s", "(exit 3)", "--enter", "--wait-prompt"); info.Command == nil || info.Command.Count != 1 || info.Command.ExitCode == nil || *info.Command.ExitCode != 3 {
		t.Errorf("send --wait-prompt --json prints %+v, %+v", info, info.Command)
	}
	if out := w.must("send", "s", "echo one; echo two", "--enter", "--wait-idle", "20ms"); out != "" {
		t.Errorf("send --wait-idle prints %q", out)
	}
	mark := strings.TrimSpace(w.must("mark", "s"))
	w.fails(124, "timeout", "wait", "s", "--text", "one|ready", "--since", mark, "--timeout", "1ms")
	w.fails(124, "timeout", "wait", "s", "--prompt", "--since", mark, "--timeout", "1ms")
	w.fails(124, "timeout", "wait", "s", "--timeout", "1ms")
	w.fails(124, "timeout", "send", "s", "x=1", "--enter", "--wait-text", "never", "--timeout", "50ms")
	w.must("send", "s", "echo three", "--enter")
	if out := w.must("wait", "s", "--text", "one|three", "--since", mark); !strings.HasSuffix(out, "$ three\n") {
		t.Errorf("wait --since prints %q", out)
	}
	var m protocol.MarkInfo
	if err := json.Unmarshal([]byte(w.must("mark", "s", "--json")), &m); err != nil || m.Offset == 0 || len(m.Mark) == 0 {
		t.Errorf("mark --json: %+v, %v", m, err)
	}
	w.fails(66, "session_not_found", "mark", "none")
	w.fails(66, "session_not_found", "wait", "none", "--text", "x")
	w.fails(66, "session_not_found", "send", "none", "x", "--wait-text", "x")
	w.fails(64, "no terminal sends a key", "send", "s", "half of it", "--key", "Hyper")
	if out := w.must("screen", "s"); strings.Contains(out, "half of it") {
		t.Errorf("send has sent a text before a wrong key: %q", out)
	}
	r := w.proxy("send", "s", "--key", "C-d", "--wait-text", "never")
	if r.Code != 7 || r.Out != "" || !strings.Contains(r.Errout, "session s ended first") {
		t.Errorf("send to a session that exits: %v", r)
	}
	if r := w.proxy("wait", "s", "--text", "never", "--json"); r.Code != 7 || !strings.Contains(r.Out, `"exit_code": 7`) {
		t.Errorf("wait for an exited session: %v", r)
	}
	if r := w.proxy("wait", "s", "--exit"); r.Code != 7 || r.Out+r.Errout != "" {
		t.Errorf("wait --exit: %v", r)
	}
	w.shell("zero", "read x")
	w.fails(1, "session zero ended first", "send", "zero", "--enter", "--wait-text", "never")
	w.must("reopen", "--detach", "zero")
	w.fails(66, "instance_mismatch", "wait", "zero", "--text", "x", "--since", mark)
}

func TestWaitMistakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(64, "only one of --text, --prompt and --idle", "wait", "s", "--text", "x", "--prompt")
	w.fails(64, "only one of --wait-text, --wait-prompt and --wait-idle", "send", "s", "x", "--wait-text", "x", "--wait-idle", "1s")
	for _, args := range [][]string{
		{"wait", "s", "--text", "("},
		{"wait", "s", "--text", "x", "--prompt"},
		{"wait", "s", "--exit", "--prompt"},
		{"wait", "s", "--idle", "1us"},
		{"wait", "s", "--idle", "-1s"},
		{"wait", "s", "--idle", "25h"},
		{"wait", "s", "--since", "AAAA"},
		{"wait", "s", "--since", "!", "--text", "x"},
		{"send", "s", "x", "--wait-text", "("},
		{"send", "s", "x", "--wait-text", "x", "--wait-idle", "1s"},
		{"send", "s", "--wait-text", "x"},
		{"send", "s", "x", "--timeout", "1s"},
		{"send", "s", "x", "--json"},
		{"send", "s", "x", "--raw", "--paste"},
		{"send", "s", "x", "--enter=perhaps"},
		{"mark"},
		{"new", "-d", "--early-exit", "-1", "--", "true"},
		{"reopen", "s", "--early-exit", "-1"},
	} {
		r := w.proxy(args...)
		if r.Code != 64 || r.Out != "" || !strings.HasPrefix(r.Errout, "proxy: ") {
			t.Errorf("proxy %s: %v, want exit 64 and the mistake", strings.Join(args, " "), r)
		}
	}
	if all := w.Running(""); len(all) > 0 {
		t.Errorf("commands with mistakes have started %v", all)
	}
}

// send must find the awaited text after the echo of the line that it has sent, not in the echo. If a program
// does not echo, send only waits longer.
func TestSendWaitsBehindEcho(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "env", "PS1=# ", "bash", "--norc", "-i")
	w.shows("s", "#")
	for range 3 { // the echo of a repeated line does not count either
		if out := w.must("send", "s", "sleep 0.1; echo done", "--enter", "--wait-text", "done", "--timeout", "20s"); out != "done\n" {
			t.Errorf("send --wait-text done prints %q", out)
		}
	}
	long := ": " + strings.Repeat("x", 200) + " ready" // the line covers three rows
	if out := w.must("send", "s", long+"; echo is ready", "--enter", "--wait-text", "ready", "--timeout", "20s"); out != "is ready\n" {
		t.Errorf("send of a long line prints %q", out)
	}
	w.shell("mute", "stty -echo; echo go; read x; echo got $x; read x")
	w.shows("mute", "go")
	if out := w.must("send", "mute", "secret", "--enter", "--wait-text", "got .*", "--timeout", "20s"); out != "got secret\n" {
		t.Errorf("send to a program without echo prints %q", out)
	}
}

// If a session accepts no more input, send must say why it waits, and must deliver the input when the program reads.
func TestSendToFullQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reads := w.Path("reads")
	long := w.write("long", strings.Repeat("0123456789abcde\n", (9<<20)/16))
	testkit.Must(t, unix.Mkfifo(reads, 0o600))
	w.shell("s", "stty raw -echo; echo ready; cat "+reads+"; exec cat >/dev/null")
	w.shows("s", "ready")
	var waiting []*terminal
	for _, args := range [][]string{{"--raw", "--file", long}, {"--paste", "a\nb"}, {"--key", "F1"}} {
		p := w.open(append([]string{"send", "s"}, args...)...)
		p.expect("proxy: session s accepts no more input, because its program does not read")
		waiting = append(waiting, p)
	}
	testkit.Must(t, os.WriteFile(reads, nil, 0))
	for _, p := range waiting {
		if p.ends(0, ""); strings.Count(p.text(), "does not read") != 1 {
			t.Errorf("send says %q, want one message", p.text())
		}
	}
}
