//go:build unix

package policyhost

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// root is the program's working directory. It is / so that the program does not keep a file
// system from being unmounted.
const root = "/"

// closeOnExec marks all descriptors that the proxy has inherited from its launcher, so that the
// program does not inherit them. Descriptors that Go has opened are marked already.
func closeOnExec() {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // the descriptors stay open; that is no reason not to start
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func signalGroup(p *os.Process, s syscall.Signal) error { return syscall.Kill(-p.Pid, s) }
