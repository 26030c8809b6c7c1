package pty

import "golang.org/x/sys/unix"

func deviceNumber(n uint64) uint64 { return n }

// openPidfd returns a pidfd, or -1 if the kernel has none for the process.
func openPidfd(pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	return fd
}

const tiocgsid = unix.TIOCGSID

// maxRSSUnit is the unit of ru_maxrss in bytes.
const maxRSSUnit = 1 << 10
