//go:build !unix

package socket

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"
)

// A Listener does not exist on this system: Listen and Adopt return ErrUnsupported.
type Listener struct{}

// Listen returns ErrUnsupported.
func Listen(path string, _ Options) (*Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", path, ErrUnsupported)
}

// Adopt returns ErrUnsupported.
func Adopt(path string, _ []*os.File, _ Options) (*Listener, error) {
	return nil, fmt.Errorf("adopt %s: %w", path, ErrUnsupported)
}

// Dial returns ErrUnsupported.
func Dial(_ context.Context, path string) (*net.UnixConn, Peer, error) {
	return nil, Peer{}, fmt.Errorf("connect to %s: %w", path, ErrUnsupported)
}

// CheckDir returns ErrUnsafeDir unless dir is a directory and not a symbolic link. The
// access list of dir decides which users may use it. A directory in the user's profile
// inherits a private one.
func CheckDir(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeDir {
		return fmt.Errorf("%w: %s is not a directory; choose another directory", ErrUnsafeDir, dir)
	}
	return nil
}

// CheckParents returns nil, because Windows keeps the rights in access lists, which
// Holdfast does not read.
func CheckParents(string) error { return nil }

// Owner returns ErrUnsupported.
func Owner(string) (int, error) { return 0, ErrUnsupported }

// SendFiles returns ErrUnsupported.
func SendFiles(*net.UnixConn, []byte, []*os.File) error { return ErrUnsupported }

// RecvFiles returns ErrUnsupported.
func RecvFiles(*net.UnixConn, []byte, int) (int, []*os.File, error) { return 0, nil, ErrUnsupported }

// Path returns "".
func (*Listener) Path() string { return "" }

// Accept returns ErrUnsupported.
func (*Listener) Accept() (*net.UnixConn, Peer, error) { return nil, Peer{}, ErrUnsupported }

// SetDeadline returns ErrUnsupported.
func (*Listener) SetDeadline(time.Time) error { return ErrUnsupported }

// Check returns ErrUnsupported.
func (*Listener) Check() (bool, error) { return false, ErrUnsupported }

// Files returns ErrUnsupported.
func (*Listener) Files() ([]*os.File, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Listener) Close() error { return nil }

// Release does nothing.
func (*Listener) Release() error { return nil }

// Holder returns 0, because no socket has a holder.
func Holder(string) int { return 0 }

// Locked returns ErrUnsupported.
func Locked(string) (bool, error) { return false, ErrUnsupported }

// Acquire fails.
func Acquire(string) (*os.File, error) { return nil, ErrUnsupported }
