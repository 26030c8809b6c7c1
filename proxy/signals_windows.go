package main

import "syscall"

// Windows knows neither, and never sends them.
const (
	sizeChanged = syscall.Signal(28)
	continued   = syscall.Signal(18)
)
