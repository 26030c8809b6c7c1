package testkit

import (
	"context"
	"testing"
	"time"
)

// patience is how long anything may take that has to happen: it ends tests that
// have failed already.
const patience = 30 * time.Second

// Soon is a context that ends only when the test has failed already.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// Within returns what comes, or fails the test after a limit.
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
