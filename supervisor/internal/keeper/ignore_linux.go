package keeper

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignoreUntilExec makes the kernel ignore signals, and returns the function that undoes this.
//
// It does not call signal.Ignore: that tells the Go runtime that the signal has no receiver, so the
// runtime ends the process if a thread has entered the handler just before. Here the handler still
// finds a receiver.
func ignoreUntilExec(_ chan<- os.Signal, signals []os.Signal) (undo func()) {
	before := make([]signalAction, len(signals))
	for i, s := range signals {
		setSignalAction(s, nil, &before[i])
		ignored := before[i]
		ignored.handler = 1 // SIG_IGN of signal(7)
		setSignalAction(s, &ignored, nil)
	}
	return func() {
		for i, s := range signals {
			setSignalAction(s, &before[i], nil)
		}
	}
}

// signalAction has room for the kernel's struct sigaction, which begins with the handler and has 32
// bytes on amd64 and arm64.
type signalAction struct {
	handler uintptr
	others  [7]uintptr
}

// setSignalAction calls rt_sigaction(2). It cannot fail: the signals are valid, and so are the
// pointers.
func setSignalAction(s os.Signal, action, before *signalAction) {
	const maskBytes = 8
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s.(syscall.Signal)),
		uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(before)), maskBytes, 0, 0)
}
