//go:build !linux && !darwin

package pty

import (
	"os"
	"syscall"
	"time"
)

// MaxLine is the longest line in canonical mode, in bytes; 0, because there are no terminals
// here.
const MaxLine = 0

// A PTY has no instances on this system, because Start and Adopt always fail.
type PTY struct{}

// Start returns ErrUnsupported.
func Start(Spec) (*PTY, error) { return nil, ErrUnsupported }

// Adopt returns ErrUnsupported.
func Adopt(State, *os.File, func(int) <-chan Status, func(Status)) (*PTY, error) {
	return nil, ErrUnsupported
}

// SizeOf returns 0 by 0.
func SizeOf(*os.File) (cols, rows int) { return 0, 0 }

// Protect does nothing.
func Protect() error { return nil }

// Seal does nothing, because this process never starts children.
func Seal() error { return nil }

// ParseSignal returns ErrUnsupported.
func ParseSignal(string) (syscall.Signal, error) { return 0, ErrUnsupported }

// SignalName returns the system's description of sig.
func SignalName(sig syscall.Signal) string { return sig.String() }

// StatusOf returns an unknown status.
func StatusOf(uint32) Status { return Status{Code: -1, Err: ErrUnsupported} }

// ErrNoChild is never returned on this system.
var ErrNoChild = ErrUnsupported

func (*PTY) State() State                                       { return State{} }
func (*PTY) Master() (*os.File, error)                          { return nil, ErrUnsupported }
func (*PTY) PID() int                                           { return 0 }
func (*PTY) Read([]byte) (int, error)                           { return 0, ErrUnsupported }
func (*PTY) ReadEach(Memory, func(int)) (int, error)            { return 0, ErrUnsupported }
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
