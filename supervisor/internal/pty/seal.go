//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"
)

// Seal prevents children from inheriting open descriptors, ignored signals and a signal mask
// that this process was started with. It must be called before anything else. To clear the
// signal mask, it may exec the same program again with the same pid. Descriptors from 3 on stay
// open in this process, but are close-on-exec.
//
// A child inherits that a signal is ignored only if this process has no handler for it; if
// there is a handler, the child gets the default action. So Seal installs a handler that drops
// the signal for each ignored signal, which has the same effect in this process. Other code may
// still be notified of these signals, but must not call signal.Ignore or signal.Reset, because
// those remove the handlers.
//
// The effect ends with an exec, because the next program inherits default actions. A program
// that must outlive SIGHUP should therefore always be notified of SIGHUP.
func Seal() error {
	if err := clearMask(); err != nil { // must be first, because its exec must pass the descriptors and the ignored signals on
		return err
	}
	dropped := make(chan os.Signal, 1) // never read, because package signal drops a signal that the channel has no room for
	for _, sig := range ignoredSignals() {
		signal.Notify(dropped, sig)
	}
	return closeOnExec()
}

// closeEach makes each descriptor listed in dir close-on-exec, for systems that cannot do it
// for all at once.
func closeEach(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
			// The list contains the descriptor of dir itself, which is closed by now.
			if err != nil && !errors.Is(err, unix.EBADF) {
				return os.NewSyscallError("fcntl F_SETFD", err)
			}
		}
	}
	return nil
}
