//go:build unix

package main

import "syscall"

// The signals of a terminal: it has another size, and we are back in it.
const (
	sizeChanged = syscall.SIGWINCH
	continued   = syscall.SIGCONT
)
