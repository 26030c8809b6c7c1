package pty

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// byPidfd is the handle of a process by its pidfd. A pidfd never refers to another process, and
// the netpoller reports the end of the process.
type byPidfd struct {
	file *os.File
	raw  syscall.RawConn
}

// openHandle returns a handle for a process of a scan, or nil if the process has ended since.
func openHandle(q proc) handle {
	fd, err := unix.PidfdOpen(q.pid, 0)
	if err != nil {
		fd = -1
	}
	file, raw := pollFD(fd, "pidfd")
	// The start time must be read after the pidfd was opened: if it is still the same, the pidfd
	// belongs to that process.
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

func (p byPidfd) hasEnded() (gone bool) {
	_ = p.raw.Control(func(fd uintptr) { gone = hasPidfdEnded(fd) })
	return gone
}

func (p byPidfd) wait(deadline time.Time) bool {
	if p.hasEnded() {
		return true // an ended process counts even after the deadline
	}
	_ = p.file.SetReadDeadline(deadline)
	return p.raw.Read(hasPidfdEnded) == nil
}

// hasPidfdEnded reports whether the process of a pidfd has ended, because its pidfd is readable
// then.
func hasPidfdEnded(fd uintptr) bool {
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
