package linkclient

import (
	"context"
	"time"
)

const (
	backoffMin = 2 * time.Millisecond
	backoffMax = 200 * time.Millisecond
)

// A backoff is the pause before the next attempt to reach the supervisor. Each pause is twice as
// long as the one before, from backoffMin to backoffMax.
type backoff struct{ next time.Duration }

// wait waits for the next pause. It returns the error of ctx if ctx is done first.
func (b *backoff) wait(ctx context.Context) error {
	pause := max(b.next, backoffMin)
	b.next = min(2*pause, backoffMax)
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset makes the next pause the shortest one.
func (b *backoff) reset() { b.next = backoffMin }
