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
	cmd := exec.Command(filepath.Join(w.bin, "proxy"), "send", "s", "--file", "-")
	if r := w.run(cmd, strings.NewReader("from a pipe\x03")); r.code != 0 {
		t.Errorf("send from a pipe: %v", r)
	}
	// That was an interrupt, and ended it.
	if r := w.proxy("wait", "s"); r.code != 130 {
		t.Errorf("wait: %v", r)
	}
	w.fails(66, "session_exited: session s has exited by SIGINT", "send", "s", "more")
	w.must("kill", "s", "--forget") // there is nothing else left to do
	w.shell("s", "stty -echo; echo ready; exec cat")
	w.shows("s", "ready")
	w.must("send", "s", "--enter", "--", "-la")
	w.shows("s", "\n-la\n")
}

// Five mebibytes arrive whole, in a program that reads them as they are.
func TestSendMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 5<<20)
	_, _ = random.Read(data) // never fails
	w.write("data", string(data))
	w.shell("s", "stty raw -echo; echo ready; head -c 5242880 > got")
	w.shows("s", "ready")
	w.must("send", "s", "--file", w.path("data"))
	w.must("wait", "s")
	if got := w.read("got"); got != string(data) {
		t.Errorf("%d bytes arrived of %d, or others", len(got), len(data))
	}
}

func TestScreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `seq 1 100; printf '\033[1;31mred\033[0m \033]0;title\007end\n'; read x`)
	w.shows("s", "red end")
	if out := w.must("screen", "s", "--lines", "3"); out != "99\n100\nred end\n" {
		t.Errorf("screen --lines 3 says %q", out)
	}
	// (The last row has the cursor.)
	if out := w.must("screen", "s"); strings.Count(out, "\n") > 24 || !strings.HasSuffix(out, "100\nred end\n") || strings.HasPrefix(out, "1\n") {
		t.Errorf("screen says %q", out)
	}
	if got := w.object("screen", "s", "--lines", "2", "--json"); fmt.Sprint(got) != "map[lines:[100 red end]]" {
		t.Errorf("screen --json says %v", got)
	}
}

// stubborn is a session that ignores the hangup, and prints the signals that
// it does not.
const stubborn = `trap '' HUP; trap 'echo got-usr1' USR1; trap 'echo got-int' INT; trap 'echo got-term; exit 7' TERM; echo ready; while :; do sleep 0.01; done`

func TestKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", stubborn)
	w.shows("s", "ready")

	// A signal alone is a signal and no more.
	w.must("kill", "s", "--signal", "USR1")
	w.shows("s", "got-usr1")
	w.must("kill", "s", "--signal", "sigint")
	w.shows("s", "got-int")
	if info := w.object("info", "s", "--json"); info["state"] != "running" {
		t.Errorf("a signal has ended it: %v", info)
	}
	w.fails(64, "invalid_argument", "kill", "s", "--signal", "NONSENSE")

	// With a grace it is the signal to end by.
	w.must("kill", "s", "--signal", "TERM", "--grace", "20s")
	exit := w.object("info", "s", "--json")["exit"].(map[string]any)
	if exit["exit_code"] != 7.0 || exit["outcome"] != "soft" || exit["reason"] != "user_requested" {
		t.Errorf("ended by TERM: %v", exit)
	}
	w.fails(66, "session_exited", "kill", "s")
	w.must("kill", "s", "--forget")
	w.fails(66, "session_not_found", "info", "s")

	// What does not listen is killed after the grace.
	w.shell("s", stubborn)
	w.shows("s", "ready")
	w.must("kill", "s", "--grace", "10ms")
	exit = w.object("info", "s", "--json")["exit"].(map[string]any)
	if exit["exit_code"] != 137.0 || exit["outcome"] != "hard" || exit["signal"] != "SIGKILL" {
		t.Errorf("killed: %v", exit)
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
