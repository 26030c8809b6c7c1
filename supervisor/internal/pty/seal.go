//go:build linux || darwin

package pty

import (
	"errors"
	"os"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"
)

// Seal keeps what our launcher left behind from reaching children: open
// descriptors, ignored signals and a signal mask. The process calls it before
// anything else; it may start again on the way, as the same program with the
// same pid. Descriptors from 3 on stay usable here.
//
// A signal is ignored in a child if it is ignored here without a handler, and
// becomes default if there is one. So those found ignored get a handler that
// drops them, to the same effect here. Others can still be notified of them.
// signal.Ignore and signal.Reset would undo it.
//
// It lasts for this image of the process: after an exec nothing is ignored any
// more, so who must outlive SIGHUP asks to be notified of it in any case.
func Seal() error {
	if err := clearMask(); err != nil { // first, as its exec shall pass on the rest
		return err
	}
	dropped := make(chan os.Signal, 1) // never read: package signal drops what does not fit
	for _, sig := range ignored() {
		signal.Notify(dropped, sig)
	}
	return closeOnExec()
}

// closeEach marks the descriptors one by one, where they cannot be all at once.
func closeEach(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
			// The one that listed them is among them and gone.
			if err != nil && !errors.Is(err, unix.EBADF) {
				return os.NewSyscallError("fcntl F_SETFD", err)
			}
		}
	}
	return nil
}
