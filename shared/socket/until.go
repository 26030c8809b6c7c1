package socket

import (
	"context"
	"time"
)

// Until makes a listener's Accept fail when ctx is done. The returned function removes
// the deadline again. The caller must call it, because this process, or the process that
// adopts the listener, may continue to accept.
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
