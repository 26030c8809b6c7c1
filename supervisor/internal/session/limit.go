package session

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"holdfast/protocol"
)

// maxLimiters bounds the originators whose rate is watched; the rest share one.
const maxLimiters = 1024

// limits says how much one originator may start. Guarded by the table's mu.
type limits struct {
	burst, perSecond int
	by               map[string]*rate.Limiter
}

// spawn takes one from what an originator may start now, or returns
// limit_exceeded with the time to wait.
func (l *limits) spawn(originator string, now time.Time) error {
	if l.by == nil {
		l.by = make(map[string]*rate.Limiter)
	}
	if l.by[originator] == nil && len(l.by) >= maxLimiters {
		for name, r := range l.by { // whoever has been quiet long enough needs no watching
			if r.TokensAt(now) >= float64(l.burst) {
				delete(l.by, name)
			}
		}
		if len(l.by) >= maxLimiters {
			originator = "\x00"
		}
	}
	r := l.by[originator]
	if r == nil {
		r = rate.NewLimiter(rate.Limit(l.perSecond), l.burst)
		l.by[originator] = r
	}
	if r.AllowN(now, 1) {
		return nil
	}
	return &protocol.Error{
		Code: protocol.CodeLimitExceeded, Retryable: true, RetryAfterMS: max(1, time.Second.Milliseconds()/int64(l.perSecond)),
		Message: fmt.Sprintf("more than %d sessions at once and then %d a second are started by one originator", l.burst, l.perSecond),
	}
}
