package policyhost

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes give the program a process group of its own, so that a Ctrl-C for the proxy does not
// reach it, and make the kernel kill it when the proxy dies. The kernel does not kill a setuid
// program or the program's children; they learn of the proxy's death by the end of their standard
// input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait returns when the program has ended and is reaped. It kills the program's children before
// it reaps the program, because the number of the process group cannot be used again until then.
func (p *program) wait() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	_ = signalGroup(p.cmd.Process, syscall.SIGKILL)
	p.isReaped = true
	p.mu.Unlock()
	_ = p.cmd.Wait()
}
