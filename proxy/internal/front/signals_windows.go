package front

import "syscall"

// Windows does not have these signals and never sends them.
const (
	sizeChanged = syscall.Signal(28)
	continued   = syscall.Signal(18)
)
