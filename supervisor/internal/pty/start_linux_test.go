package pty

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// When memory runs out the child goes, not the supervisor.
func TestOOMScore(t *testing.T) {
	p := bash(t, "echo READY; exec sleep 1000")
	child, own := score(t, strconv.Itoa(p.PID())), score(t, "self")
	if want := min(max(own, 0)+oomRaise, 1000); child != want {
		t.Errorf("got %d, want %d; our own is %d", child, want, own)
	}
}

func score(t *testing.T, pid string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
