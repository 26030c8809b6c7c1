//go:build unix && !linux

package policyhost

import "syscall"

// attributes give the program a process group of its own, so that a ctrl-C for
// the proxy is the proxy's. Of the proxy's death it learns from the end of its
// standard input, and in Go policy.Serve looks whose child it is.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// wait returns when the program has ended, and its children with it.
func (p *program) wait() {
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	_ = signalGroup(p.cmd.Process, syscall.SIGKILL) // the number was free for a moment
	p.mu.Unlock()
}
