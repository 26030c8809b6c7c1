//go:build unix

package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dial connects to path and checks the user of the listening process. If that user is
// neither the user of this process nor root, Dial returns a *PeerError. If no process
// listens, IsAbsent reports true for the error.
//
// If the listener's backlog is full, as in a long handoff, Dial retries until ctx is
// done.
func Dial(ctx context.Context, path string) (*net.UnixConn, Peer, error) {
	if err := checkLen(path); err != nil {
		return nil, Peer{}, fmt.Errorf("connect: %w", err)
	}
	conn, err := connect(ctx, path)
	if err != nil {
		return nil, Peer{}, fmt.Errorf("connect to %s: %w", path, err)
	}
	peer, err := PeerOf(conn)
	if own := os.Geteuid(); err == nil && peer.UID != own && peer.UID != 0 {
		err = &PeerError{path, peer, own}
	}
	if err != nil {
		return nil, peer, fmt.Errorf("connect to %s: %w", path, errors.Join(err, conn.Close()))
	}
	return conn, peer, nil
}

func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the backlog of the listener is full: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
