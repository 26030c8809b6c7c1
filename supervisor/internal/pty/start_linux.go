package pty

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

func sysProcAttr(pidfd *int, cgroup *os.File) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, PidFD: pidfd}
	if cgroup != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(cgroup.Fd())
	}
	return attr
}

// The scores by which the kernel chooses whom it ends when memory runs out: see
// oom_score_adj in proc(5).
const (
	// oomRaise is how much sooner than us a child is chosen; it is what systemd
	// gives to users' programs.
	oomRaise = 100
	// oomLast is of a process that is chosen when no other is left. With -1000 it
	// would never be, not even if it was the one that took all the memory.
	oomLast = -999
	oomMost = 1000
)

// Protect makes the kernel end this process after all others when memory runs out:
// without it, all sessions end. A process without privilege keeps the lowest score
// that it was given.
func Protect() error {
	now, err := oomScore()
	if err != nil {
		return err
	}
	scoring.Lock()
	defer scoring.Unlock()
	if err := setOOMScore(oomLast); err == nil {
		return nil
	}
	// How low it may be can only be found out by trying.
	for low := oomLast; low < now; {
		try := low + (now-low)/2
		if setOOMScore(try) == nil {
			now = try
		} else {
			low = try + 1
		}
	}
	return nil
}

// scoring is held to change our own score; forks counts those under way.
var (
	scoring sync.Mutex
	forks   int
	ours    int // our score while none is
)

// expendably has fork start a child that the kernel ends before us, and so has all
// that the child starts: they inherit our score, so that is raised meanwhile. Raised
// behind the fork, a child's own children could have been started before. If the
// score cannot be changed, so be it.
func expendably(fork func()) {
	scoring.Lock()
	if forks++; forks == 1 {
		// Protection that was given to the supervisor is not the shells' to inherit.
		if score, err := oomScore(); err == nil {
			ours = score
			_ = setOOMScore(min(max(score, 0)+oomRaise, oomMost))
		}
	}
	scoring.Unlock()
	fork()
	scoring.Lock()
	defer scoring.Unlock()
	if forks--; forks == 0 {
		_ = setOOMScore(ours)
	}
}

const scoreFile = "/proc/self/oom_score_adj"

func oomScore() (int, error) {
	text, err := os.ReadFile(scoreFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func setOOMScore(score int) error { return os.WriteFile(scoreFile, []byte(strconv.Itoa(score)), 0) }
