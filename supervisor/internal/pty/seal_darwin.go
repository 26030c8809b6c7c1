package pty

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// clearMask does nothing, because the signal mask cannot be read on macOS without C, and no
// launcher there is known to leave one.
func clearMask() error { return nil }

// ignoredSignals returns the signals that are ignored or may be. The runtime does not touch the
// signals of job control and does not report whether they are ignored, so they are always among
// them.
func ignoredSignals() []syscall.Signal {
	found := []syscall.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT}
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			found = append(found, sig)
		}
	}
	return found
}

func closeOnExec() error { return closeEach("/dev/fd") }
