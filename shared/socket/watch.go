package socket

import (
	"context"
	"time"
)

// Watch calls Check at the given interval until ctx is done, and reports what
// it did and what it could not do.
func (l *Listener) Watch(ctx context.Context, every time.Duration, report func(rebound bool, err error)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if rebound, err := l.Check(); rebound || err != nil {
				report(rebound, err)
			}
		case <-ctx.Done():
			return
		}
	}
}
