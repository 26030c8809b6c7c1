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

// The scores by which the kernel chooses the process to end when memory runs out; see
// oom_score_adj in proc(5).
const (
	// oomRaise is added to this process's score to get a child's score, so that the kernel ends
	// the child first. The value is the one that systemd gives to users' programs.
	oomRaise = 100
	// oomLast is the score of a process that is ended after all others. With -1000 the kernel
	// would never end it, even if it was the process that used all the memory.
	oomLast = -999
	oomMost = 1000
)

// Protect makes the kernel end this process after all others when memory runs out, because all
// sessions end with it. A process without privilege keeps the lowest score that it may set.
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
	// The lowest permitted score can only be found by trying.
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

// scoring protects this process's score. forkCount is the number of forks in progress.
var (
	scoring   sync.Mutex
	forkCount int
	ownScore  int // the score of this process while no fork is in progress
)

// forkExpendable calls fork, which starts a child, so that the kernel ends the child and its
// descendants before this process. They inherit the score of this process, so forkExpendable raises
// that score during the fork. To raise the child's score after the fork would be too late,
// because the child may have started children of its own. An error is ignored: the child then
// has this process's score.
func forkExpendable(fork func()) {
	scoring.Lock()
	if forkCount++; forkCount == 1 {
		// Children must not inherit a low score that the supervisor was given as protection.
		if score, err := oomScore(); err == nil {
			ownScore = score
			_ = setOOMScore(min(max(score, 0)+oomRaise, oomMost))
		}
	}
	scoring.Unlock()
	fork()
	scoring.Lock()
	defer scoring.Unlock()
	if forkCount--; forkCount == 0 {
		_ = setOOMScore(ownScore)
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
