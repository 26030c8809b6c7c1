package pty

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	// MaxLine is how long a line may be in canonical mode, in bytes without its
	// end: MAX_CANON of <sys/syslimits.h> less that.
	MaxLine = 1023
)
