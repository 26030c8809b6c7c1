//go:build !linux && !darwin

package socket

import "net"

// PeerOf returns ErrUnsupported, so that no connection is accepted.
func PeerOf(*net.UnixConn) (Peer, error) { return Peer{}, ErrUnsupported }
