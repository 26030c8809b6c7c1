//go:build linux || darwin

package pty

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A handle reaches one process and never a later one of the same pid.
type handle interface {
	gone() bool                   // has ended, be it reaped or not
	wait(deadline time.Time) bool // gone by the deadline; returns as soon as it is
	send(sig syscall.Signal) error
	close()
}

// ownChild is the child of a PTY: until we reap it the pid is its.
type ownChild struct{ pty *PTY }

func (c ownChild) gone() bool {
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
		return c.gone()
	}
}

func (c ownChild) send(sig syscall.Signal) error {
	c.pty.reaping.Lock()
	defer c.pty.reaping.Unlock()
	if c.gone() {
		return unix.ESRCH
	}
	return unix.Kill(c.pty.pid, sig)
}

func (c ownChild) close() {}

// byStart is a process without a pidfd. Its start time is compared at every
// use, which leaves only microseconds for the pid to change hands.
type byStart struct{ identity }

// pollPause is how often such a process is looked at.
const pollPause = 2 * time.Millisecond

func (s byStart) gone() bool {
	q, err := readProc(s.pid)
	if err != nil {
		return err == errGone // anything else: it cannot be known
	}
	return q.start != s.start || q.zombie
}

func (s byStart) wait(deadline time.Time) bool {
	for !s.gone() {
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
