//go:build !linux && !darwin

package pty

import (
	"os"
	"syscall"
	"time"
)

// MaxLine is how long a line may be in canonical mode.
const MaxLine = 0

// A PTY does not exist here: Start never returns one.
type PTY struct{}

// Start returns ErrUnsupported.
func Start(Spec) (*PTY, error) { return nil, ErrUnsupported }

// Adopt returns ErrUnsupported.
func Adopt(State, *os.File, func(int) <-chan Status, func(Status)) (*PTY, error) {
	return nil, ErrUnsupported
}

// Protect does nothing.
func Protect() error { return nil }

// Seal has nothing to keep from children that are never started.
func Seal() error { return nil }

// ParseSignal returns ErrUnsupported.
func ParseSignal(string) (syscall.Signal, error) { return 0, ErrUnsupported }

// SignalName describes sig.
func SignalName(sig syscall.Signal) string { return sig.String() }

// StatusOf says that nothing is known.
func StatusOf(uint32) Status { return Status{Code: -1, Err: ErrUnsupported} }

// ErrNoChild is returned by nobody here.
var ErrNoChild = ErrUnsupported

func (*PTY) State() State                                       { return State{} }
func (*PTY) Master() (*os.File, error)                          { return nil, ErrUnsupported }
func (*PTY) PID() int                                           { return 0 }
func (*PTY) Read([]byte) (int, error)                           { return 0, ErrUnsupported }
func (*PTY) ReadEach([]byte, func(int)) (int, error)            { return 0, ErrUnsupported }
func (*PTY) TryWrite([]byte) (int, error)                       { return 0, ErrUnsupported }
func (*PTY) Write([]byte) (int, error)                          { return 0, ErrUnsupported }
func (*PTY) SetReadDeadline(time.Time) error                    { return ErrUnsupported }
func (*PTY) SetWriteDeadline(time.Time) error                   { return ErrUnsupported }
func (*PTY) Resize(int, int, int, int) error                    { return ErrUnsupported }
func (*PTY) LineMode() bool                                     { return false }
func (*PTY) Echoes() bool                                       { return false }
func (*PTY) Interrupt() error                                   { return ErrUnsupported }
func (*PTY) Signal(syscall.Signal) error                        { return ErrUnsupported }
func (*PTY) Done() <-chan struct{}                              { return nil }
func (*PTY) Status() Status                                     { return Status{} }
func (*PTY) Hangup(syscall.Signal, time.Duration) (bool, []int) { return false, nil }
func (*PTY) Close() error                                       { return nil }
