package socket

import (
	"context"
	"time"
)

// Until makes a listener's Accept fail when ctx is done. What it returns takes
// that back: the listener may be needed again, here or by the process that it is
// handed to.
func Until(ctx context.Context, ln interface{ SetDeadline(time.Time) error }) (release func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = ln.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-over
			_ = ln.SetDeadline(time.Time{})
		}
	}
}
