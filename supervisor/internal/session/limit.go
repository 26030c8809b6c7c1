package session

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"holdfast/protocol"
)

// maxLimiters bounds the originators that have a rate limiter of their own. All further
// originators share one.
const maxLimiters = 1024

// limits bounds how many sessions one originator may start in a short time. The table's mu
// guards it.
type limits struct {
	burst, perSecond int
	by               map[string]*rate.Limiter
}

// spawn consumes one start from the budget of an originator. If the budget is used up, spawn
// returns limit_exceeded with the time after which to retry.
func (l *limits) spawn(originator string, now time.Time) error {
	if l.by == nil {
		l.by = make(map[string]*rate.Limiter)
	}
	if l.by[originator] == nil && len(l.by) >= maxLimiters {
		for name, r := range l.by { // a limiter with a full budget has no information
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
		Message: fmt.Sprintf("this originator has started %d sessions at once, and %d a second after that; retry later", l.burst, l.perSecond),
	}
}
