package session

import (
	"sync"
	"time"
)

// activity is when a session was last in use.
type activity struct {
	last       instant   // when the session last printed or received input; any goroutine sets it
	lastOutput time.Time // when the session printed last; owned by loop
}

// clockDrift is how far the clock of the machine may move against the time that passes without being noticed.
const clockDrift = time.Second

// saved returns when the session was last in use, for the program that adopts the session, which knows nothing of the time
// but the clock of the machine. If that clock was set since, or the machine slept, saved returns the time that it would show
// otherwise, because an adopted session must not look unused for longer.
func (a *activity) saved(now time.Time) time.Time {
	last := a.last.get()
	if at := now.Round(0).Add(-now.Sub(last)); at.Sub(last.Round(0)).Abs() > clockDrift {
		return at
	}
	return last
}

// load notes when an adopted session was last in use. From now on, the time that passes counts, and not the clock of the
// machine.
func (a *activity) load(last, now time.Time) { a.last.set(now.Add(-max(0, now.Sub(last)))) }

// resume notes the last output of an adopted session, which may be older than its last input.
func (a *activity) resume() { a.lastOutput = a.last.get() }

// notePrinted notes output. It is called in loop.
func (a *activity) notePrinted(now time.Time) {
	a.lastOutput = now
	a.last.set(now)
}

// silentFor returns how long the session has not printed. If a mark is given, the time before the
// mark does not count. It is called in loop.
func (a *activity) silentFor(now time.Time, since *mark) time.Duration {
	from := a.lastOutput
	if since != nil && since.at.After(from) && !since.at.After(now) {
		from = since.at
	}
	return max(0, now.Sub(from))
}

// instant is a time that loop sets with each piece of output and that any goroutine may read.
type instant struct {
	mu sync.Mutex
	at time.Time
}

func (i *instant) set(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = at
}

func (i *instant) get() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at
}
