package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reap makes this process the parent of orphans among its descendants, so that it receives
// their exit status. The setting lasts for the life of the process, also through an exec.
func Reap() error {
	return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// Name sets the name of this process in lists of processes to the first 15 bytes of name. A
// process that was started by a descriptor would otherwise have the descriptor's number there.
func Name(name string) error { return os.WriteFile("/proc/self/comm", []byte(name), 0) }
