package logging

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Limits of the lines of one kind that peers can cause. They suffice for a person to notice
// the event. If a peer causes more, they neither fill the disk nor displace older lines.
const (
	limitBurst = 20              // lines at once
	limitEvery = 5 * time.Second // time after which one more line is allowed
)

// A Limiter limits the number of log lines that peers can cause. If it has left out lines, the
// next line contains their number as "left_out". The zero value is ready to use.
type Limiter struct {
	now func() time.Time // the clock; nil: time.Now

	mu      sync.Mutex
	used    int       // lines logged, out of limitBurst
	at      time.Time // when used was last reduced
	leftOut atomic.Uint64
}

// Of returns a logger with the destination of log. Its lines count for this limit.
func (l *Limiter) Of(log zerolog.Logger) *zerolog.Logger {
	log = log.Sample(l).Hook(l)
	return &log
}

// Sample implements zerolog.Sampler. It reports whether the next line may be logged.
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

// Run implements zerolog.Hook. It adds the number of lines that were left out.
func (l *Limiter) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	if n := l.leftOut.Swap(0); n > 0 {
		e.Uint64(LeftOut, n)
	}
}

// Refuser returns a function that logs the refusal of a connection. A Limiter limits the
// number of lines.
func Refuser(log zerolog.Logger) func(uid, pid int, err error) {
	limit := &Limiter{}
	return func(uid, pid int, err error) {
		limit.Of(log).Warn().Bool(Security, true).Int(UID, uid).Int(PID, pid).Err(err).Msg("connection refused")
	}
}
