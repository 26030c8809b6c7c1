//go:build !linux && !darwin

package socket

import "net"

// PeerOf returns ErrUnsupported, so that nobody is let through.
func PeerOf(*net.UnixConn) (Peer, error) { return Peer{}, ErrUnsupported }
