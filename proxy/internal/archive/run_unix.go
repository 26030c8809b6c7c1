//go:build unix

package archive

import (
	"context"
	"errors"
	"time"

	"holdfast/shared/socket"
)

// lockEvery is the pause between two attempts to become the recorder of the host.
const lockEvery = time.Second

// Run records until ctx is done. It waits as long as another process records for this host, for example the
// proxy that this one replaces.
func (r *Recorder) Run(ctx context.Context) {
	for ctx.Err() == nil {
		lock, err := socket.Acquire(r.Lock)
		if err == nil {
			r.record(ctx)
			_ = lock.Close() // releases the lock in any case
			return
		}
		var inUse *socket.InUseError
		if !errors.As(err, &inUse) {
			r.noteFailure(ctx, err)
		}
		_ = pause(ctx, lockEvery) // the loop looks at ctx
	}
}
