package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signalled is why a context has ended: a signal came.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string { return s.String() }

// exitCode is what a shell gives a program that the signal ended.
func (s signalled) exitCode() int { return 128 + int(s.Signal) }

// catch returns a context that ends with the first of the signals. Further
// ones do nothing: timeout(1) sends its signal twice, and the second must not
// cut short what the first one began.
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
