package policyhost

import (
	"os"
	"syscall"
)

const root = "" // the proxy's own working directory

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalGroup ends the program if s is SIGKILL, and ignores other signals, which Windows does not
// have.
func signalGroup(p *os.Process, s syscall.Signal) error {
	if s != syscall.SIGKILL {
		return nil
	}
	return p.Kill()
}

func (p *program) wait() {
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.isReaped = true
	p.mu.Unlock()
}
