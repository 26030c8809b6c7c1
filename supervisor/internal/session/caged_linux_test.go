package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/pty"
)

// oneCage gives each session the same cage.
type oneCage struct {
	noCages
	cage *cage.Cage
}

func (c oneCage) New(string, protocol.Limits, protocol.Limits) (*cage.Cage, error) {
	return c.cage, nil
}

// newCage makes a cage with a process in it that does not belong to any terminal. The test is skipped if no cgroup can
// be made.
func newCage(t *testing.T) *cage.Cage {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	testkit.Must(t, err)
	dir := ""
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			dir = filepath.Join(f[1], fmt.Sprintf("session-test-%d", os.Getpid()))
		}
	}
	if dir == "" {
		t.Skip("no cgroup can be made here: cgroup version 2 is not mounted")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	c := cage.Open(cage.Options{Setting: cage.Off, Log: zerolog.Nop()}).Adopt(dir)
	group, err := c.Open()
	testkit.Must(t, err)
	defer group.Close()
	remainder := exec.Command("sleep", "1000")
	remainder.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := remainder.Start(); err != nil {
		t.Skipf("no process can be started in a cgroup here: %v", err)
	}
	t.Cleanup(func() {
		_ = remainder.Process.Kill()
		_ = remainder.Wait() // the error tells that it was killed
	})
	return c
}

// If the child of a frozen session is killed from outside, the processes that it leaves behind are thawed, because
// nobody could thaw them after the session has exited.
func TestExitThaws(t *testing.T) {
	c := newCage(t)
	tb, by := fakeTable(t, Config{Cages: oneCage{cage: c}})
	s := create(t, tb, bash(""))
	testkit.Must(t, s.SetFrozen(true))
	await(t, tb.Events(), s.ID(), protocol.EventFrozen) // otherwise neither change may be published
	by(s).exit(pty.Status{Code: 137, Signal: "SIGKILL"})
	ended(t, s)
	if c.Frozen() || info(t, s).Frozen {
		t.Errorf("after the exit the cage is frozen: %v, the session says %v", c.Frozen(), info(t, s).Frozen)
	}
	await(t, tb.Events(), s.ID(), protocol.EventThawed)
}
