package socket

import (
	"context"
	"time"
)

// Watch calls Check every interval until ctx is done. It calls report if Check has bound
// the path again or has failed.
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
