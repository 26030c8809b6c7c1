//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Two viewers of one session must see the same, whichever of them types.
func TestTwoViewers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	a, b := w.open("attach", "s"), w.open("attach", "s")
	a.ask("echo from-a-$((1+1))", "from-a-2")
	b.expect("from-a-2")
	b.ask("echo from-b-$((2+2))", "from-b-4")
	a.expect("from-b-4")
	a.typ("\x1cd")
	a.ends(0, "[detached from s]")
	b.ask("exit 4", "exit")
	b.ends(4, "")
}

// The session must have the size of the terminal that typed last.
func TestSizeOfWhoTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	proxy := filepath.Join(w.Bin, "proxy")
	big := w.openSize(120, 40, exec.Command(proxy, "attach", "s"))
	big.ask("stty size", "40 120")
	small := w.openSize(60, 20, exec.Command(proxy, "attach", "s"))
	small.ask("stty size", "20 60")
	big.ask("stty size", "40 120")
	small.typ("\x1b[I") // a focus report of a terminal is not input
	small.typ("\x1cd")
	small.ends(0, "[detached from s]")
	w.hasSize("s", 120, 40)
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	owner := w.openSize(100, 30, exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "s"))
	owner.ask("echo ready-$((1+1))", "ready-2")
	viewer := w.openSize(60, 20, exec.Command(filepath.Join(w.Bin, "proxy"), "attach", "--read-only", "s"))
	viewer.expect("ready-2")
	viewer.typ("echo typed-by-viewer\r")
	if err := viewer.resize(50, 10); err != nil {
		t.Fatal(err)
	}
	owner.ask("echo shown-$((2+2))", "shown-4")
	viewer.expect("shown-4")
	w.hasSize("s", 100, 30)
	viewer.typ("\x03")
	viewer.ends(0, "[detached from s]")
	if strings.Contains(owner.text(), "typed-by-viewer") {
		t.Error("input of a read-only viewer reached the session")
	}
	w.fails(64, "--read-only", "attach", "--read-only", "--steal", "s")
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spawn("s", "bash", "--norc", "--noprofile")
	first := w.open("attach", "--exclusive", "s")
	first.ask("echo first-$((1+1))", "first-2")

	// The error must name the exclusive client and the remedy. Read-only viewers may attach.
	w.fails(75, "already_attached: session s is attached by proxy /dev/pts/", "attach", "s")
	w.fails(75, "steal", "attach", "--exclusive", "s")
	viewer := w.open("attach", "--read-only", "s")
	viewer.expect("first-2")

	second := w.open("attach", "--steal", "s")
	first.ends(75, "another client attached in this one's place: proxy /dev/pts/")
	second.ask("echo second-$((2+2))", "second-4")
	viewer.expect("second-4")
	w.fails(75, "already_attached", "attach", "s")
	second.typ("\x1cd")
	second.ends(0, "[detached from s]")

	// After the detach other clients may attach. An attached client prevents an exclusive one.
	third := w.open("attach", "s")
	third.ask("echo third-$((3+3))", "third-6")
	w.fails(75, "already_attached", "attach", "--exclusive", "s")
}
