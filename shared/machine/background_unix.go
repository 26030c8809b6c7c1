//go:build unix

package machine

import "syscall"

// Background lowers the priority of this process, because no user waits for its result.
func Background() error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) }
