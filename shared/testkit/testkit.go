// Package testkit holds what tests of several packages need: golden files, a
// check for leaks, the real programs, and directories for sockets.
//
// Invariant: nothing waits for a time to pass. What has to be waited for is
// asked for until it is so, and the limit is only there for a failure.
//
// Not here: fakes. A test that needs one has it beside itself, at the edge it
// stands for.
package testkit

import (
	"os"
	"testing"
	"time"
)

// Dir returns an empty directory of mode 0700 that is removed after the test.
// Its path is short, other than that of t.TempDir, so that sockets fit in it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	return dir
}

// pollEvery is how often Eventually asks.
const pollEvery = 2 * time.Millisecond

// Eventually returns once cond is true, and fails the test if it is not by the
// limit. It is for what gives no sign by itself, such as another process's
// descriptors; where there is a channel or a line of output, wait for that.
func Eventually(t testing.TB, limit time.Duration, cond func() bool, msg string) {
	t.Helper()
	if !poll(limit, cond) {
		t.Fatalf("not within %v: %s", limit, msg)
	}
}

func poll(limit time.Duration, cond func() bool) bool {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for end := time.Now().Add(limit); !cond(); <-tick.C {
		if time.Now().After(end) {
			return cond()
		}
	}
	return true
}
