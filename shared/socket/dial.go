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

// Dial connects to path and makes sure that our own user, or root, listens
// there; if another one does, it returns a *PeerError. Where nobody listens the
// error is fs.ErrNotExist or ECONNREFUSED.
//
// While the listener's backlog is full, as in a long handoff, Dial tries again
// until ctx is done.
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
			return nil, fmt.Errorf("its backlog is full: %w", context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}
