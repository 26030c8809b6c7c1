package pty

import (
	"os"
	"syscall"
)

func sysProcAttr(*int, *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// Protect does nothing: the kernel ends no process for memory by a score.
func Protect() error { return nil }

func expendably(fork func()) { fork() }
