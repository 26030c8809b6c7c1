package testkit

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakLimit is how long goroutines and descriptors of a test may still exist after it.
const leakLimit = 5 * time.Second

// CheckLeaks fails the test if, after all other clean-ups of the test, there are goroutines or
// open descriptors that did not exist when CheckLeaks was called. A test must call it first. A
// parallel test must not call it, because CheckLeaks cannot tell which test owns a goroutine.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := openResources()
	t.Cleanup(func() {
		var left map[string]string
		if Poll(leakLimit, func() bool { left = leaked(before, openResources()); return len(left) == 0 }) {
			return
		}
		t.Errorf("goroutines or descriptors remain after the test:\n%s", strings.Join(slices.Sorted(maps.Values(left)), "\n"))
	})
}

// leaked returns the resources in now that were not in before.
func leaked(before, now map[string]string) map[string]string {
	left := map[string]string{}
	for id, description := range now {
		old, known := before[id]
		// The description of a goroutine is its stack, which may change. If the
		// description of a descriptor has changed, another file has got its number.
		if !known || strings.HasPrefix(description, "descriptor") && old != description {
			left[id] = description
		}
	}
	return left
}

// openResources returns the descriptions of all goroutines and descriptors by their ids. The
// description of a goroutine is its stack.
func openResources() map[string]string {
	resources := map[string]string{}
	for _, g := range stacks() {
		if id := goroutineID.FindString(g); id != "" && !isRuntimeGoroutine(g) {
			resources[id] = g
		}
	}
	// Only Linux lists descriptors with their files. On other systems Glob returns none.
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err == nil && !isPollerDescriptor(to) { // Glob has closed its own descriptor by now
			resources[fd] = "descriptor " + fd + " → " + to
		}
	}
	return resources
}

var goroutineID = regexp.MustCompile(`^goroutine \d+`)

func stacks() []string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Split(string(buf[:n]), "\n\n")
		}
		buf = make([]byte, 2*len(buf))
	}
}

// isRuntimeGoroutine reports whether a stack belongs to a goroutine that exists until the
// process ends.
func isRuntimeGoroutine(stack string) bool {
	for _, s := range []string{"os/signal.signal_recv", "os/signal.loop", "testing.(*M).", "runtime.ensureSigM", "testing.tRunner("} {
		if strings.Contains(stack, s) {
			return true
		}
	}
	return false
}

// isPollerDescriptor reports whether a descriptor belongs to Go's network poller, which opens it
// at its first use and keeps it.
func isPollerDescriptor(to string) bool {
	return to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]"
}
