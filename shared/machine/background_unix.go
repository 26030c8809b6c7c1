//go:build unix

package machine

import "syscall"

// Background has this process leave the processors to others: it is not waited for.
func Background() error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) }
