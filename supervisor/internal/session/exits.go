package session

import (
	"sync"

	"holdfast/supervisor/internal/pty"
)

// Exits passes on the exit statuses of children that are not children of this process.
type Exits struct {
	mu      sync.Mutex
	known   map[int]pty.Status // of children that no session has asked for; nil after forgetUnclaimed
	waiting map[int]waiter
}

type waiter struct {
	status chan pty.Status
	note   func(pty.Status)
}

// NewExits returns an Exits without statuses.
func NewExits() *Exits {
	return &Exits{known: make(map[int]pty.Status), waiting: make(map[int]waiter)}
}

// Record passes on how a process ended. When Record returns, the session of the process has saved
// the status.
func (e *Exits) Record(pid int, status pty.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.waiting[pid]; ok {
		delete(e.waiting, pid)
		w.note(status)
		w.status <- status
	} else if e.known != nil {
		e.known[pid] = status
	}
}

// watch returns a channel that receives the exit status of a process. note is called with the
// status before.
func (e *Exits) watch(pid int, note func(pty.Status)) <-chan pty.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := make(chan pty.Status, 1)
	if status, ok := e.known[pid]; ok {
		delete(e.known, pid)
		note(status)
		c <- status
	} else {
		e.waiting[pid] = waiter{c, note}
	}
	return c
}

// forgetUnclaimed drops the statuses that no session has asked for. It must be called after the
// last watch.
func (e *Exits) forgetUnclaimed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = nil
}
