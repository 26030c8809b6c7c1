package pty

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// byPidfd is a process held by its descriptor, so that nothing can be mistaken
// and its end wakes us up.
type byPidfd struct {
	file *os.File
	raw  syscall.RawConn
}

// openHandle returns nil if the process has ended since it was scanned.
func openHandle(q proc) handle {
	fd, err := unix.PidfdOpen(q.pid, 0)
	if err != nil {
		fd = -1
	}
	file, raw := pollFD(fd, "pidfd")
	// Only now: if the same process is still there, the descriptor is its.
	now, err := readProc(q.pid)
	switch {
	case err != nil || now.start != q.start:
		if file != nil {
			_ = file.Close()
		}
		return nil
	case file == nil:
		return byStart{q.identity()}
	}
	return byPidfd{file, raw}
}

func (p byPidfd) gone() (gone bool) {
	_ = p.raw.Control(func(fd uintptr) { gone = hasEnded(fd) })
	return gone
}

func (p byPidfd) wait(deadline time.Time) bool {
	if p.gone() {
		return true // even if the deadline has passed
	}
	_ = p.file.SetReadDeadline(deadline)
	return p.raw.Read(hasEnded) == nil
}

// hasEnded: a process that has makes its descriptor readable.
func hasEnded(fd uintptr) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0
}

func (p byPidfd) send(sig syscall.Signal) (err error) {
	ctlErr := p.raw.Control(func(fd uintptr) { err = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}

func (p byPidfd) close() { _ = p.file.Close() }
