//go:build unix && !linux

package policyhost

import "syscall"

// attributes give the program a process group of its own, so that a Ctrl-C for the proxy does not
// reach it. The program learns of the proxy's death by the end of its standard input;
// policy.Serve in Go also watches its parent process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// wait returns when the program and its children have ended.
func (p *program) wait() {
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.isReaped = true
	_ = signalGroup(p.cmd.Process, syscall.SIGKILL) // kills the children; the pid was unused for a moment
	p.mu.Unlock()
}
