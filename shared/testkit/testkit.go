// Package testkit contains helpers for the tests of several packages: golden files, a check for
// leaks, the real programs, and directories for sockets.
//
// Invariant: no helper waits for a fixed time. It asks for a condition until the condition is
// true. A time limit only ends a test that has failed.
//
// Not here: fakes. Package fakelink has the supervisor's end of the link; a test that needs another
// fake defines it in its own package.
package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Must ends the test if one of the errors is not nil.
func Must(t testing.TB, errs ...error) {
	if err := errors.Join(errs...); err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Dir returns an empty directory of mode 0700 that is removed after the test. Unlike the path of
// t.TempDir, its path is short enough for sockets.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hf")
	Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	return dir
}

// WriteProgram writes an executable file. This process starts no other one meanwhile: a new process holds the open files
// of its parent until it executes its program, and the kernel executes no file that a process holds open for writing.
func WriteProgram(t testing.TB, path string, content []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, content, 0o755)
	syscall.ForkLock.RUnlock()
	Must(t, err)
}

// FreeAddress returns a HOST:PORT of this machine on which nothing listens. Another process may take it before the
// test does. The port is below those that systems choose for connections (RFC 6056, section 3.2: above 32768 on
// Linux): a connection to such a port of this machine, while nothing listens there, may get the same port at its
// own end, connect with itself, and so keep the port from the server that the test waits for.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)))
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// FreePort returns the port of a FreeAddress.
func FreePort(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(FreeAddress(t))
	Must(t, err)
	return port
}

// The pauses between the calls of Poll.
const (
	shortestPause = 2 * time.Millisecond
	longestPause  = 200 * time.Millisecond
)

// Eventually returns when cond returns true, and fails the test if cond does not do so within
// limit. It is meant for conditions without a notification, such as the descriptors of another
// process. If there is a channel or a line of output, a test should wait for that instead.
func Eventually(t testing.TB, limit time.Duration, cond func() bool, msg string) {
	t.Helper()
	if !Poll(limit, cond) {
		t.Fatalf("not within %v: %s", limit, msg)
	}
}

// Seed returns a seed for random tests: that of HOLDFAST_SEED, which repeats an earlier run, or else a new one. The test
// must print it.
func Seed() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64); err == nil {
		return s
	}
	return rand.Uint64()
}

// Poll calls cond until it returns true or limit has passed, and returns the last result. The pauses between
// the calls grow with the time of a call, because a cond that starts a program would otherwise take a
// processor from the tests that run at the same time, and with the time of the whole wait.
func Poll(limit time.Duration, cond func() bool) bool {
	begun := time.Now()
	for {
		called := time.Now()
		if cond() {
			return true
		}
		now := time.Now()
		if now.Sub(begun) > limit {
			return cond()
		}
		time.Sleep(min(max(shortestPause, 2*now.Sub(called), now.Sub(begun)/10), longestPause))
	}
}
