package pty

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, PidFD: pidfd}
}

// oomRaise is how much sooner than us a child is chosen when memory runs out;
// it is what systemd gives to users' programs.
const oomRaise = 100

// adjust makes the kernel end the child before it ends us, and with us every
// other session. If it cannot be, so be it.
func adjust(pid int) {
	own, _ := os.ReadFile("/proc/self/oom_score_adj")
	score, _ := strconv.Atoi(string(bytes.TrimSpace(own)))
	// Protection that was given to the supervisor is not the shells' to inherit.
	score = min(max(score, 0)+oomRaise, 1000)
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(score)), 0)
}
