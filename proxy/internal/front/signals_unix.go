//go:build unix

package front

import (
	"os"
	"syscall"
)

// The signals of a terminal: its size has changed, the process must stop, and it continues in the foreground.
const (
	sizeChanged = syscall.SIGWINCH
	suspended   = syscall.SIGTSTP
	continued   = syscall.SIGCONT
)

// stopProcess stops this process until it receives SIGCONT.
func stopProcess() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }
