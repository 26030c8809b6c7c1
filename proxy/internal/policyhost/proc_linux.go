package policyhost

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes give the program a process group of its own, so that a ctrl-C for
// the proxy is the proxy's, and have it killed when the proxy is. A program that
// is setuid, or a child of the program, is not: those have the end of their
// standard input.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// wait returns when the program has ended and is reaped. Its children are ended
// before that: until then its group's number is not given anew.
func (p *program) wait() {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	_ = signalGroup(p.cmd.Process, syscall.SIGKILL)
	p.reaped = true
	p.mu.Unlock()
	_ = p.cmd.Wait()
}
