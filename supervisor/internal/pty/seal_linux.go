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

// sealed is set in the environment across the one exec of clearMask.
const sealed = "HOLDFAST_PTY_SEALED"

// clearMask starts the program anew if signals are blocked: each thread of the
// runtime begins with the mask the process was started with, and each child
// with that of the thread that forked it.
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
	// The link, not the path: that may be another version by now.
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), sealed+"=1"))
	return fmt.Errorf("pty: exec to unblock signals: %w", err)
}

// ignored are the signals ignored now: the runtime has put its own handlers on
// all others, which children do not inherit.
func ignored() []syscall.Signal {
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
	return closeEach("/proc/self/fd") // before Linux 5.11
}
