//go:build linux || darwin

package pty

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxRounds and roundWait bound the use of SIGKILL. One round is enough unless a process is
// stuck in the kernel, or a program forks faster than it is killed.
const (
	maxRounds = 50
	roundWait = 10 * time.Millisecond
)

// Hangup ends the child, every other process on the terminal, and all their descendants. It
// sends soft to each of them, and SIGKILL to those that still run after grace. It returns as
// soon as all have ended. A daemon that has left the terminal and lost its parent is spared.
//
// hard reports whether the child or its process group had to be killed. survivors are the pids
// of processes that could not be killed, because they belong to another user or are stuck in
// the kernel. Unless the child is among them, Done is closed.
func (p *PTY) Hangup(soft syscall.Signal, grace time.Duration) (hard bool, survivors []int) {
	h := newHunt(p)
	defer h.close()
	if !h.sendSoft(soft, time.Now().Add(grace)) {
		hard = h.kill()
	}
	for _, q := range h.running() {
		survivors = append(survivors, q.pid)
	}
	slices.Sort(survivors)
	if !slices.Contains(survivors, p.pid) {
		<-p.done
	}
	return hard, survivors
}

// A hunt remembers every process that it has found, because a process is not recognised as a
// descendant any more after its parent has died.
type hunt struct {
	pty   *PTY
	known []*target
}

type target struct {
	proc
	handle
	hasSoft bool // the soft signal was sent to it
}

// newHunt begins with the child, so that the child is found even if every scan fails because
// there are no descriptors left.
func newHunt(p *PTY) *hunt {
	h := &hunt{pty: p}
	if child := (ownChild{p}); !child.hasEnded() {
		q := proc{pid: p.pid, pgid: p.pid, sid: p.pid, start: p.start}
		h.known = append(h.known, &target{proc: q, handle: child})
	}
	return h
}

// rescan adds the processes that are on the terminal now, and the descendants of all known
// processes.
func (h *hunt) rescan() {
	t := scans.scan()
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
			h.known = append(h.known, &target{proc: q, handle: found})
		}
	}
}

func (h *hunt) running() []*target {
	var running []*target
	for _, q := range h.known {
		if !q.hasEnded() {
			running = append(running, q)
		}
	}
	return running
}

// await waits until all known processes have ended, and returns false at the deadline. It waits
// for one after the other, because that ends at the same time as waiting for all at once, and
// needs no goroutines.
func (h *hunt) await(deadline time.Time) bool {
	for _, q := range h.known {
		if !q.wait(deadline) {
			return false
		}
	}
	return true
}

// sendSoft sends the soft signal to all processes, also to those that begin meanwhile, and reports
// whether all have ended by the deadline. SIGCONT follows, because a stopped process receives
// the soft signal only after it is continued.
func (h *hunt) sendSoft(soft syscall.Signal, deadline time.Time) bool {
	for {
		h.rescan()
		running := h.running()
		if len(running) == 0 {
			return true
		}
		for _, q := range running {
			if !q.hasSoft {
				q.hasSoft = true
				_ = q.send(soft)
				_ = q.send(unix.SIGCONT)
			}
		}
		if !h.await(deadline) || !time.Now().Before(deadline) {
			return false
		}
	}
}

// kill sends SIGKILL until a scan finds no process any more, and reports whether it killed the
// child or a process of its group. It stops early if it may not signal any of the processes
// that are left.
func (h *hunt) kill() (hard bool) {
	for range maxRounds {
		h.rescan()
		running := h.running()
		if len(running) == 0 {
			return hard
		}
		allowed := false
		for _, q := range running {
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
