//go:build unix

package policyhost

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// root is where the program works: nothing is kept from being unmounted.
const root = "/"

// closeOnExec marks what our own launcher has left open in us without a word, so
// that it is not the program's. Descriptors of Go's own are marked already.
func closeOnExec() {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // then they stay open; no reason not to start
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func signalGroup(p *os.Process, s syscall.Signal) error { return syscall.Kill(-p.Pid, s) }
