package pty

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TCGETS
	// MaxLine is the longest line in canonical mode, in bytes without its end: N_TTY_BUF_SIZE
	// less one, in Linux's drivers/tty/n_tty.c.
	MaxLine = 4095
)
