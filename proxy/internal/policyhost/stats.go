package policyhost

import (
	"sync"
	"sync/atomic"
	"time"
)

// A method is one of policy.Policy's.
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

// Stats is what a Host has counted since its start.
type Stats struct {
	Running bool
	Starts  uint64                 // that succeeded
	Crashes uint64                 // ends that nobody asked for, hangs, and starts again that failed
	Methods map[string]MethodStats // authenticate, resolve_task, authorize, observe

	EventsDropped uint64
}

// MethodStats counts the calls of one method.
type MethodStats struct {
	Calls    uint64
	Failures uint64 // without an answer; a refusal is one
	Timeouts uint64 // those of them for which there was none in time
}

// Stats returns the counts.
func (h *Host) Stats() Stats {
	h.mu.Lock()
	s := Stats{Running: h.state == up && !h.run.gone(), Starts: h.starts, Crashes: h.crashes, Methods: map[string]MethodStats{}}
	h.mu.Unlock()
	for m := range methods {
		c := &h.counts[m]
		s.Methods[m.String()] = MethodStats{c.calls.Load(), c.failures.Load(), c.timeouts.Load()}
	}
	s.EventsDropped = h.queue.dropped.Load()
	return s
}

// quiet is the least time between two lines that say the same of one method: one
// that fails every other time must not flood the log either.
const quiet = 10 * time.Second

// An episode is a time in which a method fails, from the first failure to the
// next success.
type episode struct {
	fails atomic.Uint64 // of this episode; 0 is none, which costs a success nothing more

	mu   sync.Mutex
	told bool // that it began
	last time.Time
}

// failed reports whether this failure is to be logged.
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

// worked ends an episode, and reports its failures and whether to log that.
func (e *episode) worked() (n uint64, say bool) {
	if e.fails.Load() == 0 {
		return 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	say, e.told = e.told, false
	return e.fails.Swap(0), say
}
