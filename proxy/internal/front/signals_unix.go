//go:build unix

package front

import "syscall"

// The signals of a terminal: its size has changed, and the process continues in the foreground.
const (
	sizeChanged = syscall.SIGWINCH
	continued   = syscall.SIGCONT
)
