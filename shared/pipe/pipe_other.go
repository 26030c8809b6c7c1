//go:build !windows

package pipe

import (
	"context"
	"fmt"
	"net"
)

// Own returns ErrUnsupported.
func Own(_, socket string) (string, error) {
	return "", fmt.Errorf("name the pipe of %s: %w", socket, ErrUnsupported)
}

// A Listener does not exist on this system: Listen returns ErrUnsupported.
type Listener struct{}

// Listen returns ErrUnsupported.
func Listen(name string, _ Options) (*Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", name, ErrUnsupported)
}

// Dial returns ErrUnsupported.
func Dial(_ context.Context, name string) (net.Conn, Peer, error) {
	return nil, Peer{}, fmt.Errorf("connect to %s: %w", name, ErrUnsupported)
}

// Name returns "".
func (*Listener) Name() string { return "" }

// Accept returns ErrUnsupported.
func (*Listener) Accept() (net.Conn, Peer, error) { return nil, Peer{}, ErrUnsupported }

// Close does nothing.
func (*Listener) Close() error { return nil }
