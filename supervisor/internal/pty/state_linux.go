package pty

import "golang.org/x/sys/unix"

func deviceNumber(n uint64) uint64 { return n }

// openPidfd returns -1 where there is none.
func openPidfd(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	return fd
}

const tiocgsid = unix.TIOCGSID

// maxRSSUnit is what rusage counts memory in, in bytes.
const maxRSSUnit = 1 << 10
