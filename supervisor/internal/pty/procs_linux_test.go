package pty

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " S 1 42 7 34816 42 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0"
	want := proc{pid: 42, ppid: 1, pgid: 42, sid: 7, tty: 34816, start: 12345}
	for _, name := range []string{"(sh)", "(a b)", "(x) Z 9 9)", "()", "(\n)"} {
		if got, err := parseStat(42, []byte("42 "+name+tail)); got != want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	if _, err := parseStat(42, []byte("42 (sh) S 1")); err == nil {
		t.Error("an incomplete stat was accepted")
	}
	if q, err := readProc(os.Getpid()); err != nil || q.ppid != os.Getppid() || q.start == 0 {
		t.Errorf("got %+v, %v, want this process", q, err)
	}
	if _, err := readProc(1 << 30); err != errNoProcess {
		t.Errorf("got %v, want errGone", err)
	}
}

// A terminal is identified by its file, because containers use the same device numbers.
func TestHolds(t *testing.T) {
	p, other := bash(t, "echo READY; exec sleep 1000"), bash(t, "echo READY; exec sleep 1000")
	if !hasTerminalOpen(p.pid, &p.slave) || hasTerminalOpen(other.pid, &p.slave) || hasTerminalOpen(1<<30, &p.slave) {
		t.Error("a terminal is mistaken for another one")
	}
}
