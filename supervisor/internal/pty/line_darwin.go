package pty

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	// MaxLine is the longest line in canonical mode, in bytes without its end: MAX_CANON of
	// <sys/syslimits.h> less one byte for that end.
	MaxLine = 1023
)
