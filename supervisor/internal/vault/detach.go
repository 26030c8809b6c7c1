package vault

import (
	"context"
	"time"
)

// Detach ends this program's use of the connection between two frames, and returns the socket's
// descriptor, which is close-on-exec. The next program of this process continues with Resume.
// No call may be in progress; a later call waits until Attach.
func (v *Vault) Detach(ctx context.Context) (fd int, err error) {
	if err := v.write(ctx, nil, nil); err != nil { // sends the remainder of a frame that was sent in part
		return 0, err
	}
	select {
	case <-v.writing:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	_ = v.conn.SetReadDeadline(time.Unix(1, 0))
	<-v.readEnded
	select {
	case <-v.lost:
		v.writing <- struct{}{}
		return 0, ErrLost
	default:
		return v.conn.FD, nil
	}
}

// Attach continues after Detach if the exec of the next program has failed.
func (v *Vault) Attach() {
	_ = v.conn.SetReadDeadline(time.Time{})
	v.readEnded = make(chan struct{})
	go v.read()
	v.writing <- struct{}{}
}
