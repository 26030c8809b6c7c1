package testkit

import (
	"context"
	"testing"
	"time"
)

// patience is the time limit of events that must happen. If it passes, the test has failed.
const patience = 30 * time.Second

// Soon returns a context that ends after the test, or after 30 s, when the test has failed.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Within returns the next value of c. If there is none within limit, Within fails the test.
func Within[T any](t testing.TB, limit time.Duration, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		t.Fatalf("not within %v: %s", limit, what)
		panic("unreachable")
	}
}
