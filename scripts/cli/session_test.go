//go:build linux

package cli

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty -echo; echo ready; exec cat -v")
	w.shows("s", "ready")
	w.must("send", "s", "several", "words", "--enter")
	w.shows("s", "\nseveral words\n")
	w.must("send", "s", "--file", w.write("text", "from a file"), "and ")
	w.must("send", "s", "--enter")
	w.shows("s", "\nand from a file\n")
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), "send", "s", "--raw", "--file", "-")
	if r := w.run(cmd, strings.NewReader("from a pipe\x03")); r.Code != 0 {
		t.Errorf("send from a pipe: %v", r)
	}
	// The raw input was an interrupt, which has ended cat.
	if r := w.proxy("wait", "s"); r.Code != 130 {
		t.Errorf("wait: %v", r)
	}
	w.fails(66, "session_exited: session s has exited by SIGINT", "send", "s", "more")
	w.must("kill", "s", "--forget") // an exited session accepts no input
	w.shell("s", "stty -echo; echo ready; exec cat")
	w.shows("s", "ready")
	w.must("send", "s", "--enter", "--", "-la")
	w.shows("s", "\n-la\n")
}

// 5 MiB must arrive unchanged in a program that reads a raw terminal.
func TestSendMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 5<<20)
	_, _ = random.Read(data) // it never fails
	w.write("data", string(data))
	w.shell("s", "stty raw -echo; echo ready; head -c 5242880 > got")
	w.shows("s", "ready")
	w.must("send", "s", "--raw", "--file", w.Path("data"))
	w.must("wait", "s")
	if got := w.read("got"); got != string(data) {
		t.Errorf("%d bytes arrived of %d, or they differ", len(got), len(data))
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `seq 1 100; printf '\033[1;31mred\033[0m \033]0;title\007end\n'; read x`)
	w.shows("s", "red end")
	if out := w.must("screen", "s", "--lines", "3"); out != "99\n100\nred end\n" {
		t.Errorf("screen --lines 3 prints %q", out)
	}
	// The last row contains the cursor.
	if out := w.must("screen", "s"); strings.Count(out, "\n") > 24 || !strings.HasSuffix(out, "100\nred end\n") || strings.HasPrefix(out, "1\n") {
		t.Errorf("screen prints %q", out)
	}
	if out := w.must("screen", "s", "--lines", "2", "--ansi"); out != "100\x1b[0m\n\x1b[0;1;31mred\x1b[0m end\x1b[0m\n" {
		t.Errorf("screen --ansi prints %q", out)
	}
	got := w.object("screen", "s", "--lines", "2", "--json")
	if fmt.Sprint(got["cells"]) != "[map[cells:[map[t:1] map[t:0] map[t:0]]] map[cells:[map[l:1 t:r] map[l:1 t:e] map[l:1 t:d] map[t: ] map[t:e] map[t:n] map[t:d]]]]" ||
		fmt.Sprint(got["looks"]) != "[map[] map[bold:true fg:1]]" || got["title"] != "title" {
		t.Errorf("screen --json prints %v", got)
	}
	if out := w.must("screen", "s", "--lines", "1", "--html"); !strings.HasPrefix(out, `<pre title="title" style="`) ||
		!strings.HasSuffix(out, `"><span style="color:#ef2929;font-weight:bold">red</span> end`+"\n</pre>\n") {
		t.Errorf("screen --html prints %q", out)
	}
	if out := w.must("screen", "s", "--scrollback"); out != numbered(1, 100)+"red end\n" {
		t.Errorf("screen --scrollback prints %q", out)
	}
	if out := w.must("screen", "s", "--scrollback=3"); out != numbered(76, 100)+"red end\n" {
		t.Errorf("screen --scrollback=3 prints %q", out)
	}
	if info := w.object("info", "s", "--json"); info["title"] != "title" {
		t.Errorf("info prints %v", info)
	}
	w.fails(64, "[html text]", "screen", "s", "--text", "--html")
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// The error about an early exit must contain plain text, whatever the session printed.
//
// demand: K3 K9
func TestEarlyExitIsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.run(exec.Command(filepath.Join(w.Bin, "proxy"), "new", "-d", "--early-exit", "10s", "--", "sh", "-c",
		`stty -echo; printf '50%%\r100%%\n\033[31mred\033[0m\377 \033]0;title\007\033[6nend\n'; exit 3`), nil)
	if r.Code != 3 || !strings.HasSuffix(r.Errout, "\n  100%\n  red end\n") || strings.Contains(r.Errout, "\x1b") {
		t.Errorf("new ends with %d and prints %q", r.Code, r.Errout)
	}
}

// Without an attachment the supervisor must answer the queries of programs. With an attachment only the
// viewer's terminal may answer.
func TestQuestions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ask = `stty -icanon -echo; while :; do printf '\033[6n'; IFS= read -r -d R a; printf 'got %q\n' "$a"; read -r -d . go; [ -n "$go" ] && printf 'extra %q\n' "$go"; done`
	w.spawn("s", "bash", "-c", ask)
	w.shows("s", `got $'\E[1;1'`)
	p := w.open("attach", "s")
	p.expect("got")
	p.typ(".")
	p.expect("\x1b[6n")
	p.typ("\x1b[7;7R") // as a terminal does
	p.expect(`7;7`)
	p.typ(".")
	p.expect("\x1b[6n")
	p.typ("\x1b[8;8R")
	p.expect(`8;8`)
	if out := w.must("screen", "s"); strings.Count(out, "got") != 3 || strings.Contains(out, "extra") {
		t.Errorf("the screen is %q", out)
	}
	p.typ("\x1cd")
	p.ends(0, "detached from s")
	w.must("send", "s", ".")
	w.shows("s", `got $'\E[4;1'`)
}

// A viewer that attaches to a full-screen program must see its screen, cursor and modes, at any size. tmux
// must show the same as screen.
func TestFullScreen(t *testing.T) {
	t.Parallel()
	vim, tmux := program(t, "vim"), program(t, "tmux")
	w := newWorld(t)
	w.write("text", numbered(1, 200))
	w.spawn("s", vim, "-u", "NONE", "-i", "NONE", "-n", "-c", "set nocompatible number ruler laststatus=2", w.Path("text"))
	w.shows("s", "200 lines")
	first := w.open("attach", "s")
	first.expect("200 lines")
	first.typ("100G")
	w.shows("s", "100,1")
	first.typ("\x1cd")
	first.ends(0, "detached from s")

	tm := func(args ...string) string {
		cmd := exec.Command(tmux, append([]string{"-S", w.Path("tmux"), "-f", "/dev/null"}, args...)...)
		cmd.Env = append(w.Env, "TERM=xterm-256color")
		return w.run(cmd, nil).Out
	}
	t.Cleanup(func() { tm("kill-server") })
	attach := filepath.Join(w.Bin, "proxy") + " attach s"
	tm("new-session", "-d", "-s", "t", "-x", "100", "-y", "30", attach, ";", "set", "-g", "status", "off")
	same := func(target string) {
		t.Helper()
		var screen, seen string
		if !eventually(func() bool {
			screen, seen = w.must("screen", "s"), strings.TrimRight(tm("capture-pane", "-p", "-t", target), "\n")+"\n"
			return screen == seen && strings.Contains(seen, "100,1") && strings.Count(seen, "\n") == 29 // the last line of vim is empty
		}) {
			t.Errorf("%s: the session's screen is\n%s\ntmux shows\n%s", target, screen, seen)
		}
		var shown, cursor string
		content := w.object("screen", "s", "--json")
		at := content["cursor"].(map[string]any)
		shown = fmt.Sprint(at["x"], " ", at["y"], " ", content["alternate"])
		cursor = strings.TrimSpace(tm("display-message", "-p", "-t", target, "#{cursor_x} #{cursor_y} #{?alternate_on,true,false}"))
		if shown != cursor {
			t.Errorf("%s: cursor and alternate screen are %s, in tmux %s", target, shown, cursor)
		}
	}
	same("t:0")
	// The second viewer depends on the snapshot, because vim prints nothing for it.
	tm("new-window", "-t", "t:1", attach+" --read-only")
	same("t:1")
	tm("send-keys", "-t", "t:0", ":q!", "Enter")
	w.must("wait", "s")
}

// stubborn is a session that ignores SIGHUP, and prints the other signals that it receives.
const stubborn = `trap '' HUP; trap 'echo got-usr1' USR1; trap 'echo got-int' INT; trap 'echo got-term; exit 7' TERM; echo ready; while :; do sleep 0.01; done`

func TestKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", stubborn)
	w.shows("s", "ready")

	// A signal without a grace period must only be sent.
	w.must("kill", "s", "--signal", "USR1")
	w.shows("s", "got-usr1")
	w.must("kill", "s", "--signal", "sigint")
	w.shows("s", "got-int")
	if info := w.object("info", "s", "--json"); info["state"] != "running" {
		t.Errorf("a signal has ended the session: %v", info)
	}
	w.fails(64, "invalid_argument", "kill", "s", "--signal", "NONSENSE")

	// With a grace period, the signal is the request to end.
	w.must("kill", "s", "--signal", "TERM", "--grace", "20s")
	exit := w.object("info", "s", "--json")["exit"].(map[string]any)
	if exit["exit_code"] != 7.0 || exit["outcome"] != "soft" || exit["reason"] != "user_requested" {
		t.Errorf("the exit by SIGTERM is %v", exit)
	}
	w.fails(66, "session_exited", "kill", "s")
	w.must("kill", "s", "--forget")
	w.fails(66, "session_not_found", "info", "s")

	// If the session does not end within the grace period, it must be killed.
	w.shell("s", stubborn)
	w.shows("s", "ready")
	w.must("kill", "s", "--grace", "10ms")
	exit = w.object("info", "s", "--json")["exit"].(map[string]any)
	if exit["exit_code"] != 137.0 || exit["outcome"] != "hard" || exit["signal"] != "SIGKILL" {
		t.Errorf("the exit by SIGKILL is %v", exit)
	}
	w.spawn("gone", "sleep", "1000")
	w.must("kill", "gone", "--forget")
	w.fails(66, "session_not_found", "info", "gone")
}

func TestResize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `trap 'stty size' WINCH; stty size; while :; do sleep 0.01; done`)
	w.shows("s", "24 80")
	w.must("resize", "s", "132x43")
	w.shows("s", "43 132")
	w.hasSize("s", 132, 43)
}
