package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signalled is the cause of a context that was ended by a signal.
type signalled struct{ syscall.Signal }

// Error implements error.
func (s signalled) Error() string { return s.String() }

// exitCode returns the exit code that a shell reports for a program that the signal ended.
func (s signalled) exitCode() int { return 128 + int(s.Signal) }

// catch returns a context that ends with the first of the signals. Further signals have no effect,
// because timeout(1) sends its signal twice, and the second one must not interrupt the reaction to
// the first one.
func catch(parent context.Context, signals ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	go func() {
		select {
		case s := <-c:
			if s, ok := s.(syscall.Signal); ok {
				cancel(signalled{s})
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(c); cancel(nil) }
}
