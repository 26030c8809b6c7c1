package logging

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// How many lines of one kind a peer can cause: a person sees what happens, and a
// flood neither fills the disk nor rotates older lines away.
const (
	limitBurst = 20              // at once
	limitEvery = 5 * time.Second // then one in this time
)

// A Limiter bounds how often lines are logged that a peer causes. A line behind some
// that were left out says how many, as "left_out". The zero value works.
type Limiter struct {
	now func() time.Time // nil is time.Now

	mu      sync.Mutex
	used    int       // of limitBurst
	at      time.Time // when used was brought up to date
	leftOut atomic.Uint64
}

// Of returns a logger to the same place as log, whose lines count for this limit.
func (l *Limiter) Of(log zerolog.Logger) *zerolog.Logger {
	log = log.Sample(l).Hook(l)
	return &log
}

// Sample implements zerolog.Sampler: it reports whether a line is to be logged.
func (l *Limiter) Sample(zerolog.Level) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.now != nil {
		now = l.now()
	}
	if n := int(now.Sub(l.at) / limitEvery); n > 0 {
		l.used = max(0, l.used-n)
		l.at = now
	}
	if l.used >= limitBurst {
		l.leftOut.Add(1)
		return false
	}
	l.used++
	return true
}

// Run implements zerolog.Hook.
func (l *Limiter) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	if n := l.leftOut.Swap(0); n > 0 {
		e.Uint64(LeftOut, n)
	}
}
