//go:build linux

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"

	"golang.org/x/sys/unix"
)

// bash is the end of a command line of new: a shell with a known prompt.
var bash = []string{"--early-exit", "0", "--env", "PS1=" + prompt, "--", "bash", "--norc", "--noprofile"}

const prompt = "READY> "

// A user leaves a shell with vim in the middle of an insert, attaches again, and finishes the edit.
func TestBashAndVim(t *testing.T) {
	t.Parallel()
	program(t, "vim")
	w := newWorld(t)
	p := w.open(append([]string{"new", "--id", "work"}, bash...)...)
	p.expect(prompt)
	p.typ("cd " + w.Dir + "\r")
	p.expect(prompt)
	p.typ("vim -u NONE -i NONE -n -N --cmd 'set mouse=a ttimeout ttimeoutlen=0' file.txt\r")
	p.expect("file.txt\" [New]")
	p.typ("ifirst line\x1b\x0c") // the redraw prints the line in one piece
	p.expect("first line")
	if left := leftOn(p.text()); len(left) == 0 {
		t.Error("vim set no modes, so the test would check nothing")
	}
	p.typ("\x1cd")
	p.ends(0, "[detached from work]")

	p = w.open("attach", "work")
	p.expect("first line")
	p.typ("osecond line\x1b\x0c")
	p.expect("second line")
	p.typ(":wq\r")
	p.expect("written")
	p.expect(prompt) // vim discards input that comes while it exits
	if got := w.read("file.txt"); got != "first line\nsecond line\n" {
		t.Errorf("the edited file is %q", got)
	}
	p.typ("exit 7\r")
	p.ends(7, "")
}

// Each shell must start without a delay, run commands, survive a detach, and end with its own code.
func TestShells(t *testing.T) {
	t.Parallel()
	for _, argv := range [][]string{
		{"bash", "--norc", "--noprofile"}, {"zsh", "-f"}, {"fish", "--no-config"}, {"sh", "-i"},
	} {
		t.Run(argv[0], func(t *testing.T) {
			t.Parallel()
			program(t, argv[0])
			w := newWorld(t)
			p := w.open(append([]string{"new", "--early-exit", "0", "--id", "s", "--"}, argv...)...)
			p.ask("echo one-''line", "one-line")
			p.typ("\x1cd")
			p.ends(0, "[detached from s]")
			p = w.open("attach", "s")
			p.expect("one-line")
			p.ask("echo two-''lines", "two-lines")
			p.typ("exit 12\r")
			p.ends(12, "")
		})
	}
}

// The proxy is killed under an editor and replaced under a pager, and the user's input must arrive all the
// same.
func TestProxyReplacedUnderPrograms(t *testing.T) {
	t.Parallel()
	program(t, "vim")
	w := newWorld(t)
	p := w.open(append([]string{"new", "--id", "s"}, bash...)...)
	p.expect(prompt)
	p.typ("cd " + w.Dir + "; vim -u NONE -i NONE -n -N file.txt\r")
	p.expect("file.txt\" [New]")
	p.typ("ibefore ")
	w.Kill(w.Only("proxy"))
	p.typ("after\x1b:wq\r")
	p.expect("written")
	p.expect(prompt)
	if got := w.read("file.txt"); got != "before after\n" {
		t.Errorf("the edited file is %q", got)
	}
	p.typ("seq 10001 10500 | less\r")
	p.expect("10010")
	old := w.Only("proxy")
	if out := w.must("--handoff"); !strings.Contains(out, "took over") {
		t.Errorf("handoff prints %q", out)
	}
	if now := w.Only("proxy"); now == old {
		t.Error("the handoff did not replace the proxy")
	}
	p.typ(" ")
	p.expect("10040")
	p.typ("q")
	p.expect(prompt)
	p.typ("exit\r")
	p.ends(0, "")
}

// setModes switches on the terminal modes that programs use, and prints a mark.
const setModes = `printf '\033[?1049h\033[?1h\033=\033[?1000h\033[?1006h\033[?2004h\033[?25l\033[>1u\033[2;20rMODES-SET'; `

// However an attachment ends, the terminal must have its earlier attributes, modes and screen, and the exit
// code must tell the cause.
func TestTerminalRestored(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, w *world, p *terminal)
		code int
		says string
	}{
		{"exit", func(t *testing.T, w *world, p *terminal) { p.typ("bye\r") }, 3, ""},
		{"exit by a signal", func(t *testing.T, w *world, p *terminal) { w.must("kill", "s") }, 129, "[s ended by SIGHUP]"},
		{"detach", func(t *testing.T, w *world, p *terminal) { p.typ("\x1cd") }, 0, "[detached from s]"},
		{"detach with input that ends the session", func(t *testing.T, w *world, p *terminal) { p.typ("bye\r\x1cd") }, 0, "[detached from s]"},
		{"detach by kitty's key codes", func(t *testing.T, w *world, p *terminal) { p.typ("\x1b[92;5u\x1b[92;5:3ud") }, 0, "[detached from s]"},
		{"detach while the proxy is away", func(t *testing.T, w *world, p *terminal) {
			w.must("stop")
			p.typ("\x1cd")
		}, 0, "[detached from s]"},
		{"detach with input while the proxy is away", func(t *testing.T, w *world, p *terminal) {
			w.must("stop")
			p.typ("bye\r\x1cd")
		}, 75, "proxy: 4 bytes of input may not have reached session s"},
		{"steal", func(t *testing.T, w *world, p *terminal) {
			thief := w.open("attach", "--steal", "s")
			thief.expect("MODES-SET")
		}, 75, "[detached from s]\r\nproxy: another client attached in this one's place: proxy /dev/pts/"},
		{"detach in another terminal", func(t *testing.T, w *world, p *terminal) {
			w.open("detach", "s").ends(0, "")
		}, 75, "[detached from s]\r\nproxy: another client has detached this one: proxy /dev/pts/"},
		{"SIGTERM", signals(syscall.SIGTERM), 143, "[detached from s by a signal]"},
		{"SIGHUP", signals(syscall.SIGHUP), 129, "[detached from s by a signal]"},
		{"SIGINT", signals(syscall.SIGINT), 130, "[detached from s by a signal]"},
		{"SIGQUIT", signals(syscall.SIGQUIT), 131, "[detached from s by a signal]"},
		{"SIGTERM twice", signals(syscall.SIGTERM, syscall.SIGTERM), 143, "[detached from s by a signal]"},
		{"proxy killed for good", func(t *testing.T, w *world, p *terminal) {
			// No other proxy can start, because the program is removed.
			if out, err := exec.Command("rm", w.Path("proxy-copy")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.Kill(w.Only("proxy"))
		}, 69, "proxy: connect:"},
		{"supervisor killed", func(t *testing.T, w *world, p *terminal) {
			w.Kill(w.Only("supervisor"))
			p.typ("bye\r") // the input goes to the same child, through the next supervisor
		}, 3, ""},
		{"supervisor and keeper killed", func(t *testing.T, w *world, p *terminal) { w.KillBoth() }, 66, "proxy: session_not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.must("new", "-d", "--durable", "off", "--id", "s", "--", "/bin/sh", "-c", setModes+"read x; exit 3")
			p := w.openSize(80, 24, exec.Command(w.copyProxy(), "attach", "s"))
			p.expect("MODES-SET")
			if p.attributes() == p.before {
				t.Error("the terminal is not raw")
			}
			tt.end(t, w, p)
			p.ends(tt.code, tt.says)
		})
	}
}

func signals(signals ...syscall.Signal) func(*testing.T, *world, *terminal) {
	return func(t *testing.T, _ *world, p *terminal) {
		for _, s := range signals {
			if err := p.cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
	}
}

// copyProxy copies the program into the world, so that a test can remove it.
func (w *world) copyProxy() string {
	w.T.Helper()
	to := w.Path("proxy-copy")
	if out, err := exec.Command("cp", filepath.Join(w.Bin, "proxy"), to).CombinedOutput(); err != nil {
		w.T.Fatalf("%v: %s", err, out)
	}
	return to
}

// A viewer that is stopped, as by a debugger, must make its terminal raw again when it continues, whatever
// attributes the shell has set meanwhile.
func TestStoppedAndContinued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty raw -echo; echo ready; exec cat -v")
	p := w.open("attach", "s")
	p.expect("ready")
	testkit.Must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	if !eventually(func() bool { state, _ := testkit.Stat(p.cmd.Process.Pid); return state == "T" }) {
		t.Fatal("the viewer does not stop")
	}
	testkit.Must(t, unix.IoctlSetTermios(int(p.slave.Fd()), unix.TCSETS, &p.before))
	testkit.Must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	if !eventually(func() bool { return p.attributes() != p.before }) {
		t.Fatal("the terminal is not raw again")
	}
	p.typ("\x03")
	p.expect("^C")
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
}

// A viewer that SIGTSTP stops gives its terminal back to the shell, and shows the screen again when it continues. Without a
// shell that could continue it, it does not stop.
func TestSuspended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `printf '\033[?1049h\033[?1000hready'; exec cat`)
	alone := w.open("attach", "s")
	alone.expect("ready")
	testkit.Must(t, alone.cmd.Process.Signal(syscall.SIGTSTP))
	alone.typ("typed\r")
	alone.expect("typed") // the echo, which a terminal that is not raw shows as well
	alone.expect("typed")
	alone.typ("\x1cd")
	alone.ends(0, "[detached from s]")

	p := w.openSize(80, 24, exec.Command("/bin/bash", "-c", "set -m; proxy attach s; read x; fg"))
	p.expect("ready")
	viewer := 0
	if children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(children), &viewer); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, syscall.Kill(viewer, syscall.SIGTSTP))
	for _, sequence := range []string{"\x1b[?1000l", "\x1b[?1049l", "\x1b[23;0t"} {
		p.expect(sequence)
	}
	if !eventually(func() bool { state, _ := testkit.Stat(viewer); return state == "T" }) {
		t.Fatal("the viewer does not stop")
	}
	if p.attributes() != p.before {
		t.Error("the terminal of the shell is raw")
	}
	p.typ("\r")
	for _, sequence := range []string{"\x1b[22;0t", "\x1b[?1049h", "ready", "\x1b[?1000h"} {
		p.expect(sequence)
	}
	if p.attributes() == p.before {
		t.Error("the terminal is not raw again")
	}
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
}

// If nobody reads the output of attach, as in "proxy attach ID | head", the viewer must end and restore its
// terminal.
func TestOutputClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "echo ready; read x; echo more; read y")
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "s")
	p := w.openPipe(cmd)
	p.expect("ready")
	if p.attributes() == p.before {
		t.Error("the terminal is not raw")
	}
	testkit.Must(t, p.piped.Close())
	w.must("send", "s", "--enter")
	p.ends(70, "")
}

// If the terminal disappears, as the window of a terminal program does, the viewer must end and the session
// must continue.
func TestTerminalGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "echo ready; read x")
	p := w.open("attach", "s")
	p.expect("ready")
	testkit.Must(t, p.master.Close())
	if code := p.wait(); code != 129 {
		t.Errorf("exit code %d, want 129", code)
	}
	if got := w.object("info", "s", "--json")["state"]; got != "running" {
		t.Errorf("the session is %v", got)
	}
}

// If the shell waits for the viewer before it deals with the end of its terminal, the viewer receives no signal. It must end
// nevertheless, and so must the list of sessions, also while the session prints.
func TestTerminalGoneWithoutSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("calm", "echo ready; read x")
	w.shell("busy", "while :; do echo ready; done")
	for _, args := range []string{"attach calm", "attach busy", "attach"} {
		rc := filepath.Join(w.Dir, "rc")
		_ = os.Remove(rc)
		p := w.openSize(80, 24, exec.Command("sh", "-c", `trap : HUP; "$0" `+args+` 2>/dev/null; echo $? >"$1"`, filepath.Join(w.Bin, "proxy"), rc))
		if p.expect("\x1b"); args != "attach" {
			p.expect("ready")
		} else {
			p.expect(">1")
		}
		testkit.Must(t, p.master.Close())
		p.wait()
		if got, err := os.ReadFile(rc); err != nil || string(got) != "129\n" {
			t.Errorf("%s: exit code %q, %v, want 129", args, got, err)
		}
	}
}

// An attached viewer must not start a proxy that was stopped. When another command starts one, the viewer
// must continue.
func TestProxyStoppedUnderViewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open(append([]string{"new", "--id", "s"}, bash...)...)
	p.ask("echo one-$((1+1))", "one-2")
	old := w.Only("proxy")
	w.must("stop")
	if !eventually(func() bool { return !old.Running() }) {
		t.Fatal("the proxy has not ended after stop")
	}
	p.typ("echo two-$((2+2))\r")
	w.must("ls")
	p.expect("two-4")
	if w.Only("proxy").Parent() == p.cmd.Process.Pid {
		t.Error("the viewer has started a proxy")
	}
	p.typ("exit\r")
	p.ends(0, "")
}

func TestDetachKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty raw -echo; echo ready; exec cat -v")

	p := w.open("attach", "s", "--detach-key", "ctrl-]")
	p.expect("ready")
	p.typ("\x1cd.")
	p.expect(`^\d.`)
	p.typ("\x1d")
	p.ends(0, "[detached from s]")

	p = w.open("attach", "s", "--detach-key", "ctrl-a z")
	p.expect("ready")
	p.typ("\x01x")
	p.expect("^Ax")
	p.typ("\x01z")
	p.ends(0, "[detached from s]")

	p = w.open("attach", "s", "--detach-key", "none")
	p.expect("ready")
	p.typ("\x1cd,")
	p.expect(`^\d,`)
	w.must("kill", "s")
	p.ends(129, "")
}

// If standard input is not a terminal, attach must send it unchanged, including the detach keys, and must not
// end at its end.
func TestAttachWithPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty raw -echo; echo ready; head -c 11 | od -An -c; echo done; exit 5")
	w.shows("s", "ready")
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "s")
	r := w.run(cmd, strings.NewReader("a\x1cd\x1c\r\n\x04\x03zzz"))
	if r.Code != 5 || !strings.Contains(r.Out, `a 034   d 034  \r  \n 004 003   z   z   z`) || !strings.Contains(r.Out, "done") {
		t.Errorf("attach through a pipe: %v", r)
	}
	if strings.Contains(r.Out, "\x1b") || r.Errout != "" {
		t.Errorf("the output contains more than the session printed: %v", r)
	}
}

// detach must detach the other terminals, and the session must continue. A setting names the detach keys.
func TestDetachOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_DETACH_KEY=ctrl-a z")
	w.shell("s", "stty raw -echo; echo ready; exec cat -v")
	w.shows("s", "ready")
	p := w.open("attach", "s")
	p.expect("ready")
	p.typ("\x1cd")
	p.expect(`^\d`)
	p.typ("\x01z")
	p.ends(0, "[detached from s]")
	typist, looker := w.open("attach", "s"), w.open("attach", "s", "--read-only")
	typist.expect("ready")
	looker.expect("ready")
	w.must("detach", "s")
	typist.ends(75, "")
	w.must("send", "s", "on", "--wait-text", "on")
	looker.expect("on")
	w.fails(64, "takes the ID", "detach")
	w.Env = append(w.Env, "HOLDFAST_DETACH_KEY=ctrl-nonsense")
	w.fails(78, "detach_key", "new")
}

// viewerAsks are the queries that a viewer sends to its own terminal.
const viewerAsks = "\x1b]10;?\x1b\\\x1b]11;?\x1b\\\x1b]12;?\x1b\\\x1b[>0q\x1b[?2027$p\x1b[?1007$p\x1b[?12$p\x1b[?45$p\x1b[c"

// The session must answer queries that a program prints while no viewer is attached, and no viewer that
// attaches later may receive them. The viewer that has started a session must receive queries that come while
// it is attached. (Earlier queries wait for it for 100 ms, which is too short for a test on a busy machine;
// package session tests this with a clock of its own.)
func TestQuestionsNotReplayed(t *testing.T) {
	t.Parallel()
	const ask = `printf 'before\033[c\033[>c\033[6n\033]11;?\007\033[>q\033[?u\033P+q544e\033\\after\n'; `
	questions := []string{"\x1b[c", "\x1b[>c", "\x1b[6n", "\x1b]11;?", "\x1b[>q", "\x1b[?u", "\x1bP+q"}
	w := newWorld(t)
	w.shell("s", "stty raw -echo; "+ask+"exec cat -v")
	w.shows("s", `^[[?1;2c^[[>0;`)
	p := w.open("attach", "s")
	p.expect("after")
	// The viewer's own queries come before the screen.
	shown := func() string { return strings.Replace(p.text(), viewerAsks, "", 1) }
	for _, q := range questions {
		if strings.Contains(shown(), q) {
			t.Errorf("the query %q was replayed to a later viewer", q)
		}
	}
	p.typ("typed")
	p.expect("typed")

	questions = slices.DeleteFunc(questions, func(q string) bool { return q == "\x1b[>q" }) // only the session answers this query
	p = w.open("new", "--id", "fresh", "--", "/bin/sh", "-c", "echo attached; read x; "+ask+"read x")
	p.expect("attached")
	p.typ("\r")
	p.expect("after")
	for _, q := range questions {
		if !strings.Contains(shown(), q) {
			t.Errorf("the viewer that started the session did not receive the query %q", q)
		}
	}
}

// A paste must arrive whole, even if the proxy dies in the middle of it.
func TestPaste(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size = 2 << 20
	w.shell("s", "stty raw -echo; echo ready; head -c 2097152 > pasted; echo all-there")
	p := w.open("attach", "s")
	p.expect("ready")
	text := strings.Repeat("The quick brown fox jumps over the lazy dog; \x1b[200~\x1c\x1b[A\t\x7f\r", size/50)[:size]
	p.typ(text[:size/2])
	w.Kill(w.Only("proxy"))
	p.typ(text[size/2:])
	p.expect("all-there")
	if got := w.read("pasted"); got != text {
		t.Errorf("%d bytes arrived of a paste of %d, or they differ", len(got), len(text))
	}
	p.ends(0, "")
}

// The session must have the size of the terminal, and must follow it.
func TestSizeFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.openSize(91, 33, exec.Command(filepath.Join(w.Bin, "proxy"), "new", "--id", "s", "--", "bash", "--norc", "--noprofile"))
	p.ask("stty size", "33 91")
	testkit.Must(t, p.resize(120, 40))
	w.hasSize("s", 120, 40)
	p.ask("stty size", "40 120")
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
	w.hasSize("s", 120, 40)

	// A size from the command line must stay, whatever size the terminal has.
	p = w.open("new", "--id", "fixed", "--size", "132x43", "--", "bash", "--norc", "--noprofile")
	p.ask("stty size", "43 132")
	w.hasSize("fixed", 132, 43)
	w.must("resize", "fixed", "--policy", "latest")
	p.ask("echo now-$((1+1)); stty size", "24 80")
}

// A viewer that is read-only or has not typed yet must see the session at the size of its own terminal, and
// must not change the session's size. When a viewer types, the session must get the size of its terminal.
func TestOwnView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("new", "-d", "--early-exit", "0", "--id", "s", "--size", "100x30", "--size-policy", "latest", "--", "/bin/sh", "-c",
		"stty raw -echo; printf '%060d\r\nready' 1; exec cat")
	w.shows("s", "ready")
	first := w.openSize(100, 30, exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "s"))
	first.expect("ready")
	proxy := filepath.Join(w.Bin, "proxy")
	looker := w.openSize(50, 10, exec.Command(proxy, "attach", "--read-only", "s"))
	second := w.openSize(50, 10, exec.Command(proxy, "attach", "s"))
	// Each viewer waits for a key of its own. If both keys were the same, second could show the key that was
	// meant for looker, and the second key of first could be accepted after the key of second.
	for key, p := range map[string]*terminal{"#": looker, "&": second} {
		p.expect("ready")
		first.typ(key) // one character, because views are updated independently of the input
		p.expect(key)
	}
	w.hasSize("s", 100, 30)
	testkit.Must(t, looker.resize(40, 12))
	second.typ("@")
	w.hasSize("s", 50, 10)
	for _, p := range []*terminal{first, second, looker} {
		p.expect("@")
	}
	raw := w.openSize(30, 10, exec.Command(proxy, "attach", "--view", "raw", "--read-only", "s"))
	raw.expect("@")
	w.hasSize("s", 50, 10)
	for p, keys := range map[*terminal]string{first: "\x1cd", second: "\x1cd", looker: "\x03", raw: "\x03"} {
		p.typ(keys)
		p.ends(0, "[detached from s]")
	}
}

// startWithCells starts a command on a terminal of 80 columns and 24 rows that knows the size of its cells, 9 by 17 pixels.
func (w *world) startWithCells(cmd *exec.Cmd) *terminal {
	w.T.Helper()
	p := w.terminal(80, 24, cmd)
	testkit.Must(w.T, unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 80, Row: 24, Xpixel: 80 * 9, Ypixel: 24 * 17}))
	cmd.Stdout = p.slave
	w.start(p, p.master)
	p.expect(viewerAsks)
	return p
}

// The session must answer queries with the properties that the viewer's terminal has reported, after the
// viewer has left. The reports themselves must not become input.
func TestAppearance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `stty raw -echo; echo ready; head -c 3 | cat -v; head -c 1; printf '\033[>q\033]11;?\007\033[16t'; exec cat -v`)
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "s")
	p := w.startWithCells(cmd)
	p.expect("ready")
	p.typ("a\x1b]10;rgb:ffff/ffff/ffff\x1b\\b\x1b]11;rgb:1010/2020/3030\x1b\\\x1bP>|Mine(7)\x1b\\\x1b[?62;22c")
	p.typ("c\x1cd")
	p.ends(0, "[detached from s]")
	w.shows("s", "abc")
	w.must("send", "s", "d")
	w.shows("s", ` Mine(7)^[\^[]11;rgb:1010/2020/3030`)
	w.shows("s", `abcd^[P>|holdfast`)
	w.shows("s", "^[[6;17;9t")
}

// A session that new starts has the size in pixels of the terminal from the beginning. If the viewer brought it, its program
// would receive SIGWINCH just after the start: less and vim then remove their first message.
func TestNewSendsCells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cmd := exec.Command(filepath.Join(w.Bin, "proxy"), "new", "--", "bash", "-c", `trap 'echo SIGWINCH' WINCH; echo ready; read -r x; echo "got $x"; read -r x`)
	p := w.startWithCells(cmd)
	p.typ("\x1b[?62;22c")
	p.expect("ready")
	p.typ("one\r") // bash runs the trap before the next command
	p.expect("got one")
	if strings.Contains(p.text(), "SIGWINCH") {
		t.Errorf("the program received SIGWINCH, although the terminal did not change: %q", p.text())
	}
	p.typ("\x1cd")
	p.ends(0, "[detached from ")
}

// TestInitialModesRestored checks modes whose initial state differs between terminals. After the attachment
// they must have the state that the terminal has reported.
func TestInitialModesRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `printf '\033[?12;45hready'; exec cat`)
	p := w.open("attach", "s")
	p.expect(viewerAsks)
	p.typ("\x1b[?12;2$y\x1b[?45;2$y\x1b[?62;22c")
	p.expect("ready")
	p.typ("\x1cd")
	p.ends(0, "[detached from s]")
	_, after, _ := strings.Cut(p.text(), "ready")
	for _, mode := range []string{"\x1b[?12l", "\x1b[?45l"} {
		if !strings.Contains(after, mode) {
			t.Errorf("the output after the session lacks %q: %q", mode, after)
		}
	}
}

// hasSize waits until a session has a size.
func (w *world) hasSize(id string, cols, rows float64) {
	w.T.Helper()
	var size any
	if !eventually(func() bool {
		size = w.object("info", id, "--json")["size"]
		is, ok := size.(map[string]any)
		return ok && is["cols"] == cols && is["rows"] == rows
	}) {
		w.T.Fatalf("session %s has the size %v, want %vx%v", id, size, cols, rows)
	}
}

// A viewer in a terminal without escape sequences must print none.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "TERM=dumb")
	w.shell("s", "echo ready; read x")
	p := w.open("attach", "s")
	p.expect("ready")
	p.typ("\x1cd")
	p.ends(0, "\r\n[detached from s]")
	if strings.Contains(p.text(), "\x1b") {
		t.Errorf("the output of a dumb terminal contains escape sequences: %q", p.text())
	}
}

// attach must refuse to show a session inside itself, but not a session of the same name of another supervisor.
func TestNotAttachedToItself(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	p := w.open("new", "--id", "s", "--", "bash", "--norc", "--noprofile")
	attach := func(dir, command string) string {
		return "HOLDFAST_DIR=" + dir + " " + filepath.Join(w.Bin, "proxy") + " " + command + "; echo code-$?"
	}
	p.ask(attach(w.Dir, "attach s"), "code-64")
	p.ask(attach(w.Dir, "run --id s -- true"), "code-64")
	other.shell("s", "echo other-''session; read x; exit 9")
	p.ask(attach(other.Dir, "detach"), "code-64")
	p.ask(attach(other.Dir, "attach s"), "other-session")
	p.typ("\r")
	p.expect("code-9")
	p.ask(attach(other.Dir, "run --id s -- true"), "code-73")
	p.ask(attach(w.Dir, "record s -o -"), "code-64")
	p.typ("HOLDFAST_DIR=" + w.Dir + " " + filepath.Join(w.Bin, "proxy") + " detach\r")
	p.ends(75, "another client has detached this one")
	if strings.Contains(p.text(), "may not have reached") {
		t.Errorf("the command was carried out, but the viewer says: %s", p.text())
	}
}

// The viewer must also query a real terminal, here tmux. Its answers must become the properties with which the
// session answers queries, and must not become input.
func TestAppearanceOfTmux(t *testing.T) {
	t.Parallel()
	tmux := program(t, "tmux")
	w := newWorld(t)
	w.shell("s", `stty raw -echo; echo ready; head -c 3 | cat -v; head -c 1; printf '\033[>q\033]11;?\007'; exec cat -v`)
	w.shows("s", "ready")
	tm := func(args ...string) string {
		cmd := exec.Command(tmux, append([]string{"-S", w.Path("tmux"), "-f", "/dev/null"}, args...)...)
		cmd.Env = append(w.Env, "TERM=xterm-256color")
		return w.run(cmd, nil).Out
	}
	t.Cleanup(func() { tm("kill-server") })
	tm("new-session", "-d", "-s", "t", "-x", "100", "-y", "30", "cat", ";", "set", "-g", "window-style", "bg=#102030",
		";", "set", "-g", "remain-on-exit", "on", ";", "respawn-pane", "-k", filepath.Join(w.Bin, "proxy")+" attach s")
	w.hasSize("s", 100, 30)
	tm("send-keys", "-t", "t:0", "abc")
	w.shows("s", "abc")
	tm("send-keys", "-t", "t:0", "C-\\", "d")
	if !eventually(func() bool { return strings.Contains(tm("capture-pane", "-p", "-t", "t:0"), "[detached from s]") }) {
		t.Fatalf("the viewer does not detach: %s", tm("capture-pane", "-p", "-t", "t:0"))
	}
	w.must("send", "s", "d")
	w.shows("s", "]11;rgb:1010/2020/3030")
	w.shows("s", "abcd^[P>|holdfast")
	w.shows("s", " tmux ")
}

// tmux uses left and right margins in terminals that it knows by name, here in terminals with the answers of
// iTerm2 and mintty. In a session tmux must not use them, because the session has no margins: output that
// scrolls in one pane would scroll in both on the session's screen.
func TestTmuxUsesNoMargins(t *testing.T) {
	t.Parallel()
	tmux := program(t, "tmux")
	for _, tt := range []struct{ name, version, da2 string }{
		{"iTerm2", "\x1bP>|iTerm2 3.5.0\x1b\\", "\x1b[>0;95;0c"},
		{"mintty", "\x1bP>|mintty 3.7.6\x1b\\", "\x1b[>77;30706;0c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tm := func(args ...string) string {
				cmd := exec.Command(tmux, append([]string{"-S", w.Path("tmux")}, args...)...)
				cmd.Env = append(w.Env, "TERM=xterm-256color")
				return w.run(cmd, nil).Out
			}
			t.Cleanup(func() { tm("kill-server") })
			w.shell("s", "stty -echo; echo ready; read x; exec "+tmux+" -u -S "+w.Path("tmux")+" -f /dev/null new-session /bin/sh ';' set -g status off")
			p := w.open("attach", "s")
			p.expect(viewerAsks)
			p.typ(tt.version + "\x1b[?62;4c")
			p.expect("ready")
			p.typ("\r")
			p.expect("\x1b[>c")
			if strings.Contains(p.text(), "\x1b[>q") {
				p.typ(tt.version)
			}
			p.typ("\x1b[?62;4c" + tt.da2)
			terminal := "holdfast"
			if !eventually(func() bool { return strings.HasPrefix(tm("display-message", "-p", "#{client_termtype}"), terminal) }) {
				t.Errorf("tmux recognises the terminal as %q, want a name that begins with %s", tm("display-message", "-p", "#{client_termtype}"), terminal)
			}
			tm("split-window", "-h", "seq 200; exec cat")
			var want []string
			var screen string
			if !eventually(func() bool {
				left := strings.Split(tm("capture-pane", "-p", "-t", ":.0"), "\n")
				right := strings.Split(tm("capture-pane", "-p", "-t", ":.1"), "\n")
				want = nil
				for y := range min(len(left), len(right)) {
					want = append(want, strings.TrimRight(fmt.Sprintf("%-40s│%s", left[y], right[y]), " \n"))
				}
				screen = w.must("screen", "s")
				return strings.Contains(screen, "│200") && strings.TrimSpace(screen) == strings.TrimSpace(strings.Join(want[:24], "\n"))
			}) {
				t.Errorf("the session's screen is\n%s\ntmux shows\n%s", screen, strings.Join(want, "\n"))
			}
			if strings.Contains(p.text(), "\x1b[?69h") {
				t.Error("tmux sets DECLRMM")
			}
		})
	}
}

// If the link stalls, the viewer must show a line on the terminal, and must remove it later.
func TestStalledLink(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("long mode: set HOLDFAST_LONG=1") // the viewer waits for 3 s
	}
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	p := w.open("attach", "s")
	p.ask("echo up-$((1+1))", "up-2")
	proxy := w.Only("proxy")
	proxy.Signal(syscall.SIGSTOP)
	p.typ("echo kept-$((2+2))\r")
	p.expect("no answer for 3 s")
	proxy.Signal(syscall.SIGCONT)
	p.expect("kept-4")
	if !eventually(func() bool {
		_, painted, _ := strings.Cut(p.text(), "no answer for 3 s")
		return strings.Count(painted, "kept-4") > 1 && strings.Contains(painted, "up-2") // the screen was painted again
	}) {
		t.Errorf("the line was not removed: %q", p.text())
	}
	p.typ("exit\r")
	p.ends(0, "")
}
