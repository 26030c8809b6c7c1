package pty

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// clearMask: the mask cannot be read without C here, and no launcher of macOS
// is known to leave one.
func clearMask() error { return nil }

// ignored are the signals that may be. The runtime leaves those of job control
// alone and does not tell whether they are ignored.
func ignored() []syscall.Signal {
	found := []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			found = append(found, sig)
		}
	}
	return found
}

func closeOnExec() error { return closeEach("/dev/fd") }
