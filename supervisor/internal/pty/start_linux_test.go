package pty

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// If memory runs out, the kernel kills the child and not the supervisor.
func TestOOMScore(t *testing.T) {
	p := bash(t, "echo READY; exec sleep 1000")
	child, own := score(t, strconv.Itoa(p.PID())), score(t, "self")
	if want := min(max(own, 0)+oomRaise, 1000); child != want {
		t.Errorf("got %d, want %d; the supervisor's is %d", child, want, own)
	}
}

// Processes that a child starts at once have the child's score, too, even if the supervisor is protected, because the
// child has its score from the fork on.
func TestOOMScoreOfGrandchildren(t *testing.T) {
	before := score(t, "self")
	if os.WriteFile(scoreFile, []byte("-500"), 0) != nil {
		t.Skip("only root may lower the score")
	}
	defer func() { _ = setOOMScore(before) }()
	p := run(t, script("cat /proc/self/oom_score_adj; echo READY; exec sleep 1000"))
	if got := until(t, p, "READY"); !strings.HasPrefix(got, strconv.Itoa(oomRaise)+"\r\n") {
		t.Errorf("the child's first child has %q, want %d", got, oomRaise)
	}
	if got := score(t, strconv.Itoa(p.PID())); got != oomRaise {
		t.Errorf("the child has the score %d, want %d", got, oomRaise)
	}
	if got := score(t, "self"); got != -500 {
		t.Errorf("the supervisor's score is %d, and was -500", got)
	}
}

func score(t *testing.T, pid string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
	testkit.Must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	testkit.Must(t, err)
	return n
}
