package session

import (
	"sync"

	"holdfast/supervisor/internal/pty"
)

// Exits tells sessions how children ended that are no children of this process.
type Exits struct {
	mu      sync.Mutex
	known   map[int]pty.Status // of nobody's yet; nil once all who may ask have asked
	waiting map[int]waiter
}

type waiter struct {
	told chan pty.Status
	note func(pty.Status)
}

// NewExits returns one that knows of no end.
func NewExits() *Exits {
	return &Exits{known: make(map[int]pty.Status), waiting: make(map[int]waiter)}
}

// Tell says how a process ended. When it returns that is written down.
func (e *Exits) Tell(pid int, status pty.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if w, ok := e.waiting[pid]; ok {
		delete(e.waiting, pid)
		w.note(status)
		w.told <- status
	} else if e.known != nil {
		e.known[pid] = status
	}
}

// of returns what is sent how a process ended, when note has been called with it.
func (e *Exits) of(pid int, note func(pty.Status)) <-chan pty.Status {
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

// asked forgets those that nobody has asked for.
func (e *Exits) asked() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = nil
}
