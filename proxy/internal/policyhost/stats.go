package policyhost

import (
	"sync"
	"sync/atomic"
	"time"
)

// A method is a method of policy.Policy.
type method int

const (
	authenticate method = iota
	resolveTask
	authorize
	observe
	methods
)

func (m method) String() string {
	return [methods]string{"authenticate", "resolve_task", "authorize", "observe"}[m]
}

type counts struct {
	calls, failures, timeouts atomic.Uint64
	episode                   episode
}

// Stats holds the counts of a Host since its start.
type Stats struct {
	Running bool
	Starts  uint64                 // successful starts
	Crashes uint64                 // unrequested ends, hangs, and failed restarts
	Methods map[string]MethodStats // authenticate, resolve_task, authorize, observe

	EventsDropped uint64
}

// MethodStats counts the calls of one method.
type MethodStats struct {
	Calls    uint64
	Failures uint64 // calls without an answer; a refusal is an answer
	Timeouts uint64 // the failures of which the deadline had passed
}

// Stats returns the counts.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	s := Stats{Running: h.state == up && !h.run.isGone(), Starts: h.starts, Crashes: h.crashes, Methods: map[string]MethodStats{}}
	h.mu.Unlock()
	for m := range methods {
		c := &h.counts[m]
		s.Methods[m.String()] = MethodStats{c.calls.Load(), c.failures.Load(), c.timeouts.Load()}
	}
	s.EventsDropped = h.queue.dropped.Load()
	return s
}

// quiet is the shortest time between two equal log lines for one method, because a method that
// fails every other time must not flood the log.
const quiet = 10 * time.Second

// An episode is a time in which a method fails, from its first failure to its next success.
type episode struct {
	fails atomic.Uint64 // failures in this episode; 0 means that there is none, and a success then needs no lock

	mu   sync.Mutex
	told bool // the begin of the episode was logged
	last time.Time
}

// failed counts a failure, and reports whether it should be logged.
func (e *episode) failed(now time.Time) bool {
	e.fails.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.told || now.Sub(e.last) < quiet {
		return false
	}
	e.told, e.last = true, now
	return true
}

// worked ends an episode. It returns the number of failures, and whether the end should be
// logged.
func (e *episode) worked() (n uint64, say bool) {
	if e.fails.Load() == 0 {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	say, e.told = e.told, false
	return e.fails.Swap(0), say
}
