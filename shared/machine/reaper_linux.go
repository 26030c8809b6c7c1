package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reap has orphans among our descendants become our children, so that somebody
// learns how they end. It lasts for the process, through an exec too.
func Reap() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// Name has the process be called by a name, at most 15 bytes of it, where it would
// be by the number of the descriptor that it was started by.
func Name(name string) error { return os.WriteFile("/proc/self/comm", []byte(name), 0) }
