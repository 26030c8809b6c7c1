//go:build linux || darwin

package pty

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A handle refers to one process and never to a later process of the same pid.
type handle interface {
	hasEnded() bool               // reports whether the process has ended, even if it is not reaped yet
	wait(deadline time.Time) bool // waits for the end of the process; false at the deadline
	send(sig syscall.Signal) error
	close()
}

// ownChild is the handle of a PTY's child. The pid belongs to the child until this process
// reaps it.
type ownChild struct{ pty *PTY }

func (c ownChild) hasEnded() bool {
	select {
	case <-c.pty.done:
		return true
	default:
		return false
	}
}

func (c ownChild) wait(deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-c.pty.done:
		return true
	case <-timer.C:
		return c.hasEnded()
	}
}

func (c ownChild) send(sig syscall.Signal) error {
	c.pty.reaping.Lock()
	defer c.pty.reaping.Unlock()
	if c.hasEnded() {
		return unix.ESRCH
	}
	return unix.Kill(c.pty.pid, sig)
}

func (c ownChild) close() {}

// byStart is the handle of a process without a pidfd. It compares the start time before every
// use, so the pid can change its owner unnoticed only within microseconds.
type byStart struct{ identity }

// pollPause is the pause between two checks whether such a process has ended.
const pollPause = 2 * time.Millisecond

func (s byStart) hasEnded() bool {
	q, err := readProc(s.pid)
	if err != nil {
		return err == errNoProcess // after any other error the process may still run
	}
	return q.start != s.start || q.isZombie
}

func (s byStart) wait(deadline time.Time) bool {
	for !s.hasEnded() {
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(pollPause)
	}
	return true
}

func (s byStart) send(sig syscall.Signal) error {
	if q, err := readProc(s.pid); err == nil && q.start == s.start {
		return unix.Kill(s.pid, sig)
	}
	return unix.ESRCH
}

func (s byStart) close() {}
