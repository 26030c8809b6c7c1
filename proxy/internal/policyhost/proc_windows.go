package policyhost

import (
	"os"
	"syscall"
)

const root = "" // wherever we are

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func closeOnExec() {} // only what is listed is inherited

// signalGroup ends the program; there is no other signal here.
func signalGroup(p *os.Process, s syscall.Signal) error {
	if s != syscall.SIGKILL {
		return nil
	}
	return p.Kill()
}

func (p *program) wait() {
	_ = p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
}
