package vault

import (
	"context"
	"time"
)

// Detach leaves the conversation between two frames, for the next image of this
// process, which goes on with Resume: it returns the socket's number, which is
// close-on-exec. No call may be under way; those that come now wait for Attach.
func (v *Vault) Detach(ctx context.Context) (fd int, err error) {
	if err := v.write(ctx, nil, nil); err != nil { // what was left half written
		return 0, err
	}
	select {
	case <-v.writing:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	v.conn.SetReadDeadline(time.Unix(1, 0))
	<-v.still
	select {
	case <-v.lost:
		v.writing <- struct{}{}
		return 0, ErrLost
	default:
		return v.conn.FD, nil
	}
}

// Attach goes on after Detach, where no other image has.
func (v *Vault) Attach() {
	v.conn.SetReadDeadline(time.Time{})
	v.still = make(chan struct{})
	go v.read()
	v.writing <- struct{}{}
}
