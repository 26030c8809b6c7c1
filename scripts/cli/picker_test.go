//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// If there are several sessions, a user at a terminal chooses one. The terminal must be restored however the
// choice ends.
func TestPicker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("one", "bash", "--norc", "--noprofile")
	p := w.open("attach") // one session is attached without a choice
	p.ask("echo here-$((1+0))", "here-1")
	p.typ("\x1cd")
	p.ends(0, "[detached from one]")

	w.must("new", "-d", "--id", "two", "--label", "title=a\x1b]0;owned\x07\u202eb", "--cwd", w.mkdir("work"), "--", "bash", "--norc", "--noprofile")
	w.must("send", "two", "--enter", "echo used-''last")
	w.shows("two", "used-last")
	open := func(args ...string) *terminal {
		t.Helper()
		p := w.open(append([]string{"attach"}, args...)...)
		p.expect(">1  two ")
		p.expect("a?]0;owned??b: bash --norc --noprofile")
		p.expect("/work")
		p.expect(" 2  one ")
		return p
	}
	for _, tt := range []struct{ name, keys, id string }{
		{"Enter chooses the session that was active last", "\r", "two"}, {"a digit", "2\r", "one"}, {"arrows", "\x1b[B\x1b[B\x1b[A\r", "two"},
	} {
		p := open()
		p.typ(tt.keys + "echo typed-''ahead-$HOLDFAST_SESSION\r") // the input after the choice is for the session
		p.expect("\x1b[?1049l")
		p.expect("typed-ahead-" + tt.id)
		p.typ("\x1cd")
		p.ends(0, "[detached from "+tt.id+"]")
		w.must("send", "two", "--enter", "clear; echo on-''top")
		w.shows("two", "on-top")
	}
	for _, keys := range []string{"q", "\x1b", "\x03"} {
		p := open("--read-only")
		p.typ(keys)
		p.ends(130, "\x1b[?1049l")
	}
	for code, sig := range map[int]syscall.Signal{143: syscall.SIGTERM, 130: syscall.SIGINT, 131: syscall.SIGQUIT} {
		p := open()
		testkit.Must(t, p.cmd.Process.Signal(sig))
		p.ends(code, "\x1b[?1049l")
	}

	// The list must be drawn again if the size of the terminal changes.
	p = open()
	testkit.Must(t, p.resize(30, 3))
	p.expect("Attach to")
	p.expect(">1  two ")
	p.typ("2")
	p.expect(">2  one ")
	if shown := p.text(); strings.Contains(shown[strings.LastIndex(shown, "Attach to"):], "two ") {
		t.Errorf("a list of three rows shows more than one session: %q", shown)
	}
	p.typ("q")
	p.ends(130, "")

	// Without a terminal, or on a terminal without escape sequences, attach must not offer a choice.
	pipe := w.openPipe(exec.Command(filepath.Join(w.Bin, "proxy"), "attach"))
	pipe.expect("on-top")
	testkit.Must(t, unix.Kill(pipe.cmd.Process.Pid, unix.SIGTERM))
	if code := pipe.wait(); code != 143 {
		t.Errorf("attach without a terminal: exit code %d", code)
	}
	w.Env = append(w.Env, "TERM=dumb")
	p = w.open("attach")
	p.typ("echo here-$HOLDFAST_SESSION\r")
	p.expect("here-two")
	p.typ("\x1cd")
	p.ends(0, "[detached from two]")
}
