package pty

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sealed is the environment variable that clearMask sets for its one exec, so that it never
// execs twice.
const sealed = "HOLDFAST_PTY_SEALED"

// clearMask execs the program again without a signal mask if signals are blocked. An exec is
// necessary, because each thread of the runtime begins with the mask that the process was
// started with, and each child with the mask of the thread that forked it.
func clearMask() error {
	again := os.Getenv(sealed) != ""
	if err := os.Unsetenv(sealed); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var mask, empty unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, nil, &mask); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	if mask == empty {
		return nil
	}
	if again {
		return errors.New("pty: signals are still blocked after an exec")
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &empty, nil); err != nil {
		return os.NewSyscallError("sigprocmask", err)
	}
	// The link must be used, because the program's path may lead to another version by now.
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), sealed+"=1"))
	return fmt.Errorf("pty: exec to unblock signals: %w", err)
}

// ignoredSignals returns the signals that are ignored now. The runtime has installed its own
// handlers for all others, and children do not inherit handlers.
func ignoredSignals() []syscall.Signal {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:")
	line, _, _ := strings.Cut(rest, "\n")
	set, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	var found []syscall.Signal
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if set&(1<<(sig-1)) != 0 {
			found = append(found, sig)
		}
	}
	return found
}

func closeOnExec() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	return closeEach("/proc/self/fd") // a kernel before Linux 5.11
}
