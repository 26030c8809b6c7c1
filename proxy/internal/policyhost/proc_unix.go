//go:build unix

package policyhost

import (
	"os"
	"syscall"
)

// root is the program's working directory. It is / so that the program does not keep a file
// system from being unmounted.
const root = "/"

func signalGroup(p *os.Process, s syscall.Signal) error { return syscall.Kill(-p.Pid, s) }
