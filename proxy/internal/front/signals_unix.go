//go:build unix

package front

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The signals of a terminal: its size has changed, the process must stop, and it continues in the foreground.
const (
	sizeChanged = syscall.SIGWINCH
	suspended   = syscall.SIGTSTP
	continued   = syscall.SIGCONT
)

// stopProcess stops this process until it receives SIGCONT.
func stopProcess() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// hasShell reports whether a shell may continue this process after a stop. If there is none, as for a command that a
// terminal program has started itself, the system ignores the signals by which a terminal stops a process.
func hasShell() bool {
	session, err := unix.Getsid(0)
	if err != nil || unix.Getpgrp() == session {
		return false
	}
	parent, err := unix.Getsid(os.Getppid())
	return err == nil && parent == session
}
