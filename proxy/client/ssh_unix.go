//go:build unix

package client

import (
	"os/exec"
	"syscall"
)

// ownGroup lets cmd run in a process group of its own, which a terminal's interrupt does not reach.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
