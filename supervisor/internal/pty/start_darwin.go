package pty

import (
	"os"
	"syscall"
)

func sysProcAttr(*int, *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}

// Protect does nothing, because macOS has no score by which it ends processes when memory runs
// out.
func Protect() error { return nil }

func forkExpendable(fork func()) { fork() }
