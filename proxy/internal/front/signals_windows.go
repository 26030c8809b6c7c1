package front

import "syscall"

// Windows does not have these signals and never sends them.
const (
	sizeChanged = syscall.Signal(28)
	suspended   = syscall.Signal(20)
	continued   = syscall.Signal(18)
)

func stopProcess() {}

func hasShell() bool { return false }
