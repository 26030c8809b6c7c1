//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Interrupt sends SIGINT to the foreground process group, as Ctrl-C does. It also reaches a
// program that has turned Ctrl-C off.
func (p *PTY) Interrupt() error {
	return p.control("interrupt", func(fd int) error {
		// The kernel finds the process group, so it cannot be a wrong one.
		return unix.IoctlSetInt(fd, unix.TIOCSIG, int(unix.SIGINT))
	})
}

// Signal sends sig to every process of the terminal, in all process groups. It returns
// os.ErrProcessDone if there is no process.
func (p *PTY) Signal(sig syscall.Signal) error {
	h := newHunt(p)
	defer h.close()
	h.add(p.members(scans.scan()))
	sent, failed := 0, error(nil)
	for _, q := range h.running() {
		err := q.send(sig)
		if err == nil {
			sent++
		} else if !errors.Is(err, unix.ESRCH) {
			failed = errors.Join(failed, fmt.Errorf("pty: signal %d: %w", q.pid, err))
		}
	}
	if sent == 0 && failed == nil {
		return os.ErrProcessDone
	}
	return failed
}

// maxSignal is the last real-time signal of Linux.
const maxSignal = 64

// ParseSignal parses a name or a number, such as "SIGUSR1", "USR1" or "10". Case does not
// matter.
func ParseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > maxSignal {
			return 0, fmt.Errorf("unknown signal %d: a number must be 1 to %d", n, maxSignal)
		}
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("unknown signal %q: it must be a name such as SIGTERM, or a number", s)
}

// SignalName returns the name of a signal, such as "SIGUSR1", or its number if it has no name.
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return strconv.Itoa(int(sig))
}
