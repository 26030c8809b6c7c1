//go:build linux || darwin

package pty

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SIGKILL acts at once on all but processes stuck in the kernel; what takes
// more rounds is a program that forks faster than it is killed.
const (
	maxRounds = 50
	roundWait = 10 * time.Millisecond
)

// Hangup ends the child and everything else that runs on the terminal or
// descends from what does: soft to each of them, and SIGKILL to those left
// after the grace. It returns as soon as nothing is left, at once if nothing
// was. Daemons that have left the terminal and their parents are spared.
//
// hard tells whether the child or its process group had to be killed; survivors
// are those that could not be, another user's or stuck in the kernel. Unless
// the child is among them, Done is closed.
func (p *PTY) Hangup(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	h := newHunt(p)
	defer h.close()
	if !h.ask(soft, time.Now().Add(grace)) {
		hard = h.kill()
	}
	for _, q := range h.left() {
		survivors = append(survivors, q.pid)
	}
	slices.Sort(survivors)
	if !slices.Contains(survivors, p.pid) {
		<-p.done
	}
	return hard, survivors
}

// A hunt remembers every process it has come across, as one whose parent has
// died is no longer recognised as a descendant.
type hunt struct {
	pty   *PTY
	known []*quarry
}

type quarry struct {
	proc
	handle
	asked bool // got the soft signal
}

// newHunt knows the child from the start: it is found even where lack of
// descriptors makes every scan fail.
func newHunt(p *PTY) *hunt {
	h := &hunt{pty: p}
	if child := (ownChild{p}); !child.gone() {
		q := proc{pid: p.pid, pgid: p.pid, sid: p.pid, start: p.start}
		h.known = append(h.known, &quarry{proc: q, handle: child})
	}
	return h
}

// rescan takes up what else is on the terminal or descends from what was.
func (h *hunt) rescan() {
	t := scans.take()
	roots := h.pty.members(t)
	for _, q := range h.known {
		roots = append(roots, q.proc)
	}
	h.add(t.descendants(roots))
}

func (h *hunt) add(procs []proc) {
	known := make(map[identity]bool, len(h.known))
	for _, q := range h.known {
		known[q.identity()] = true
	}
	for _, q := range procs {
		if known[q.identity()] {
			continue
		}
		if found := openHandle(q); found != nil {
			h.known = append(h.known, &quarry{proc: q, handle: found})
		}
	}
}

func (h *hunt) left() []*quarry {
	var left []*quarry
	for _, q := range h.known {
		if !q.gone() {
			left = append(left, q)
		}
	}
	return left
}

// await waits until all known have ended, or returns false at the deadline.
// One after the other is as good as all at once, and needs no goroutines.
func (h *hunt) await(deadline time.Time) bool {
	for _, q := range h.known {
		if !q.wait(deadline) {
			return false
		}
	}
	return true
}

// ask sends the soft signal, to latecomers too, and reports whether all have
// gone by the deadline. A stopped process only hears it once it is continued.
func (h *hunt) ask(soft syscall.Signal, deadline time.Time) bool {
	for {
		h.rescan()
		left := h.left()
		if len(left) == 0 {
			return true
		}
		for _, q := range left {
			if !q.asked {
				q.asked = true
				_ = q.send(soft)
				_ = q.send(unix.SIGCONT)
			}
		}
		if !h.await(deadline) || !time.Now().Before(deadline) {
			return false
		}
	}
}

// kill sends SIGKILL until a scan finds nothing any more, and reports whether
// it hit the child or its group. It gives up where no signal is allowed.
func (h *hunt) kill() (hard bool) {
	for range maxRounds {
		h.rescan()
		left := h.left()
		if len(left) == 0 {
			return hard
		}
		allowed := false
		for _, q := range left {
			err := q.send(unix.SIGKILL)
			allowed = allowed || !errors.Is(err, unix.EPERM)
			if q.pid == h.pty.pid || q.pgid == h.pty.pid {
				hard = hard || err == nil
			}
		}
		if !allowed {
			return hard
		}
		h.await(time.Now().Add(roundWait))
	}
	return hard
}

func (h *hunt) close() {
	for _, q := range h.known {
		q.close()
	}
}
