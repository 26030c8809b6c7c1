package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// CheckEvery is the interval at which Watch calls Check, because cleaners of temporary directories remove files that were
// not used for days.
const CheckEvery = 10 * time.Second

// Watch calls Check every CheckEvery until ctx is done or l is closed. It calls report if Check has bound
// the path again or has failed.
func (l *Listener) Watch(ctx context.Context, report func(rebound bool, err error)) {
	t := time.NewTicker(CheckEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			rebound, err := l.Check()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if rebound || err != nil {
				report(rebound, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// DialOwner is like Dial, but it distinguishes a process without the file of its socket from no process. If no process
// listens on the path, and a process holds its lock, the error matches *InUseError, and IsAbsent is false for it.
func DialOwner(ctx context.Context, path string) (*net.UnixConn, Peer, error) {
	conn, peer, err := Dial(ctx, path)
	if !IsAbsent(err) {
		return conn, peer, err
	}
	held, lockErr := Locked(path)
	switch {
	case lockErr != nil:
		return nil, peer, lockErr
	case held:
		return nil, peer, fmt.Errorf("%w, but the file of the socket is gone; try again after %v, within which the process makes the file again, or end the process", &InUseError{path, Holder(path)}, CheckEvery)
	}
	return nil, peer, err
}
